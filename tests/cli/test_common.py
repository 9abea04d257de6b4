import io
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

import ostinato
from ostinato.cli import common
from ostinato.errors import InputError, OptionError
from ostinato.runtime.session import NodeArg
from tests.golden import parse

X = NodeArg("x", "tensor(float)", ["T", 2])
COUNT = NodeArg("count", "tensor(int64)", ["T"])


def test_pairs_split_at_the_last_equals_sign() -> None:
    assert common.parse_pairs("--input", ["a=b=c.npy", "d=e"]) == {"a=b": "c.npy", "d": "e"}
    assert common.parse_pairs("--input", None) == {}


@pytest.mark.parametrize("text", ["a", "=a", "a="])
def test_a_pair_needs_both_sides(text: str) -> None:
    with pytest.raises(OptionError, match="--dim"):
        common.parse_pairs("--dim", [text])


@pytest.mark.parametrize("text", ["T=-1", "T=1.5", "T=x", f"T={2**63}", "T=" + "9" * 5000])
def test_a_size_is_a_whole_number(text: str) -> None:
    with pytest.raises(OptionError, match="--dim T="):
        common.parse_sizes("--dim", [text])


def test_fields_of_options_have_the_types_of_theirs() -> None:
    fields = ["integer_products=true", "threads=2", "seed=-7", "flush_denormals=False"]
    options = common.make_options(None, False, True, fields=fields)
    assert (options.integer_products, options.flush_denormals) == (True, False)
    assert (options.threads, options.seed) == (2, -7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("integer_products=1", "expected true or false"),
        ("threads=two", "expected a whole number"),
        ("threads=0", "threads=0: expected 1 to"),
        ("fallback=false", "expected one of threads, "),
        ("cash_dir=x", "expected one of threads, "),
        ("threads", "--set"),
    ],
)
def test_other_fields_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        common.make_options(None, False, True, fields=[text])


@pytest.mark.parametrize("width", [24, 48])
def test_a_narrow_table_cuts_nothing(width: int) -> None:
    names, figures = "inputs, of, a, model, of, many, inputs", ("12.3 us", "4,953,600")
    table = common.table("title", "name", "time", "bytes")
    table.add_row(names, *figures)
    output = io.StringIO()
    Console(width=width, file=output).print(table)
    text = output.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    # The widest column is folded first.
    assert width == 24 or all(text.count(word) for word in (*names.split(), *figures))


def test_inputs_are_made_up_alike_each_time() -> None:
    first = common.make_feeds([X, COUNT], {}, {"T": 3})
    second = common.make_feeds([X, COUNT], {}, {"T": 3})
    assert {name: (a.dtype.name, a.shape) for name, a in first.items()} == {
        "x": ("float32", (3, 2)),
        "count": ("int64", (3,)),
    }
    assert np.unique(first["x"]).size == 6
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_every_element_type_can_be_made_up_and_read(tmp_path: Path) -> None:
    bits = NodeArg("b", "tensor(bfloat16)", [3])
    feeds = common.make_feeds([bits, NodeArg("s", "tensor(string)", [3])], {}, {})
    assert feeds["b"].dtype == ml_dtypes.bfloat16 and np.unique(feeds["b"]).size == 3
    assert feeds["s"].dtype == object and set(feeds["s"]) <= {"0", "1"}
    np.save(tmp_path / "b.npy", feeds["b"])
    again = common.make_feeds([bits], {"b": str(tmp_path / "b.npy")}, {})["b"]
    assert again.dtype == ml_dtypes.bfloat16 and np.array_equal(again, feeds["b"])
    assert common.make_feeds([NodeArg("e", "tensor(float8e5m2)", [2])], {}, {})["e"].itemsize == 1


def test_named_dimensions_default_to_one() -> None:
    assert common.make_feeds([X], {}, {})["x"].shape == (1, 2)


def test_a_file_fixes_the_dimensions_it_has(tmp_path: Path) -> None:
    array = np.ones((5, 2), np.float32)
    np.save(tmp_path / "x.npy", array)
    feeds = common.make_feeds([X, COUNT], {"x": str(tmp_path / "x.npy")}, {})
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
        common.make_feeds([argument], files, dims)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_array_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(InputError, match=r"input 'x': cannot read .*x\.npy: No such file"):
        common.read_array("x", str(path))
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"input 'x'.*x\.npy"):
        common.make_feeds([X], {"x": str(path)}, {})


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="input 'x'"):
        common.make_feeds([X], {"x": str(tmp_path / "x.npy")}, {})


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_json({"a": [float("nan"), float("-inf"), 1.5], "b": (1, None)})
    assert json.loads(capsys.readouterr().out) == {"a": ["nan", "-inf", 1.5], "b": [1, None]}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 us"), (1.5e-7, "150 ns"), (0, "0 ns")],
)
def test_durations(seconds: float, text: str) -> None:
    assert common.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5 GiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert common.format_bytes(count) == text


def test_made_up_inputs_are_positive_where_a_model_needs_that(tmp_path: Path) -> None:
    text = "g (float[N] x, float[N] b) => (float[N] y) { a = Log(x) y = Add(a, b) }"
    session = ostinato.InferenceSession(parse(text), cache_dir=None)
    feeds = common.feeds_of(session, {}, {"N": 20})
    assert (feeds["x"] > 0).all() and (feeds["b"] > 0).all()
    scalar = ostinato.InferenceSession(parse(text.replace("float[N] b", "float b")), cache_dir=None)
    assert isinstance(common.feeds_of(scalar, {}, {"N": 20})["b"], np.ndarray)
    given = {"b": str(tmp_path / "b.npy")}
    np.save(given["b"], -np.ones(20, np.float32))
    assert (common.feeds_of(session, given, {})["b"] == -1).all()
    plain = ostinato.InferenceSession(parse(text.replace("Log", "Tanh")), cache_dir=None)
    assert (common.feeds_of(plain, {}, {"N": 20})["x"] < 0).any()
