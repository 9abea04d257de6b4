"""Cases of updates at evenly spaced places: gradients of what picks such elements, and others."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, ints, node, text
from tests.cases.runtime_sizes import number, runs

ZERO_ONE = {"zero": np.array(0), "one": np.array(1)}


def known() -> list[Case]:
    zeros = np.zeros((6, 5), np.float32)
    return [
        *(
            node(f"zeros-{name}", "ScatterND", zeros, places.reshape(-1, 1), In((len(places), 5)),
                 reduction=reduction, opset=18)
            for reduction in ("none", "add")
            for name, places in (
                (f"slab-{reduction}", np.arange(1, 4)),
                (f"all-{reduction}", np.arange(6)),
                (f"front-{reduction}", np.arange(2)),
                (f"back-{reduction}", np.arange(-2, 0)),
                (f"one-{reduction}", ints(3)),
                (f"strided-{reduction}", np.arange(0, 6, 2)),
                (f"reversed-{reduction}", np.arange(4, 1, -1)),
                (f"around-{reduction}", np.arange(-2, 3)),
                (f"none-{reduction}", np.arange(0)),
            )
        ),
        node("zeros-repeated", "ScatterND", zeros, np.arange(-4, 6).reshape(-1, 1), In((10, 5)),
             reduction="add", opset=18),
        node("same-place", "ScatterND", zeros, np.full((3, 1), 2), In((3, 5)), reduction="add",
             opset=18, length=3),
        node("ones-times", "ScatterND", np.ones((6, 5), np.float32), ints(1, 2).reshape(2, 1),
             In((2, 5)), reduction="mul", opset=18),
        node("grid", "ScatterND", In((6, 5)), np.arange(6).reshape(2, 3, 1), In((2, 3, 5))),
        node("diagonal", "ScatterND", In((6, 6)), np.stack([np.arange(6)] * 2, -1), In((6,)),
             reduction="add", opset=18),
        node("half-zeros", "ScatterND", np.zeros((6, 5), np.float16), ints(1, 2).reshape(2, 1),
             In((2, 5), "float16"), reduction="add", opset=18, witness=False),
        node("int-zeros", "ScatterElements", np.zeros((6, 5), np.int64), np.tile([[2], [4]], 5),
             In((2, 5), "int64", high=9), reduction="add", opset=18),
        node("fewer-columns", "ScatterElements", np.zeros((6, 5), np.float32),
             np.tile([[2], [3]], 3), In((2, 3))),
    ]  # fmt: skip


def computed() -> list[Case]:
    """Gradients whose ranges a run tells."""
    elements = """agraph (float[N, T, 3] x, float[N, k, 3] g, int64 a, int64 b)
        => (float[N, T, 3] y) {
        i = Range(a, b, one)  j = Unsqueeze(i, ends)  sg = Shape(g)  e = Expand(j, sg)
        sx = Shape(x)  zeros = ConstantOfShape(sx)
        y = ScatterElements<axis = 1, reduction = "add">(%s, e, g)
    }"""
    rows = """agraph (float[T, 3] x, float[k, 3] g, int64 a, int64 b) => (float[T, 3] y) {
        i = Range(a, b, d)  c = Unsqueeze(i, last)  s = Shape(x)  zeros = Expand(nothing, s)
        y = ScatterND<reduction = "%s">(%s, c, g)
    }"""
    inputs = {"a": number("a"), "b": number("b")}
    ends = {**ZERO_ONE, "ends": ints(0, 2)}
    spans = runs(
        "N T k a b",
        (2, 6, 3, 1, 4), (1, 6, 6, 0, 6), (2, 6, 4, -4, 0), (2, 6, 3, -6, -3), (0, 6, 2, 1, 3),
        (2, 6, 0, 3, 3), (2, 6, 4, -2, 2), (2, 4, 6, -3, 3), (3, 90, 70, 15, 85),
    )  # fmt: skip
    return [
        *(
            text(f"gradient-of-gather-elements-{of}", elements % of, spans, opset=18,
                 inputs=inputs, constants=ends, length=2)
            for of in ("zeros", "x")
        ),
        *(
            text(
                f"gradient-of-gather-{how}-{of}-{step}", rows % (how, of),
                runs("T k a b", *((t, k, a, a + k * step) for t, k, a in (
                    (9, 3, 4), (9, 1, 4), (9, 0, 2), (9, 2, -5), (9, 4, 4), (200, 80, 110)
                ) if step > 0 or t == 9)),
                opset=18, inputs=inputs, length=2,
                constants={"d": np.array(step), "last": ints(-1), "nothing": np.float32(0)},
            )
            for how, of, step in (
                ("add", "zeros", 1), ("none", "zeros", -1), ("add", "x", -1), ("add", "zeros", -1),
                ("none", "x", 1),
            )
        ),
        text(
            "gradients-one-behind-the-other",
            """agraph (float[N, 3] g, float[N, 3] h, float[N, 2] f)
                => (float[N, 9] y, float[N, 9] z) {
                s = Shape<end = 1>(g)  n = Concat<axis = 0>(s, nine)  zeros = ConstantOfShape(n)
                t = Shape(g)  e = Expand(i, t)  k = Expand(j, t)
                u = Shape(f)  l = Expand(m, u)
                a = ScatterElements<axis = 1, reduction = "add">(zeros, e, g)
                b = ScatterElements<axis = 1, reduction = "add">(a, k, h)
                y = ScatterElements<axis = 1>(b, l, f)
                c = ScatterElements<axis = 1>(zeros, l, f)
                z = ScatterElements<axis = 1, reduction = "add">(c, k, g)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 0}, {"N": 30}),
            opset=18,
            constants={
                "nine": ints(9), "i": ints(1, 2, 3), "j": ints(2, 4, 6), "m": ints(0, 8),
            },
            batch=True,
        ),
        text(
            "scatter-over-all-and-again",
            """agraph (float[6, N] x, float[2, N] g)
                => (float[6, N] y, float[6, N] z, float[6, N] w) {
                e = Exp(x)  s = Shape(x)  blank = ConstantOfShape(s)
                a = ScatterND(blank, all, x)  y = ScatterND(a, some, g)
                b = ScatterND(blank, all, e)  w = ScatterND<reduction = "add">(b, some, g)
                z = Add(x, e)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 40}),
            opset=18,
            constants={
                "all": np.arange(6).reshape(6, 1), "some": np.arange(1, 3).reshape(2, 1),
            },
            length=2,
        ),
        text(
            "scatter-twice-and-keep-the-first",
            """agraph (float[8, N] x, float[4, N] g) => (float[8, N] y, float[8, N] z) {
                e = Exp(x)  a = ScatterND(e, i, g)  y = ScatterND<reduction = "add">(a, j, g)
                z = Neg(a)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 40}),
            opset=18,
            constants={"i": np.arange(0, 8, 2).reshape(4, 1), "j": np.arange(4).reshape(4, 1)},
            length=2,
        ),
    ]  # fmt: skip


CASES = [*known(), *computed()]
