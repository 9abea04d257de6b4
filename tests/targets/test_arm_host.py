"""The package itself on AArch64: what depends on the host, and the bits of some cases."""

from __future__ import annotations

import pytest

from tests.targets import arm_host
from tools.programs import Unavailable

pytestmark = pytest.mark.targets

FILES = (
    "tests/test_system.py",
    "tests/codegen/test_objects.py",
    "tests/codegen/test_processor.py",
    "tests/native/test_abi.py",
    "tests/native/test_memory.py",
    "tests/native/test_trampoline.py",
    "tests/native/test_threads.py",
)
CASES = "Softmax-last GRU-plain LSTM-lengths TopK-ties QLinearMatMul-rows Conv-batch CumSum-half"
CASES += " Exp-corners counted-3 MatMulInteger-rows"


def host(*arguments: str) -> str:
    try:
        return arm_host.run(arguments)
    except Unavailable as error:
        pytest.skip(str(error))


def test_it_is_another_processor() -> None:
    code = (
        "import platform, llvmlite.binding as b; print(platform.machine(), b.get_process_triple())"
    )
    assert host("-c", code).startswith("aarch64 aarch64")


def test_calls_threads_and_memory() -> None:
    printed = host("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "host", *FILES)
    passed = int(printed.strip().splitlines()[-1].split()[0])
    assert passed > 100, printed


def test_cases_have_the_bits_of_other_machines() -> None:
    pattern = f"^({'|'.join(CASES.split())})$"
    printed = host("-m", "tools.digests", "-k", pattern)
    assert "0 of them differ" in printed and not printed.startswith("0 digests"), printed
