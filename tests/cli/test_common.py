import io
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console

from ostinato.cli import common
from ostinato.errors import OptionError


def test_pairs_split_at_the_last_equals_sign() -> None:
    assert common.parse_pairs("--input", ["a=b=c.npy", "d=e"]) == {"a=b": "c.npy", "d": "e"}
    assert common.parse_pairs("--input", None) == {}


def test_a_name_has_one_value() -> None:
    assert common.parse_pairs("--dim", ["T=1", "T=1"]) == {"T": "1"}
    with pytest.raises(OptionError, match="--dim: 'T' has two values, 1 and 2"):
        common.parse_pairs("--dim", ["T=1", "T=2"])


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


def test_columns_are_closer_together_before_text_is_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("encoder/layer", "123.4 us", "1.5 KiB")
    for width, line in ((120, "  encoder/layer   123.4 us   1.5 KiB  "), (32, "  ".join(row))):
        monkeypatch.setenv("COLUMNS", str(width))
        table = common.table("T", "node", "time", "bytes")
        table.add_row(*row)
        common.show(table)
        lines = capsys.readouterr().out.splitlines()
        assert line in lines and not lines[-1].strip()


@pytest.mark.parametrize("width", [1, 5, 20])
def test_every_column_has_room_for_a_word(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"c{i}" for i in range(9)]
    table = common.table("T", *names)
    table.add_row(*(f"v{i}" for i in range(9)))
    common.show(table)
    words = capsys.readouterr().out.split()
    assert set(names) <= {*words} and {f"v{i}" for i in range(9)} <= {*words}


def test_kernels_have_short_names_in_narrow_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = ("gru/body/x", "gru/body/y:Identity")
    for width, name in ((160, "gru/body/y:Identity and 1 more"), (80, "y:Identity and 1 more")):
        monkeypatch.setenv("COLUMNS", str(width))
        assert common.kernel_title(nodes) == name


def test_a_closed_pipe_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), common.error_line(False):
        raise BrokenPipeError
    assert not capsys.readouterr().err


def test_files_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    common.require_writable(None, tmp_path / "x.onnx", Path("x.onnx"))
    for path, reason in (
        (tmp_path / "a" / "x", "there is no folder"),
        (tmp_path, "it is a folder"),
    ):
        with pytest.raises(OptionError, match=f"{path}: {reason}"):
            common.require_writable(None, path)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_errors_are_red_where_colours_are_wanted(
    is_wanted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    if is_wanted:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(typer.Exit), common.error_line(False):
        raise OptionError("threads=0")
    error = capsys.readouterr().err
    assert "error: threads=0" in error and ("\x1b[31m" in error) == is_wanted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (768, "768"), (56_448, "56.4 k"), (1e6, "1 M"), (2.5e13, "25 T")]
)
def test_counts(count: float, text: str) -> None:
    assert common.format_count(count) == text


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
