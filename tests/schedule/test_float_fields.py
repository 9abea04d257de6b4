from __future__ import annotations

import numpy as np
import onnx
import pytest

from ostinato import InferenceSession
from ostinato.machine.record import Machine
from ostinato.program import interpreter
from ostinato.program.expr import Axis, cast, op
from ostinato.schedule.pipeline import schedule
from tests.program.programs import at, program
from tests.schedule.test_pipeline import assert_same_results, product

MERGING, PLAIN = Machine(64, 32), Machine(32, 16)
COLUMNS = 21


def scaled(terms: int, low: int, high: int, dtype: str, scale: np.ndarray, *, alone: bool = False):
    """A product with weights from `low` up to and without `high`, scaled by column."""
    r, column = Axis("r", terms), Axis("column", COLUMNS)
    weights = np.random.default_rng(terms).integers(low, high, (terms, COLUMNS), dtype)
    weights[0, :2] = low, high - 1
    number = cast(cast(at("w", (r, COLUMNS), (column, 1), dtype=dtype), "int32"), "float32")
    value = op("mul", number, at("s", (column, 1)))
    if alone:
        value = op("add", value, number)
    body = (product("product", at("x", (r, 1)), value, "y", r, column),)
    return program({"x": (terms,)}, {"y": (COLUMNS,)}, body, {"w": weights, "s": scale})


def short_scales(digits: int) -> np.ndarray:
    """Scales of at most so many binary digits, over many orders of magnitude."""
    rng = np.random.default_rng(digits)
    whole = rng.integers(1, 1 << digits, COLUMNS)
    return np.ldexp(whole.astype(np.float32), rng.integers(-100, 60, COLUMNS)).astype(np.float32)


def quantised_product(scale: float):
    rng = np.random.default_rng(5)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1, 64] x) => (float[1, 32] y)'
        "{ w = DequantizeLinear <axis = 1> (q, s) y = MatMul (x, w) }"
    )
    q = rng.integers(-128, 128, (64, 32), np.int8)
    s = np.full(32, scale, np.float32)
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(a, n) for a, n in ((q, "q"), (s, "s"))]
    )
    return model


def words(scheduled) -> list[np.ndarray]:
    return [
        c
        for name, c in scheduled.constants.items()
        if name.startswith("packed") and c.dtype == np.int32
    ]


FORMS = [
    (-128, 128, "int8", 8),
    (0, 256, "uint8", 8),
    (-8, 8, "int8", 4),
    (0, 16, "uint8", 4),
    (-2, 2, "int8", 2),
]


@pytest.mark.parametrize(("low", "high", "dtype", "bits"), FORMS)
@pytest.mark.parametrize("words_of_a_sum", [1, 3])
def test_fields_with_short_scales_are_floats_with_the_bits_of_products(
    low, high, dtype, bits, words_of_a_sum
):
    terms = words_of_a_sum * 32 // bits
    source = scaled(terms, low, high, dtype, short_scales(14))
    scheduled = schedule(source, MERGING).program
    (packed,) = words(scheduled)
    assert packed.nbytes == 32 * terms * bits // 8
    assert any(
        name.startswith("packed") and c.dtype == np.float32
        for name, c in scheduled.constants.items()
    )
    given = {"x": np.random.default_rng(3).standard_normal(terms).astype(np.float32)}
    expected, got = (interpreter.run(p, given)["y"] for p in (source, scheduled))
    assert np.array_equal(expected.view(np.int32), got.view(np.int32))
    assert_same_results(source, scheduled)


LONG = np.full(COLUMNS, 0.1, np.float32)


@pytest.mark.parametrize(
    "scale",
    [
        LONG,
        -short_scales(14),
        0 * LONG,
        short_scales(14) * np.float32(np.inf),
        LONG * np.float32(1e-44),
    ],
    ids=["long", "negative", "zero", "infinite", "subnormal"],
)
def test_scales_whose_offsets_would_round_are_multiplied(scale):
    scheduled = schedule(scaled(32, -128, 128, "int8", scale), MERGING).program
    assert not words(scheduled)


def test_numbers_that_are_used_without_their_scale_are_converted():
    source = scaled(32, -128, 128, "int8", short_scales(14), alone=True)
    assert not words(schedule(source, MERGING).program)


def test_sums_that_are_no_whole_words_keep_their_bytes():
    source = scaled(30, -128, 128, "int8", short_scales(14))
    scheduled = schedule(source, MERGING).program
    assert not words(scheduled)
    assert_same_results(source, scheduled)


def test_machines_without_the_instruction_keep_bytes():
    assert not words(schedule(scaled(32, -128, 128, "int8", short_scales(14)), PLAIN).program)


def test_stored_programs_have_the_offsets_of_their_own_scales(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 64)).astype(np.float32)
    options = {"cache_dir": tmp_path}
    for scale in (1 / 128, 3 / 128, 0.1, 5 / 128, 1 / 128):
        model = quantised_product(scale)
        plain = InferenceSession(model, cache_dir=None, disable=("pack",)).run(None, {"x": x})
        assert np.array_equal(InferenceSession(model, **options).run(None, {"x": x}), plain)
