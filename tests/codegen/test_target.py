from __future__ import annotations

from collections.abc import Iterator

import pytest

from ostinato.codegen import target
from ostinato.codegen.target import host_target
from ostinato.errors import OptionError

AVX512 = "+avx2,+fma,+avx512f,+avx512vl,+avx512dq"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Pretends to be another machine."""

    def be(triple: str, cpu: str, features: str) -> target.Target:
        monkeypatch.setattr(target, "host", lambda: (triple, cpu, features))
        return host_target.__wrapped__()

    yield be


@pytest.mark.parametrize(
    ("triple", "features", "registers"),
    [
        ("x86_64-unknown-linux-gnu", "+avx2,+fma,-avx512f", (32, 16)),
        ("x86_64-unknown-linux-gnu", AVX512, (64, 32)),
        ("x86_64-unknown-linux-gnu", AVX512.replace("+avx512dq", "-avx512dq"), (32, 16)),
        ("aarch64-unknown-linux-gnu", "+neon", (16, 32)),
        ("arm64-apple-darwin", "+neon", (16, 32)),
    ],
)
def test_registers_follow_from_features(machine, triple, features, registers):
    found = machine(triple, "some-cpu", features)
    assert (found.machine.vector_bytes, found.machine.vector_registers) == registers
    assert (found.triple, found.cpu) == (triple, "some-cpu")


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (f"{AVX512},+avx512vnni", True),
        (f"{AVX512},+avxvnni", False),
        ("+avx2,+fma,+avxvnni", True),
        ("+avx2,+fma,+avx512vnni", False),
        ("+avx2,+fma", False),
    ],
)
def test_byte_dots_need_the_instruction_for_every_width(machine, features, expected):
    assert machine("x86_64-unknown-linux-gnu", "c", features).machine.byte_dots is expected


def test_long_vectors_are_asked_for(machine):
    assert machine("x86_64-linux", "c", AVX512).features == f"{AVX512},-prefer-256-bit"


@pytest.mark.parametrize("features", ["", "+avx2,-fma", "-avx2,+fma", "+fma"])
def test_machines_without_fused_multiply_add_are_refused(machine, features):
    with pytest.raises(OptionError, match=r"this CPU \(old\) has no AVX2 and FMA"):
        machine("x86_64-unknown-linux-gnu", "old", features)


def test_this_machine_is_looked_at_once():
    assert host_target() is host_target()
