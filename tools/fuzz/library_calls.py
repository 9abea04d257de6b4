"""Whole calls of C libraries of random graphs and loops: the bits of the session."""

from __future__ import annotations

import random as randoms
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ostinato
from ostinato import OstinatoError
from ostinato.aot.build import make_library
from tests.aot.caller import Caller, linked, pointer, sizes_of, values_of
from tools.fuzz.graphs import Outcome, difference, same_bits
from tools.fuzz.guarded import Guards
from tools.fuzz.text import Array

# What names of outputs begin with that tell the shape of another one.
_SHAPE, _RANK = "shape of ", "sizes_of_"


def call(model: onnx.ModelProto, feeds: dict[str, Array], seed: int) -> Outcome:
    """Build a library and compare a call, with arrays beside pages that cannot be touched."""
    session = ostinato.InferenceSession(model, cache_dir=None)
    try:
        wanted = session.run(None, dict(feeds))
        is_interpreted = bool(session.report().interpreted)
        library = make_library(model, "host", None, "model", None, "inside", {})
    except OstinatoError as error:
        return Outcome("refused", str(error))
    guards = Guards(randoms.Random(seed))
    interface = library.interface
    if any(tensor.name.startswith(_RANK) for tensor in interface.outputs):
        return Outcome("refused", "an output of several ranks")
    given = [guards.copy(feeds[tensor.name]) for tensor in interface.inputs]
    known = sizes_of(interface.inputs, given) | values_of(library, given)
    with tempfile.TemporaryDirectory() as folder:
        caller = Caller(library, linked(library, Path(folder)), known)
        for _ in range(2):
            made = [guards.like(array) for array in caller._outputs(caller.sizes | known)]
            sizes = caller._sizes(interface.run_sizes, known)
            code = caller.call("run", caller.object, *sizes, *map(pointer, [*given, *made]))
            if code:
                return Outcome("differ", f"code {code}: {caller.text(code)}")
            named = dict(zip((tensor.name for tensor in interface.outputs), made, strict=True))
            got = dict(_shaped(named))
            expected = _flat([o.name for o in session.get_outputs()], wanted, got)
            for name, array in expected:
                if name not in got:
                    continue
                # Interpreted nodes, which may be native in a library, have other bits.
                is_near = is_interpreted and not difference([got[name]], [array], 1e-4)
                if not same_bits([got[name]], [array]) and not is_near:
                    return Outcome("differ", f"{name}: {difference([got[name]], [array])}")
        caller.close()
    return Outcome("agree, a call")


def _shaped(named: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    """Outputs without memory behind their elements."""
    for name, array in named.items():
        shape = named.get(_SHAPE + name)
        if shape is None:
            yield name, array
            continue
        sizes = [int(n) for n in shape]
        yield name, array.reshape(-1)[: int(np.prod(sizes))].reshape(sizes)


def _flat(
    names: list[str], results: list[Any], got: dict[str, Array]
) -> Iterator[tuple[str, Array]]:
    """The tensors of results, by the names that a library gives them.

    A sequence of which only a call tells the length is one tensor, whose rows its tensors are; if
    these differ in size along an axis, they are joined along it, and a second tensor has the ends.
    """
    for name, result in zip(names, results, strict=True):
        if not isinstance(result, list):
            yield name, result
        elif result and got[f"{name}[0]"].ndim > result[0].ndim:
            yield f"{name}[0]", np.stack(result)
        elif result and (joined := _joined(result, got[f"{name}[0]"], got.get(f"{name}[1]"))):
            yield from ((f"{name}[{i}]", array) for i, array in enumerate(joined))
        else:
            yield from ((f"{name}[{i}]", piece) for i, piece in enumerate(result))


def _joined(pieces: list[Array], rows: Array, borders: Array | None) -> tuple[Array, Array] | None:
    """The pieces as rows, and 0 and the end of each; None if `rows` and `borders` are others."""
    if borders is None or borders.shape != (len(pieces) + 1,) or borders.dtype != np.int64:
        return None
    for axis in range(pieces[0].ndim):
        turned = [np.moveaxis(piece, axis, 0) for piece in pieces]
        if borders[-1] == len(rows) and turned[0].shape[1:] == rows.shape[1:]:
            return np.concatenate(turned), np.cumsum([0, *map(len, turned)])
    return None
