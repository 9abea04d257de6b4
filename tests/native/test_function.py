from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ostinato import InferenceSession
from ostinato.codegen.artifact import Argument
from ostinato.errors import RunError, ShapeError
from ostinato.native import memory
from ostinato.native.function import MAX_PLANS, NativeFunction
from tests.golden import parse

# Rows that nothing bounds, and a product of each that is many times as large.
WIDENED = parse("""
    g (float[1, 4] x, float[4, 400] w, float[1, 400] h) => (float[1, 400] last) {
        yes = Constant <value = bool {1}> ()
        end, rows = Loop <body = b (int64 i, bool on, float[1, 4] a)
                => (bool go, float[1, 4] c, float[1, 4] r) {
            five = Constant <value = int64 {5}> ()
            go = Less (i, five)
            c = Sin (a)
            r = Identity (c)
        }> (, yes, x)
        last = Scan <num_scan_inputs = 1,
                body = s (float[1, 400] p, float[1, 4] e) => (float[1, 400] n) {
            wide = MatMul (e, w)
            sum = Add (p, wide)
            n = Tanh (sum)
        }> (h, rows)
    }""")


def test_plans_are_reused_and_the_oldest_dropped(artifacts: Any) -> None:
    function = NativeFunction(artifacts.add())
    large = function.plan([(500,), (500,)])
    plans = [function.plan([(n,), (n,)]) for n in range(20, 20 + MAX_PLANS)]
    assert function.plan([(20 + MAX_PLANS - 1,)] * 2) is plans[-1] is function.last
    assert function.plan([(500,), (500,)]) is not large
    assert len(function._plans) == MAX_PLANS


def test_the_arena_grows_and_never_shrinks(artifacts: Any) -> None:
    function = NativeFunction(artifacts.add())
    sizes = []
    for n in (10, 100, 5, 100, 101, 3):
        function.plan([(n,), (n,)])
        sizes.append(function.arena_bytes)
        assert sizes[-1] >= 4 * n
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_a_growing_arena_does_not_disturb_an_older_plan(artifacts: Any) -> None:
    function = NativeFunction(artifacts.add())
    small = function.plan([(3,), (3,)])
    function.plan([(100_000,), (100_000,)])
    y = np.zeros(3, "f")
    assert small.call(np.ones(3, "f"), np.ones(3, "f"), y) is None
    assert y.tolist() == [2, 2, 2]


def test_values_of_other_stages_are_checked_by_name(artifacts: Any) -> None:
    function = NativeFunction(artifacts.add())
    for wrong in (np.zeros(3), [0.0], None, np.float32(0)):
        with pytest.raises(RunError, match=r"value 'b': expected float32\[T\], got"):
            function.run({"a": np.zeros(3, "f"), "b": wrong}, {})


LAYOUTS = """
define i64 @entry(ptr %b, ptr %s) {{ ret i64 0 }}
define i64 @layout(ptr %s, ptr %out) {{
  store i64 {arena}, ptr %out
  %dim = getelementptr i64, ptr %out, i64 1
  store i64 {dim}, ptr %dim
  ret i64 {code}
}}
"""


@pytest.mark.parametrize(
    ("arena", "dim", "code", "error", "message"),
    [
        (0, -1, 0, ShapeError, r"value 'y' would have the shape \[-1\]"),
        (0, 1 << 60, 0, RunError, "GiB are available"),
        (1 << 60, 1, 0, RunError, "GiB are available"),
        (0, 1, 9, ShapeError, "run-time check 9 failed"),
    ],
)
def test_impossible_layouts_are_refused_before_allocating(
    artifacts: Any, arena: int, dim: int, code: int, error: type[Exception], message: str
) -> None:
    text = LAYOUTS.format(arena=arena, dim=dim, code=code)
    x = Argument("x", "float32", ("T",))
    artifact = replace(
        artifacts.half(), object_code=artifacts.emit(text), inputs=(x,), symbols=("T",)
    )
    with pytest.raises(error, match=message):
        NativeFunction(artifact).plan([(1,)])


def test_a_fixed_shape_is_planned_at_load(artifacts: Any) -> None:
    assert NativeFunction(artifacts.half()).last is not None
    assert NativeFunction(artifacts.add()).last is None


def test_rows_that_nothing_bounds_leave_room_for_what_is_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    x, w, h = (random.standard_normal(s).astype(np.float32) for s in ((1, 4), (4, 400), (1, 400)))
    expected, row = h, x
    for _ in range(6):
        row = np.sin(row)
        expected = np.tanh(expected + row @ w)
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 27)
    session = InferenceSession(WIDENED, cache_dir=None)
    (last,) = session.run(None, {"x": x, "w": w, "h": h})
    np.testing.assert_allclose(last, expected, atol=1e-6)
