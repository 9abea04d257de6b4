from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.aot.windows import PROBE, probe_object
from ostinato.codegen.target import find_target
from tests.aot import models
from tools.programs import Unavailable, compiled, run

# 300 kB of the stack, of which the last byte is used before all others.
PROGRAM = """
#include <stdio.h>
__attribute__((noinline)) static long deep(int place, long a, long b)
{
    volatile char memory[300000];
    memory[place] = (char)a;
    return memory[place] + a + b;
}
int main(void) { return printf("%ld", deep(5, 7, 9)) != 2; }
"""


def test_archives_for_windows_bring_the_probe_of_the_stack() -> None:
    assert f"\0{PROBE}\0".encode() in models.gru_library(target="windows").archive()
    assert PROBE.encode() not in models.gru_library().archive()


@pytest.mark.targets
def test_pages_of_the_stack_are_touched_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep.c").write_text(PROGRAM)
    (tmp_path / "probe.o").write_bytes(probe_object())
    try:
        program = compiled(find_target("windows"), tmp_path, ["deep.c", "probe.o"])
        assert run(program, []) == "23"
    except Unavailable as reason:
        pytest.skip(str(reason))
