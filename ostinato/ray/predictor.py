"""Rows of a corpus through a model, in batches of rows that have one shape."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ostinato.errors import InputError, OstinatoError
from ostinato.options import Options
from ostinato.runtime.session import InferenceSession, NodeArg
from ostinato.serve.protocol import DATATYPES, named

Array = np.ndarray[Any, Any]
Batch = dict[str, Array]


class _Piece(NamedTuple):
    """Rows that one call took, in order, and its outputs with the rows in front."""

    rows: list[int]
    values: list[Array]


class Predictor:
    """A model for `ray.data.Dataset.map_batches`, which calls it with a dict of columns.

        dataset.map_batches(Predictor, fn_constructor_args=("model.onnx",),
                            compute=ray.data.ActorPoolStrategy(size=2))

    Rows have no batch axis: it is put where the model has its dimension `batch`. Rows of unlike
    shapes, such as signals of several lengths, are grouped by shape, one call for each; their
    results have the bits that they would have alone. Columns that are no inputs are handed on.

    model: path or bytes. A path must exist on every node; bytes are sent to each actor. It is
        compiled once per node: whoever comes later waits, and finds it in the cache.
    inputs: the column of an input; default: the one of its name.
    states: inputs that begin with zeros in every row, and the outputs that are their next values,
        which are left out.
    outputs: those to compute; default: all that are no states.
    batch: the dimension along which rows are put together; default: the only one that all inputs
        have. Without one each row is a call of its own, and is the input as it stands.
    errors: the name of a column for what went wrong with a row, which then has outputs without
        elements; rows that have a text there already are skipped. Without it the first error is
        raised.

    Raises `InputError` for names that the model does not have; `__call__` raises it for columns
    that are missing.
    """

    def __init__(
        self,
        model: str | Path | bytes,
        inputs: Mapping[str, str] | None = None,
        states: Mapping[str, str] | None = None,
        outputs: Sequence[str] | None = None,
        batch: str | None = None,
        errors: str | None = None,
        options: Options | None = None,
    ) -> None:
        options = options or Options()
        with first_on_this_node(model, options):
            self.session = InferenceSession(model, options)
        self._errors = errors
        states = dict(states or {})
        arguments = {argument.name: argument for argument in self.session.get_inputs()}
        given = {argument.name: argument for argument in self.session.get_outputs()}
        _check("states", states, arguments)
        _check("states", states.values(), given)
        _check("inputs", inputs or {}, arguments)
        _check("outputs", outputs or (), given)
        self._fed = {n: a for n, a in arguments.items() if n not in states}
        self._states = {name: arguments[name] for name in states}
        self._columns = {name: (inputs or {}).get(name, name) for name in self._fed}
        self._outputs = [
            given[name] for name in (outputs or [n for n in given if n not in states.values()])
        ]
        self.batch = _batch_dimension(arguments.values(), batch)

    def __call__(self, batch: Batch) -> Batch:
        """Results of a batch of rows, in their order."""
        for name, column in self._columns.items():
            if column not in batch:
                raise InputError(
                    f"input {name!r}: no column {column!r}, there are {', '.join(batch)}; say "
                    "which it is with `inputs`"
                )
        count = len(next(iter(batch.values())))
        texts = [""] * count
        if self._errors in batch:
            texts = [str(text or "") for text in batch[self._errors]]
        pieces: list[_Piece] = []
        for rows in self._groups(batch, [i for i in range(count) if not texts[i]]):
            pieces += self._score(batch, rows, texts)
        used = {self._errors, *self._columns.values()}
        scored: Batch = {name: column for name, column in batch.items() if name not in used}
        for position, output in enumerate(self._outputs):
            scored[output.name] = _column(pieces, position, count)
        if self._errors is not None:
            scored[self._errors] = np.array(texts, object)
        return scored

    def _groups(self, batch: Batch, rows: Sequence[int]) -> list[list[int]]:
        """Rows that one call takes."""
        if self.batch is None:
            return [[row] for row in rows]
        columns = [batch[column] for column in self._columns.values()]
        if all(_is_array(column) for column in columns):
            return [list(rows)] if rows else []
        groups: dict[Any, list[int]] = {}
        for row in rows:
            key = tuple(np.shape(column[row]) for column in columns)
            groups.setdefault(key, []).append(row)
        return list(groups.values())

    def _score(self, batch: Batch, rows: list[int], texts: list[str]) -> list[_Piece]:
        """The results of these rows; fills in what went wrong."""
        try:
            return [_Piece(rows, self._run(batch, rows))]
        except (OstinatoError, ValueError, TypeError) as error:
            if self._errors is None:
                raise
            if len(rows) == 1:
                texts[rows[0]] = str(error)
                return []
            # One row may have spoilt it for the others.
            return [piece for row in rows for piece in self._score(batch, [row], texts)]

    def _run(self, batch: Batch, rows: list[int]) -> list[Array]:
        """The outputs of these rows, with the rows in front."""
        feeds: dict[str, Array] = {}
        for name, column in self._columns.items():
            feeds[name] = _fed(batch[column], rows, self._axis(self._fed[name]))
        sizes = {str(self.batch): len(rows)}
        for name, argument in self._fed.items():
            for dim, size in zip(argument.shape or (), feeds[name].shape, strict=False):
                if isinstance(dim, str):
                    sizes[dim] = size
        for name, argument in self._states.items():
            shape = [d if isinstance(d, int) else sizes.get(d, 1) for d in argument.shape or ()]
            feeds[name] = np.zeros(shape, DATATYPES[named(argument.type)])
        values = self.session.run([output.name for output in self._outputs], feeds)
        return [
            value[None] if axis is None else np.moveaxis(value, axis, 0)
            for value, axis in zip(values, map(self._axis, self._outputs), strict=True)
        ]

    def _axis(self, argument: NodeArg) -> int | None:
        """The axis along which rows of an input or output are joined, None where each is alone."""
        if self.batch is None:
            return None
        if self.batch not in (argument.shape or ()):
            raise InputError(
                f"{argument.name!r} {argument.shape} has no dimension {self.batch!r} for the rows; "
                "name the outputs that have one with `outputs`"
            )
        return (argument.shape or []).index(self.batch)


def first_on_this_node(model: str | Path | bytes, options: Options) -> Any:
    """A lock that lets one process compile, so that the others find the model in the cache."""
    if options.cache_dir is None:
        return nullcontext()
    from filelock import FileLock

    name = model if isinstance(model, bytes) else str(Path(model).resolve()).encode()
    folder = Path(options.cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"ray-{hashlib.sha256(name).hexdigest()[:16]}.lock")


def _check(what: str, names: Any, known: Mapping[str, object]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{what}: the model has no {name!r}, it has {', '.join(known)}")


def _batch_dimension(arguments: Any, batch: str | None) -> str | None:
    """The dimension that all inputs have, None where there is none or several."""
    shapes = [[d for d in argument.shape or () if isinstance(d, str)] for argument in arguments]
    common = [name for name in shapes[0] if all(name in shape for shape in shapes)]
    if batch is not None and batch not in common:
        raise InputError(f"batch={batch!r} is no dimension of every input: {shapes}")
    if batch is None and len(common) > 1:
        raise InputError(f"every input has the dimensions {common}: say which counts rows: batch=")
    return batch or (common[0] if common else None)


def _is_array(column: Array) -> bool:
    """Whether a column is one array, whose rows have one shape."""
    return isinstance(column, np.ndarray) and bool(column.dtype != object)


def _fed(column: Array, rows: Sequence[int], axis: int | None) -> Array:
    """These rows of a column, put together along the axis; the only one as it is for None.

    All rows of a column that is one array are that array, which nothing copies.
    """
    if axis is None:
        return np.asarray(column[rows[0]])
    if _is_array(column):
        taken = column if len(rows) == len(column) else column[list(rows)]
        return np.moveaxis(taken, 0, axis)
    return np.stack([np.asarray(column[row]) for row in rows], axis)


def _column(pieces: Sequence[_Piece], position: int, count: int) -> Array:
    """A column of a batch: one array where all rows have one shape, else one of arrays."""
    if not pieces:
        return np.zeros((count, 0), np.float32)
    first = pieces[0].values[position]
    if len(pieces[0].rows) == count:
        return first
    rows = [np.zeros((0,) * (first.ndim - 1), first.dtype)] * count
    for piece in pieces:
        for place, row in enumerate(piece.rows):
            rows[row] = piece.values[position][place]
    if all(row.shape == rows[0].shape for row in rows):
        return np.stack(rows)
    column = np.empty(count, object)
    for place, value in enumerate(rows):
        column[place] = value
    return column
