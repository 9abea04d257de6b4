"""Evenly spaced indices: which elements, which errors, and that nothing is copied to find them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import ostinato
from ostinato.errors import OstinatoError
from ostinato.guards import Guards
from ostinato.machine.record import Machine
from ostinato.model.load import load_model
from ostinato.ops.core.progressions import Picks, injective, whole
from ostinato.ops.core.tensor import Tensor, progression_of
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program, statements
from ostinato.schedule.pipeline import schedule
from ostinato.sizes.dims import symbol
from ostinato.sizes.progressions import Progression, bounds
from ostinato.stages.partition import Segment, partition

Array = np.ndarray
ROWS = 5
NUMBERS = {"zero": 0, "one": 1, "two": 2, "minus": -1}
# Start, limit and step: those that the fused form of other runtimes gets wrong, and others.
TABLE = [
    (-3, 0, 1), (-2, 2, 1), (3, -1, -1), (0, -1, 1), (2, 9, 1), (-9, 2, 1), (0, 5, 1), (0, 6, 1),
    (4, -6, -1), (-1, -6, -1), (-1, -7, -1), (5, 5, 1), (9, 9, 1), (1, 5, 2), (0, 5, 0),
    (7, 1, 1), (-5, 5, 1), (4, 9, 7),
]  # fmt: skip


def model(source: str, constants: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{source}')
    for name, value in {**NUMBERS, **(constants or {})}.items():
        if name in source:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return made


def session(source: str, constants: Mapping[str, Any] | None = None) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(model(source, constants), cache_dir=None, fallback=False)


def program(source: str, constants: Mapping[str, Any] | None = None) -> Program:
    """The scheduled program of a model as it stands, without any pass over its graph."""
    (part,) = partition(
        load_model(model(source, constants)), fallback=False, guarded=Guards.LIKELY
    ).parts
    assert isinstance(part, Segment)
    return schedule(part.program, Machine(16, 32)).program


def picked(start: int, limit: int, delta: int) -> Array | None:
    """The positions that a range picks of `ROWS`, or None if it is an error."""
    if delta == 0:
        return None
    positions = np.arange(start, limit, delta)
    if positions.size and not (positions.min() >= -ROWS and positions.max() < ROWS):
        return None
    return positions % ROWS


X = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
BY_VALUE = {
    "gather": "y = Gather(x, i)",
    "gather-elements": """c = Unsqueeze(i, minus_one)  t = Shape(i)  w = Concat<axis = 0>(t, three)
        e = Expand(c, w)  y = GatherElements(x, e)""",
    "gather-nd": "c = Unsqueeze(i, minus_one)  y = GatherND(x, c)",
}
SHAPES = {"three": [3], "minus_one": [-1]}


@pytest.fixture(scope="module", params=BY_VALUE.values(), ids=BY_VALUE)
def by_value(request: pytest.FixtureRequest) -> ostinato.InferenceSession:
    """Rows of a range whose bounds are inputs."""
    return session(
        f"""agraph (float[{ROWS}, 3] x, int64 a, int64 b, int64 d) => (float[k, 3] y) {{
            i = Range(a, b, d)  {request.param}
        }}""",
        SHAPES,
    )


def run_range(one: ostinato.InferenceSession, *numbers: int) -> Array | None:
    """The rows, or None for an error that names a node."""
    feeds = {"x": X, **dict(zip("abd", map(np.array, numbers), strict=True))}
    try:
        return one.run(None, feeds)[0]
    except OstinatoError as error:
        assert "node '" in str(error)
        if numbers[2]:
            assert "an index is out of range for axis 0 of 5 elements" in str(error)
        return None


@pytest.mark.parametrize("numbers", TABLE)
def test_ranges_of_values(by_value: ostinato.InferenceSession, numbers: tuple[int, ...]) -> None:
    positions, got = picked(*numbers), run_range(by_value, *numbers)
    if positions is None:
        assert got is None
    else:
        np.testing.assert_array_equal(got, X[positions])


@pytest.mark.parametrize("numbers", TABLE)
@pytest.mark.parametrize("form", BY_VALUE)
def test_ranges_of_constants(form: str, numbers: tuple[int, ...]) -> None:
    source = f"""agraph (float[{ROWS}, 3] x) => (float[k, 3] y) {{
        i = Range(a, b, d)  {BY_VALUE[form]}
    }}"""
    constants = {**SHAPES, **dict(zip("abd", numbers, strict=True))}
    positions = picked(*numbers)
    if positions is None:
        with pytest.raises(OstinatoError, match=r"out of range|delta"):
            session(source, constants)
    else:
        (got,) = session(source, constants).run(None, {"x": X})
        np.testing.assert_array_equal(got, X[positions])


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(numbers=st.tuples(*[st.integers(-8, 8)] * 3))
def test_any_range(by_value: ostinato.InferenceSession, numbers: tuple[int, int, int]) -> None:
    positions, got = picked(*numbers), run_range(by_value, *numbers)
    if positions is None:
        assert got is None
    else:
        np.testing.assert_array_equal(got, X[positions])


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(numbers=st.tuples(*[st.integers(-8, 8)] * 3), seed=st.integers(0, 9))
def test_gradient_of_any_range(
    gradient: ostinato.InferenceSession, numbers: tuple[int, int, int], seed: int
) -> None:
    positions = picked(*numbers)
    count = 0 if positions is None else positions.size
    rows = np.random.default_rng(seed).integers(-9, 9, (count, 3)).astype(np.float32)
    feeds = {"g": rows, **dict(zip("abd", map(np.array, numbers), strict=True))}
    if positions is None:
        with pytest.raises(OstinatoError, match="node '"):
            gradient.run(None, feeds)
        return
    expected = np.zeros((ROWS, 3), np.float32)
    np.add.at(expected, positions, rows)
    for got in gradient.run(None, feeds):
        np.testing.assert_array_equal(got, expected)


@pytest.fixture(scope="module")
def gradient() -> ostinato.InferenceSession:
    """Rows added to zeros at places of a range: as indices of rows, and of elements."""
    return session(
        """agraph (float[k, 3] g, int64 a, int64 b, int64 d) => (float[m, 3] y, float[m, 3] z) {
            i = Range(a, b, d)  c = Unsqueeze(i, minus_one)  zeros = ConstantOfShape(rows)
            y = ScatterND<reduction = "add">(zeros, c, g)
            s = Shape(g)  e = Expand(c, s)
            z = ScatterElements<reduction = "add">(zeros, e, g)
        }""",
        {**SHAPES, "rows": [ROWS, 3]},
    )


VIEWS = {
    "constants": "i = Range(one, six, one)",
    "steps": "i = Range(six, minus, minus)",
    "shape": "s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)  i = Range(one, n, two)",
    "value": "i = Range(zero, v, one)",
    "values": "j = Range(v, six, one)  i = Sub(j, one)",
    "narrow": "j = Range(zero, v, one)  i = Cast<to = 6>(j)",
    "multiple": "j = Range(zero, v, one)  i = Mul(two, j)",
    "scalar": "i = Add(v, one)  u = Range(zero, v, one)",
    "known": "i = Identity(places)",
    "windows": "j = Range(zero, v, one)  k = Unsqueeze(j, minus_one)  i = Add(k, places)",
}


@pytest.mark.parametrize("indices", VIEWS)
def test_what_indices_pick_is_read_where_it_is(indices: str) -> None:
    """One kernel, the reader's, and no address that depends on an element."""
    axes = {"scalar": "8", "windows": "k, 3, 8"}.get(indices, "k, 8")
    more = ", int64[l] u" if indices == "scalar" else ""
    made = program(
        f"""agraph (float[2, T, 8] x, int64 v) => (float[2, {axes}] y{more}) {{
            {VIEWS[indices]}  g = Gather<axis = 1>(x, i)  y = Neg(g)
        }}""",
        {"six": 6, "minus_one": [-1], "places": np.arange(3)},
    )
    kernels = [s for s in statements(made.body) if isinstance(s, Kernel)]
    assert len(kernels) == len(made.outputs)
    assert not any(load.index for kernel in kernels for load in kernel.loads())
    assert not any(load.mask is not None for kernel in kernels for load in kernel.loads())


def test_the_whole_range_of_an_axis_is_the_value_itself() -> None:
    made = program(
        """agraph (float[N, T] x) => (float[N, T] y) {
            s = Shape<start = 1>(x)  n = Squeeze(s)  i = Range(zero, n, one)
            y = Gather<axis = 1>(x, i)
        }"""
    )
    (kernel,) = made.kernels()
    (load,) = kernel.loads()
    assert load.access.terms == kernel.stores[0].access.terms
    assert not any("out of range" in check.message for check in made.checks)


def test_slabs_are_laid_between_zeros() -> None:
    """Each element of the gradient is written once, by whom it comes from."""
    made = program(
        """agraph (float[N, 4] g) => (float[N, 9] y) {
            s = Shape(g)  e = Expand(i, s)  n = Slice(s, start, end)
            w = Concat<axis = 0>(n, nine)  zeros = ConstantOfShape(w)
            d = Exp(g)  y = ScatterElements<axis = 1, reduction = "add">(zeros, e, d)
        }""",
        {"i": np.arange(2, 6), "start": [0], "end": [1], "nine": [9]},
    )
    assert {name for k in made.kernels() for name in k.writes()} == {"out.y"}
    assert len([*made.kernels()]) == 3
    assert sum(1 for kernel in made.kernels() for _ in kernel.loads()) <= 3


def test_updates_of_updates_share_memory() -> None:
    made = program(
        """agraph (float[6, 2] g, float[6, 2] h) => (float[12, 2] y) {
            zeros = ConstantOfShape(w)
            a = ScatterND<reduction = "add">(zeros, i, g)
            b = ScatterND<reduction = "add">(a, j, h)  y = ScatterND<reduction = "max">(b, i, h)
        }""",
        {
            "i": np.arange(0, 12, 2).reshape(6, 1),
            "j": np.arange(1, 12, 2).reshape(6, 1),
            "w": [12, 2],
        },
    )
    assert {name for k in made.kernels() for name in k.writes()} == {"out.y"}
    assert len([*made.kernels()]) == 4


def test_updates_do_not_reach_what_another_stage_made() -> None:
    """A node between the scatters runs on a reference kernel: the first one's result is given."""
    made = model(
        """agraph (float[6, 2] g, float[3, 2] h) => (float[6, 2] y, string[3] t) {
            zeros = ConstantOfShape(w)  a = ScatterND(zeros, i, g)
            m = ReduceMax<keepdims = 0>(g)  r = Cast<to = 8>(m)  u = Expand(r, three)
            t = Identity(u)  b = Exp(h)  y = ScatterND(a, j, b)
        }""",
        {"w": [6, 2], "i": np.arange(6).reshape(6, 1), "j": np.arange(3).reshape(3, 1), **SHAPES},
    )
    parts = partition(load_model(made), fallback=True, guarded=Guards.LIKELY).parts
    programs = [part.program for part in parts if isinstance(part, Segment)]
    assert len(programs) == 2
    for one in programs:
        written = {name for kernel in one.kernels() for name in kernel.writes()}
        assert not any(one.buffers[name].kind == "input" for name in written)


def test_numbers_that_wrap_around_in_32_bits_are_found_while_running() -> None:
    one = session(
        """agraph (float[5] x, int32 a, int32 b) => (float[k] y) {
            i = Range(a, b, step)  j = Add(i, more)  y = Gather(x, j)
        }""",
        {"step": np.int32(1), "more": np.int32(2**31 - 1)},
    )
    x = np.arange(5, dtype=np.float32)

    def run(a: int, b: int) -> Array:
        return one.run(None, {"x": x, "a": np.int32(a), "b": np.int32(b)})[0]

    np.testing.assert_array_equal(run(2 - 2**31, 4 - 2**31), [1, 2])
    with pytest.raises(OstinatoError, match="out of range"):
        run(1, 3)


def line(*steps: Any, start: Any = 0) -> Progression:
    return Progression(start, steps)


def test_bounds() -> None:
    size, delta = symbol("n"), symbol("d", signed=True)
    assert bounds(line(1, -2, start=5), (4, 3)) == (1, 8)
    assert bounds(line(2), (size,)) == (0, 2 * size - 2)
    low, high = bounds(line(delta, start=1), (3,))
    assert str(low) == "min(2*d, 0) + 1"
    assert str(high) == "max(2*d, 0) + 1"


@pytest.mark.parametrize(
    ("shape", "own", "lines", "expected"),
    [
        ((4,), (None,), [line(-3)], 1),
        ((4,), (None,), [line(0)], 0),
        ((1,), (None,), [line(0)], 1),
        ((2, 3), (None, None), [line(3, 1)], 1),
        ((2, 3), (None, None), [line(2, 1)], 0),
        ((2, 3), (None, None), [line(1, 1), line(0, 1)], 1),
        ((2, 3), (0, None), [line(1, 1)], 1),
        ((symbol("n"), 3), (None, 1), [line(2, 0)], 1),
    ],
)
def test_which_positions_are_sure_to_differ(
    shape: Any, own: Any, lines: list[Progression], expected: int
) -> None:
    assert injective(Picks(shape, own, dict(enumerate(lines)), 1)) == expected


def test_steps_that_a_run_tells_must_not_be_zero() -> None:
    step = symbol("d", signed=True)
    condition = injective(Picks((4,), (None,), {0: line(step)}, 4))
    assert not isinstance(condition, int)


def known(array: Any) -> Tensor:
    values = np.asarray(array)
    return Tensor(values.dtype.name, values.shape, None, (), values)


def test_known_progressions() -> None:
    assert progression_of(known([3, 1, -1])) == line(-2, start=3)
    assert progression_of(known([[0, 1], [5, 6]])) == line(5, 1)
    assert progression_of(known([[0, 1], [5, 7]])) is None
    assert progression_of(known(7)) == line(start=7)
    assert progression_of(known([1.0, 2.0])) is None
    assert progression_of(known([0, 2**62])) is None
    size = symbol("n")
    sizes = np.array([size, size + 2, size + 4], object)
    assert progression_of(Tensor("int64", (3,), None, (), sizes)) == line(2, start=size)


def of_floats(start: float, delta: float, dtype: str, *, down: bool = False) -> onnx.ModelProto:
    """A range from `start` to the length of an input, or back, in floats."""
    bounds = "f, start, delta" if down else "start, f, delta"
    source = f"""agraph (float[t] x) => ({dtype}[n] y, int64[n] z) {{
        s = Shape(x)  c = Gather<axis = 0>(s, zero)  f = CastLike(c, start)
        y = Range({bounds})  z = Cast<to = 7>(y)
    }}"""
    kind = np.float32 if dtype == "float" else np.float64
    return model(source, {"start": np.array(start, kind), "delta": np.array(delta, kind)})


@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize(
    ("start", "delta", "down"), [(0, 1, False), (3, 2, False), (-1, -1, False), (-2, -3, True)]
)
def test_floats_that_count_to_a_size_are_computed_from_it(
    start: float, delta: float, down: bool, dtype: str
) -> None:
    made = ostinato.InferenceSession(
        of_floats(start, delta, dtype, down=down), cache_dir=None, fallback=False
    )
    for count in (4, 7, 100):
        x = np.arange(count, dtype=np.float32)
        expected = np.arange(count, start, delta) if down else np.arange(start, count, delta)
        y, z = made.run(None, {"x": x})
        np.testing.assert_array_equal(y, expected.astype(y.dtype), strict=True)
        np.testing.assert_array_equal(z, expected.astype(np.int64), strict=True)


@pytest.mark.filterwarnings("ignore:the model")
def test_floats_that_count_further_than_floats_hold_are_left_to_the_reference() -> None:
    made = ostinato.InferenceSession(of_floats(0, 4, "float"), cache_dir=None)
    for count in (9, 2**22, 2**22 + 1):
        (y,) = made.run(["y"], {"x": np.zeros(count, np.float32)})
        np.testing.assert_array_equal(y, np.arange(0, count, 4, np.float32), strict=True)


def test_which_floats_are_known_to_be_whole() -> None:
    def floats(*numbers: float) -> Tensor:
        known = np.array(numbers, np.float32)
        return Tensor("float32", known.shape, None, known=known)

    assert whole(floats(2, 4, 6)) == Progression(2, (2,))
    for value in (floats(0.5), floats(np.inf), floats(np.nan), floats(2.0**23), floats(1, 2, 4)):
        assert whole(value) is None
