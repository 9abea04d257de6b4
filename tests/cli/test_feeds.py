from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ostinato
from ostinato.cli.feeds import feeds_of, make_feeds, read_array
from ostinato.errors import InputError
from ostinato.runtime.session import NodeArg
from tests.golden import parse

X = NodeArg("x", "tensor(float)", ["T", 2])
COUNT = NodeArg("count", "tensor(int64)", ["T"])


def test_inputs_are_made_up_alike_each_time() -> None:
    first = make_feeds([X, COUNT], {}, {"T": 3})
    second = make_feeds([X, COUNT], {}, {"T": 3})
    assert {name: (a.dtype.name, a.shape) for name, a in first.items()} == {
        "x": ("float32", (3, 2)),
        "count": ("int64", (3,)),
    }
    assert np.unique(first["x"]).size == 6
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_every_element_type_can_be_made_up_and_read(tmp_path: Path) -> None:
    bits = NodeArg("b", "tensor(bfloat16)", [3])
    feeds = make_feeds([bits, NodeArg("s", "tensor(string)", [3])], {}, {})
    assert feeds["b"].dtype == ml_dtypes.bfloat16 and np.unique(feeds["b"]).size == 3
    assert feeds["s"].dtype == object and set(feeds["s"]) <= {"0", "1"}
    np.save(tmp_path / "b.npy", feeds["b"])
    again = make_feeds([bits], {"b": str(tmp_path / "b.npy")}, {})["b"]
    assert again.dtype == ml_dtypes.bfloat16 and np.array_equal(again, feeds["b"])
    assert make_feeds([NodeArg("e", "tensor(float8e5m2)", [2])], {}, {})["e"].itemsize == 1


def test_named_dimensions_default_to_one() -> None:
    assert make_feeds([X], {}, {})["x"].shape == (1, 2)


def test_a_file_fixes_the_dimensions_it_has(tmp_path: Path) -> None:
    array = np.ones((5, 2), np.float32)
    np.save(tmp_path / "x.npy", array)
    feeds = make_feeds([X, COUNT], {"x": str(tmp_path / "x.npy")}, {})
    np.testing.assert_array_equal(feeds["x"], array)
    assert feeds["count"].shape == (5,)


@pytest.mark.parametrize(
    ("argument", "files", "dims", "message"),
    [
        (X, {"z": "z.npy"}, {}, "no such input"),
        (X, {}, {"S": 1}, "no such dimension"),
        (X, {}, {"T": 2**44}, r"'x': there is no memory for values of the shape \[175921"),
        (X, {}, {"T": 2**62}, r"'x': there is no memory for values of the shape \[461168"),
        (NodeArg("s", "seq(tensor(float))", []), {}, {}, r"seq\(tensor\(float\)\)"),
        (NodeArg("u", "tensor(float)", None), {}, {}, "unknown rank"),
    ],
)
def test_what_cannot_be_fed_is_named(
    argument: NodeArg, files: dict[str, str], dims: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_feeds([argument], files, dims)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_array_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(InputError, match=r"input 'x': cannot read .*x\.npy: No such file"):
        read_array("x", str(path))
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"input 'x'.*x\.npy"):
        make_feeds([X], {"x": str(path)}, {})


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="input 'x'"):
        make_feeds([X], {"x": str(tmp_path / "x.npy")}, {})


def test_made_up_inputs_are_positive_where_a_model_needs_that(tmp_path: Path) -> None:
    text = "g (float[N] x, float[N] b) => (float[N] y) { a = Log(x) y = Add(a, b) }"
    session = ostinato.InferenceSession(parse(text), cache_dir=None)
    feeds = feeds_of(session, {}, {"N": 20})
    assert (feeds["x"] > 0).all() and (feeds["b"] > 0).all()
    scalar = ostinato.InferenceSession(parse(text.replace("float[N] b", "float b")), cache_dir=None)
    assert isinstance(feeds_of(scalar, {}, {"N": 20})["b"], np.ndarray)
    given = {"b": str(tmp_path / "b.npy")}
    np.save(given["b"], -np.ones(20, np.float32))
    assert (feeds_of(session, given, {})["b"] == -1).all()
    plain = ostinato.InferenceSession(parse(text.replace("Log", "Tanh")), cache_dir=None)
    assert (feeds_of(plain, {}, {"N": 20})["x"] < 0).any()
