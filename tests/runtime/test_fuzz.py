"""Random arguments must be refused by an `OstinatoError` or run; nothing else may happen."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import ostinato
from ostinato.native.trampoline import REFUSED

pytestmark = pytest.mark.filterwarnings("ignore")
FUZZ = settings(
    max_examples=200,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
_dtypes = st.one_of(
    arrays.scalar_dtypes(),
    st.sampled_from([np.dtype(c) for c in "fffflqdeO"]),
    arrays.array_dtypes(),
)
_arrays = st.builds(lambda shape, dtype: np.zeros(shape, dtype), _shapes, _dtypes)


@st.composite
def _views(draw: st.DrawFn) -> np.ndarray:
    array = draw(_arrays)
    steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in array.shape]
    view = array[(*[slice(None, None, step) for step in steps], ...)]
    if draw(st.booleans()):
        view = view.T
    if draw(st.integers(0, 4)) == 0:
        view = view.view(draw(st.sampled_from([np.recarray, np.ndarray, np.ma.MaskedArray])))
    with contextlib.suppress(ValueError):
        view.flags.writeable = draw(st.booleans())
    return view


# Of each length in UTF-8, and one that is none. For all of Unicode Hypothesis takes a second first.
_LETTERS = "ab\0\u00e9\u4e2d\U0001f600"
_vectors = st.integers(0, 16).map(lambda n: np.ones(n, "f"))
_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(_LETTERS, max_size=5),
    st.binary(max_size=16),
    st.binary(max_size=16).map(bytearray),
    st.binary(max_size=16).map(memoryview),
    st.just(object()),
    st.just(np.ndarray),
    st.sampled_from([np.float32(1), np.float64(1), np.str_("a"), np.void(b"abcd")]),
)
_nested = st.recursive(
    st.one_of(_plain, _views()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(_LETTERS, max_size=2), inner, max_size=2),
    ),
    max_leaves=6,
)
_values = st.one_of(_vectors, _views(), _nested)
_names = st.one_of(
    st.sampled_from(["a", "b", "sum", "x"]), st.text(_LETTERS, max_size=2), st.integers()
)
_feeds = st.one_of(
    st.fixed_dictionaries({"a": _values, "b": _values}),
    st.fixed_dictionaries({"a": _vectors, "b": _vectors}),
    st.dictionaries(_names, _values, max_size=3),
    _values,
)
_outs = st.one_of(
    st.none(),
    st.fixed_dictionaries({"sum": _values}),
    st.dictionaries(_names, _values, max_size=2),
    _values,
)
_requested = st.one_of(st.none(), st.just(["sum"]), st.lists(_names, max_size=2), _values)


@pytest.fixture
def add(session: Any, artifacts: Any) -> Any:
    made = session(artifacts.add())
    made.run(None, {"a": np.ones(3, "f"), "b": np.ones(3, "f")})
    return made


@FUZZ
@given(_requested, _feeds, _outs)
def test_run(add: Any, names: Any, feeds: Any, out: Any) -> None:
    with contextlib.suppress(ostinato.OstinatoError):
        results = add.run(names, feeds, out=out)
        assert all(type(y) is np.ndarray and y.dtype == np.float32 and y.ndim == 1 for y in results)


@FUZZ
@given(_feeds, _outs)
def test_bind(add: Any, feeds: Any, out: Any) -> None:
    with contextlib.suppress(ostinato.OstinatoError):
        add.bind(feeds, out)()


@FUZZ
@given(st.lists(_values, max_size=4))
def test_caller(add: Any, arguments: list[Any]) -> None:
    code = add._native.last.call(*arguments)
    is_right = len(arguments) == 3 and all(
        type(v) is np.ndarray and v.dtype == np.float32 for v in arguments
    )
    assert code == REFUSED or is_right


@FUZZ
@given(st.lists(_vectors, min_size=3, max_size=3), st.lists(st.integers(0, 16), min_size=3))
def test_vectors_give_the_sum_or_a_refusal(add: Any, vectors: Any, starts: Any) -> None:
    memory = np.arange(64, dtype="f")
    a, b, y = (memory[start:][: len(v)] for start, v in zip(starts, vectors, strict=False))
    expected = a + b if len(a) == len(b) else None
    try:
        add.run(None, {"a": a, "b": b}, out={"sum": y})
    except ostinato.OstinatoError:
        assert expected is None or len(y) != len(a) or len(a) == 13
    else:
        assert expected is not None and np.array_equal(y, expected)
