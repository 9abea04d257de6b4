from __future__ import annotations

from ostinato.ops.core.quantized import dequantized, quantized_by
from ostinato.program.expr import Axis, constant
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.stay_floats import stay_floats
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, shown

COUNT = 7
SCALE, ZERO = constant(0.25, "float32"), constant(3, "uint8")


def rounded(zero=ZERO) -> Program:
    """Elements quantised and dequantised, alone and in a sum."""
    i, k = Axis("i", COUNT), Axis("k", COUNT)
    made = [
        dequantized(quantized_by(at("x", (axis, 1)), SCALE, ZERO, "uint8"), zero, SCALE)
        for axis in (i, k)
    ]
    kernels = (
        Kernel("each", (i,), (), (store("y", made[0], (i, 1)),)),
        Kernel("all", (), (Reduce((k,), "max", made[1]),), (store("z", constant(1.0, "float32")),)),
    )
    return program({"x": (COUNT,)}, {"y": (COUNT,), "z": (1,)}, kernels)


def test_what_is_dequantised_again_stays_a_float():
    source = rounded()
    changed = stay_floats(source)
    assert "uint8" in shown(source) and "int" not in shown(changed)
    assert_same_results(source, changed)


def test_other_zero_points_are_left():
    check_unchanged(stay_floats, rounded(constant(4, "uint8")))
