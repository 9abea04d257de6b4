from __future__ import annotations

import pytest

from tools import mca

ASSEMBLY = """
\t.text
"kernel.k1":
\tmov\tx8, x0
.LBB1_1:
\tldr\tq0, [x8]
\tfmla\tv1.4s, v0.4s, v2.4s
.LBB1_2:                                // inner
\tldp\tq0, q3, [x8], #32
\tfmla\tv1.4s, v0.4s, v2.4s
\tfmla\tv4.4s, v3.4s, v2.4s
\tb.lt\t.LBB1_2
\tldr\tq0, [x9]
.LBB1_3:
\tfmla\tv1.4s, v0.4s, v2.4s
\tcbnz\tx9, .LBB1_3
\tb.lt\t.LBB1_1
\tret
_kernel.k2:
LBB2_1:
\tadd\tx8, x8, #1
\tb.lt\tLBB2_1
LBB2_2:                                 ; inner
\tfmla.4s\tv1, v0, v2
\tb.lt\tLBB2_2
"""


def test_loops_of_one_block_are_found():
    found = [(loop.kernel, loop.label, loop.products) for loop in mca.loops(ASSEMBLY)]
    assert found == [
        ("kernel.k1", ".LBB1_2", 2),
        ("kernel.k1", ".LBB1_3", 1),
        ("kernel.k2", "LBB2_1", 0),
        ("kernel.k2", "LBB2_2", 1),
    ]


def test_the_loop_of_full_tiles_has_the_most_products():
    assert [loop.label for loop in mca.full_tiles(ASSEMBLY)] == [".LBB1_2", "LBB2_2"]


def test_cycles_of_a_chain_are_its_latency():
    program = mca.newest_program()
    if program is None:
        pytest.skip("there is no llvm-mca")
    loop = mca.full_tiles(ASSEMBLY)[1]
    cycles = mca.analysed(loop, "arm64-apple-macosx11.0.0", "apple-m1", program)
    assert cycles.taken > 2 > cycles.limit > 0


def test_without_the_program_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(mca, "newest_program", lambda: None)
    assert mca.main([]) == 2
    assert "apt-get install llvm" in capsys.readouterr().err
