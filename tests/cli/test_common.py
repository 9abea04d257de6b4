import io
import json

import pytest
from rich.console import Console

from ostinato.cli import common
from ostinato.errors import OptionError


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
