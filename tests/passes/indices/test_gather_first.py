from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from ostinato import InferenceSession
from ostinato.model.load import load_model
from ostinato.passes.indices.gather_first import gather_first
from tests.golden import parse

RNG = np.random.default_rng(0)
ROWS, WIDTH = 40, 6
Q = RNG.integers(-128, 128, (ROWS, WIDTH), np.int8)
POINTS = RNG.integers(-128, 128, ROWS).astype(np.int8)


def scales(*shape: int) -> np.ndarray:
    return RNG.uniform(0.01, 1, shape).astype(np.float32)


def table(body: str, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = parse("g (int64[2, N] i) => (float[A, B, C] y) {" + body + "}")
    model.opset_import[0].version, model.ir_version = 21, 10
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model.graph.initializer.extend(arrays)
    return model


D, G = "w = DequantizeLinear", "y = Gather"
FORMS = {
    "tensor": (f"{D} (q, s)  {G} (w, i)", {"s": scales()}),
    "tensor, point": (f"{D} (q, s, z)  {G} <axis = 1> (w, j)", {"s": scales(), "z": POINTS[0]}),
    "rows": (f"{D} <axis = 0> (q, s)  {G} (w, i)", {"s": scales(ROWS)}),
    "rows, points": (f"{D} <axis = -2> (q, s, z)  {G} (w, i)", {"s": scales(ROWS), "z": POINTS}),
    "columns": (f"{D} <axis = 1> (q, s)  {G} (w, i)", {"s": scales(WIDTH)}),
    "columns of columns": (
        f"{D} <axis = -1> (q, s, z)  {G} <axis = -1> (w, j)",
        {"s": scales(WIDTH), "z": POINTS[:WIDTH]},
    ),
    "rows of columns": (f"{D} <axis = 0> (q, s)  {G} <axis = 1> (w, j)", {"s": scales(ROWS)}),
    "blocks": (f"{D} <axis = 1, block_size = 3> (q, s)  {G} (w, i)", {"s": scales(ROWS, 2)}),
    "cast": (f"w = Cast <to = 1> (h)  {G} (w, i)", {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_gathered_first_has_the_same_bits(form: str) -> None:
    body, constants = FORMS[form]
    body = body.replace("(w, j)", "(w, k)")
    constants = {"q": Q, "h": Q.astype(np.float16), **constants}
    if "k)" in body:
        body = "t = Mod (i, six)  k = Identity (t)  " + body
        constants["six"] = np.array(WIDTH)
    used = {name: a for name, a in constants.items() if f"{name}," in body or f"{name})" in body}
    source = table(body, used)
    model = load_model(source)
    assert gather_first(model) == 1
    onnx.checker.check_model(ir.to_proto(model))
    feeds = {"i": RNG.integers(0, ROWS, (2, 5))}
    (first,), (plain,) = (
        InferenceSession(source, cache_dir=None, disable=disable).run(None, feeds)
        for disable in ((), ("gather_first",))
    )
    np.testing.assert_array_equal(first.view(np.int32), plain.view(np.int32), strict=True)


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        # Blocks along the axis of the Gather; a table that is an input.
        (f"{D} <axis = 0, block_size = 4> (q, s)  {G} (w, i)", {"s": scales(10, WIDTH)}),
        (f"p = Add (q, q)  {D} (p, s)  {G} (w, i)", {"s": scales()}),
        # More positions than rows.
        (f"{D} (q, s)  {G} (w, many)", {"s": scales(), "many": np.zeros((2, 30), np.int64)}),
        (f"e = Cast <to = 1> (d)  {G} (e, i)", {"d": np.ones((4, 3))}),
        # A type that Gather does not take.
        (f"e = Cast <to = 1> (f)  {G} (e, i)", {"f": Q.astype(ml_dtypes.float8_e5m2)}),
        (f"{D} (f, s)  {G} (w, i)", {"f": Q.astype(ml_dtypes.float8_e4m3fn), "s": scales()}),
    ],
)
def test_what_stays(body: str, constants: dict[str, np.ndarray]) -> None:
    source = table(body, {"q": Q, **constants})
    assert gather_first(load_model(source)) == 0
    assert InferenceSession(source, cache_dir=None).report().native
