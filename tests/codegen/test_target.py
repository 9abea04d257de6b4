from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import onnx
import pytest

from ostinato.codegen import target
from ostinato.codegen.target import data_layout, find_target, host_target, require_runnable
from ostinato.compiler import stages
from ostinato.errors import OptionError
from ostinato.machine.record import NEON
from ostinato.machine.targets import TARGETS
from ostinato.options import Options
from tools import mca

AVX512 = "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq"


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
        ("x86_64-unknown-linux-gnu", AVX512.replace("+avx512bw", "-avx512bw"), (32, 16)),
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
    found = machine("x86_64-unknown-linux-gnu", "c", features).machine
    assert found.byte_dots == ("vnni" if expected else "none")


def test_long_vectors_are_asked_for(machine):
    assert machine("x86_64-linux", "c", AVX512).features == f"{AVX512},-prefer-256-bit"


@pytest.mark.parametrize("features", ["", "+avx2,-fma", "-avx2,+fma", "+fma"])
def test_machines_without_fused_multiply_add_are_refused(machine, features):
    with pytest.raises(OptionError, match=r"this CPU \(old\) has no AVX2 and FMA"):
        machine("x86_64-unknown-linux-gnu", "old", features)


def test_this_machine_is_looked_at_once():
    assert host_target() is host_target()


@pytest.mark.parametrize(
    ("cpu", "features", "expected"),
    [
        ("cortex-a76", "+neon,+dotprod", TARGETS["raspberry-pi-5"].machine),
        ("cortex-a76", "+neon", replace(TARGETS["raspberry-pi-5"].machine, byte_dots="widening")),
        ("some-cpu", "+neon,+dotprod,+i8mm", replace(NEON, byte_dots="usdot", byte_pairs=True)),
    ],
)
def test_cores_that_the_table_knows_are_found_by_their_name(machine, cpu, features, expected):
    assert machine("aarch64-unknown-linux-gnu", cpu, features).machine == expected


def test_aliases_are_looked_up():
    assert find_target("host") is host_target()
    assert find_target("raspberry-pi-5") is TARGETS["raspberry-pi-5"]


def test_memory_is_laid_out_as_the_machine_does():
    assert data_layout(TARGETS["wasm"]).startswith("e-m:e-p:32:32-")
    assert data_layout(TARGETS["apple-m1"]).startswith("e-m:o-")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("graviton3", "it is aarch64-unknown-linux-gnu, not x86_64-unknown-linux-gnu"),
        ("windows", "it is x86_64-w64-windows-gnu, not x86_64-unknown-linux-gnu"),
        ("x86-64-v4", "it needs avx512bw, avx512cd, avx512dq, avx512f, avx512vl"),
        ("x86_64-unknown-linux-gnu:sapphirerapids", "it needs sapphirerapids"),
    ],
)
def test_code_for_another_machine_is_not_run(name, reason, monkeypatch):
    here = replace(TARGETS["x86-64-v3"], cpu="some-cpu")
    monkeypatch.setattr(target, "host_target", lambda: here)
    with pytest.raises(OptionError, match=rf"cannot be run here \({reason}\); `ostinato build`"):
        require_runnable(name)


def test_code_for_less_than_this_machine_is_run(monkeypatch):
    monkeypatch.setattr(target, "host_target", lambda: TARGETS["x86-64-v4"])
    require_runnable("x86-64-v3")
    require_runnable("x86-64-v4")
    require_runnable("host")


def test_loads_for_a_core_that_issues_in_order_lie_between_multiply_adds():
    """Of a product's innermost loop no more than what the first multiply-adds need comes first."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        product (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) { y = MatMul (x, w) }"""
    )
    text = dict(stages(model, Options(target="cortex-a53", cache_dir=None)))
    assert '"target-cpu"="cortex-a53" "tune-cpu"="cortex-a55"' in text["llvm"]
    loop = max(mca.loops(text["asm"]), key=lambda loop: loop.products)
    kinds = [line.split()[0] for line in loop.body if line.startswith(("fmla", "ld"))]
    runs = [len(list(group)) for kind, group in groupby(kinds, lambda k: k[:2]) if kind == "ld"]
    assert len(runs) > 6 and max(runs[1:]) <= 2


def test_products_of_bytes_take_words_out_of_registers():
    """Four words of a row are loaded, and made signed, at once."""
    product = mca.integer_product(64, 256, 64)
    text = dict(stages(product, Options(target="raspberry-pi-5", cache_dir=None)))
    (loop,) = mca.full_tiles(text["asm"])
    kinds = Counter(line.split()[0] for line in loop.body)
    assert loop.products > 50 and not {"dup", "ld1r"} & kinds.keys()
    assert kinds["eor"] < kinds["sdot"] / 8
