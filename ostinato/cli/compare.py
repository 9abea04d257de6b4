"""`ostinato compare`: this compiler's outputs against those of another runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.cli.feeds import is_float, open_fed
from ostinato.cli.witness import Witness, outputs_of

if TYPE_CHECKING:
    import numpy as np


def compare(
    model: common.ModelPath,
    vs: Annotated[Witness, typer.Option("--vs", help="Whose outputs to compare with.")] = (
        "onnxruntime"
    ),
    input: common.InputFile = None,
    dim: common.Dim = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="ERROR", min=0.0, help="Largest |a - b| / (1 + |b|) that passes."
        ),
    ] = 1e-5,
    disable: common.Disable = None,
    set: common.Set = None,
    no_fallback: common.NoFallback = False,
    no_cache: common.NoCache = False,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Compare outputs with another runtime; exit code 1 where they differ too much."""
    with common.error_line(debug):
        options = common.make_options(disable, no_fallback, no_cache, fields=set)
        session, feeds = open_fed(model, options, input, dim)
        with common.status(f"Running {model.name} here and on {vs}"):
            expected = outputs_of(vs, model, feeds)
            ours = session.run(None, feeds)
    names = [output.name for output in session.get_outputs()]
    rows = [
        {"name": name, **difference(a, b, tolerance)}
        for name, a, b in zip(names, ours, expected, strict=True)
    ]
    if json:
        common.print_json({"model": str(model), "vs": vs, "tolerance": tolerance, "outputs": rows})
    else:
        _print(f"{model.name}: ostinato against {vs}, tolerance {tolerance:g}", rows)
    wrong = [row for row in rows if not row["ok"]]
    if wrong:
        common.fail([f"output {row['name']!r}: {row['reason']}" for row in wrong])


def difference(ours: Any, expected: Any, tolerance: float) -> dict[str, Any]:
    """Largest error of one output, absolute and as it is tested, whether it passes, else why not.

    It passes when type and shape agree and |a - b| / (1 + |b|), "max_scaled", is nowhere above the
    tolerance. NaN equals NaN and an infinity itself. Sequences and maps pass when they have the
    same places and keys, and what is there passes; the row is that of the worst one.
    """
    if not isinstance(expected, (list, tuple, Mapping)):
        return _difference(ours, expected, tolerance)
    found, wanted = dict(_elements(ours)), dict(_elements(expected))
    row: dict[str, Any] = {"max_abs": None, "max_scaled": None, "ok": True, "reason": ""}
    if found.keys() != wanted.keys():
        place = min(found.keys() ^ wanted.keys())
        side = "only here" if place in found else "only there"
        return {**row, "ok": False, "reason": f"element {place} is {side}"}
    for place, value in wanted.items():
        each = _difference(found[place], value, tolerance)
        if not each["ok"] and row["ok"]:
            row |= {"ok": False, "reason": f"element {place}: {each['reason']}"}
        for key in ("max_abs", "max_scaled"):
            if each[key] is not None:
                row[key] = max(each[key], row[key] or 0.0)
    return row


def _elements(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors, numbers and texts in a value, each with its place, such as "[0]['cat']".

    What is empty is one element, so that it counts.
    """
    if isinstance(value, Mapping):
        inner = [(repr(key), value[key]) for key in value]
    elif isinstance(value, (list, tuple)):
        inner = [(str(index), item) for index, item in enumerate(value)]
    else:
        yield place, value
        return
    if not inner:
        yield f"{place}[]", 0
    for key, item in inner:
        yield from _elements(item, f"{place}[{key}]")


def _difference(ours: Any, expected: Any, tolerance: float) -> dict[str, Any]:
    import numpy as np

    a, b = np.asarray(ours), np.asarray(expected)
    row: dict[str, Any] = {"max_abs": None, "max_scaled": None, "ok": False, "reason": ""}
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        found, wanted = (f"{x.dtype}{common.format_shape(x.shape)}" for x in (a, b))
        return {**row, "reason": f"expected {wanted}, got {found}"}
    if a.dtype.kind not in "biuf" and not is_float(a.dtype):
        same = bool(np.array_equal(a, b))
        return {**row, "ok": same, "reason": "" if same else "values differ"}
    error, magnitude = _errors(a, b)
    row["max_abs"] = float(error.max(initial=0.0))
    row["max_scaled"] = scaled = float((error / (1 + magnitude)).max(initial=0.0))
    if scaled <= tolerance:
        return {**row, "ok": True}
    return {**row, "reason": f"|a - b| / (1 + |b|) is {scaled:.3g}, tolerance {tolerance:g}"}


def _errors(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(|a - b|, |b|) in float64, 0 where both are the same NaN or infinity, inf where one is."""
    import numpy as np

    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    finite = np.isfinite(x) & np.isfinite(y)
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.where(finite, np.abs(x - y), np.inf))
    return error, np.where(np.isfinite(y), np.abs(y), 0.0)


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    table = common.table(title, "output", "max |a - b|", "max |a - b| / (1 + |b|)", "")
    for row in rows:
        figures = ("-" if row[k] is None else f"{row[k]:.3g}" for k in ("max_abs", "max_scaled"))
        table.add_row(row["name"], *figures, "ok" if row["ok"] else "differs")
    common.show(table)
