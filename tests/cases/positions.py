"""Cases of elements chosen or moved by where they are."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, ints, node
from tests.cases.scatter import SIZES, places


def by_position() -> list[Case]:
    square = In((5, 5))
    scalar = In((), "int64", low=-3, high=4)
    values = np.array([0.5, -2], np.float32)
    return [
        node("upper", "Trilu", In((3, 4, 6))),
        node("lower", "Trilu", In((6, 4)), np.array(-1), upper=0),
        node("beyond", "Trilu", square, np.array(9)),
        node("above", "Trilu", square, np.array(2), upper=0),
        node("computed", "Trilu", square, scalar),
        node("bool", "Trilu", In((5, 5), "bool", low=1)),
        node("int", "Trilu", In((5, 5), "int64", low=1, high=9)),
        node("half", "Trilu", In((5, 5), "float16"), np.array(1)),
        node("runtime", "Trilu", In(("N", "T", "T")), sizes=SIZES, batch=True),
        node("square", "EyeLike", square),
        node("above", "EyeLike", In((3, 6), "int32"), k=2),
        node("half", "EyeLike", In((3, 6), "float16"), witness=False),
        node("below", "EyeLike", In((6, 3)), k=-1),
        node("last", "OneHot", places(3, 2, high=9), np.array(5), values),
        node("first", "OneHot", places(3, 2, high=5), np.array(5), values, axis=0),
        node("middle", "OneHot", places(3, 2, high=5, dtype="int32"), ints(5), values, axis=1,
             witness=False),
        node("float", "OneHot", In((4,), values=[1.0, 3.0, -1.0, 7.0]), np.array(4), In((2,))),
        node("depth", "OneHot", places(3, 2, high=9), In((), "int64", values=[5]), values, axis=0),
        node("float-depth", "OneHot", places(3, 2, low=-9, high=9), In((), values=["D"]), In((2,)),
             axis=1, sizes=({"D": 4}, {"D": 1}, {"D": 7})),
        node("int", "OneHot", places(4, high=4), np.array(4), ints(0, 1)),
        node("runtime", "OneHot", places("N", "T", high=4), np.array(4), values, sizes=SIZES,
             batch=True),
        node("time-first", "ReverseSequence", In((6, 4, 3)), ints(6, 0, 1, 4), time_axis=0,
             batch_axis=1, witness=False),
        node("batch-first", "ReverseSequence", In((4, 6)), places(4, low=1, high=7), time_axis=1,
             batch_axis=0),
        node("int", "ReverseSequence", In((4, 6), "int32", high=99), ints(1, 2, 3, 4),
             time_axis=1, batch_axis=0),
        node(
            "runtime", "ReverseSequence", In((6, "N", "T")), places("N", low=1, high=7),
            sizes=SIZES, batch=True,
        ),
        node("crop", "CenterCropPad", In((5, 7)), ints(2, 4), opset=18),
        node("pad", "CenterCropPad", In((5, 7)), ints(8, 9), opset=18),
        node("both", "CenterCropPad", In((5, 7, 2)), ints(9, 3), opset=18, axes=[-2, 0]),
        node("same", "CenterCropPad", In((5, 7)), ints(5, 7), opset=18),
    ]  # fmt: skip


CASES = by_position()
