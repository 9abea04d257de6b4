"""Compiled models in the cache, which checkpoints of a network have in common.

An entry holds what was compiled for one set of weights and, in place of constants, how they are
made of weights (`model.origins`), so that nothing is compiled for other ones. It is found by the
structure of the file, and holds if the few weights that compiling looked at are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ostinato.native.arguments import numpy_dtype
from ostinato.native.cache import Cache
from ostinato.program.laid import Contents, Laid, Piece, Watched, Words, lay_out, whole
from ostinato.program.transformed import Transformed
from ostinato.protobuf.structure import Weight
from ostinato.reference.direct import Step
from ostinato.stages.packed import pack, unpack
from ostinato.stages.stage import Array, CompiledModel, NativeStage

if TYPE_CHECKING:
    from ostinato.model.origins import Origins
    from ostinato.program.nodes import Program
    from ostinato.stages.stored_programs import Code

Record: TypeAlias = "dict[str, Any]"


class Checkpoint:
    """A file that is being compiled.

    weights: those in the file. The compiler adds the rest: origins: what constants are made of.
    constants: of each native program, in their order, in the order of the programs. fixed: the
    weights for which alone the result holds, with their digests.
    """

    def __init__(self, weights: Sequence[Weight]) -> None:
        self.weights = tuple(weights)
        self.origins: Origins | None = None
        self.constants: tuple[Mapping[str, Contents], ...] = ()
        self.fixed: Mapping[int, str] = {}

    def finish(self, programs: Sequence[Program], codes: Sequence[Code]) -> None:
        """Take the result: native programs, and the code of each one.

        From here on only reports look at weights.
        """
        assert self.origins is not None
        for program, code in zip(programs, codes, strict=True):
            for name in code.read & program.constants.keys():
                _read(self.origins, program.constants[name])
        self.constants = tuple(code.constants for code in codes)
        self.fixed = {number: self.weights[number].digest() for number in self.origins.fixed()}


def _read(origins: Origins, contents: Contents) -> None:
    """Note that the elements of a constant of a program decide something."""
    if isinstance(contents, Laid):
        for source in contents.sources.values():
            _read(origins, source)
    elif isinstance(contents, Transformed):
        origins.read(contents.weights)
    elif isinstance(contents, np.ndarray):
        origins.read(contents)


def store(cache: Cache, key: str, compiled: CompiledModel, checkpoint: Checkpoint) -> None:
    """Store a compiled model for any weights but those that are fixed."""
    header, blobs = pack(compiled)
    try:
        record = _record(header, blobs, compiled, checkpoint)
    except _OtherTypeError:
        return
    cache.store(key, record, blobs)


class _OtherTypeError(Exception):
    """Raised where code reads the bytes of weights as another type."""


def _record(
    header: Sequence[Any],
    blobs: list[bytes | Array],
    compiled: CompiledModel,
    checkpoint: Checkpoint,
) -> Record:
    """The entry of a compiled model; blobs: gets constants that are made of no weights."""
    origins = checkpoint.origins
    assert origins is not None
    writer = Writer(origins, blobs)
    natives = [stage for stage in compiled.whole() if isinstance(stage, NativeStage)]
    programs = [
        {
            "blob": writer.place(stage.artifact.constants),
            "constants": [writer.contents(one) for one in constants.values()],
        }
        for stage, constants in zip(natives, checkpoint.constants, strict=True)
    ]
    return {
        "model": header,
        "programs": programs,
        "made": writer.made(),
        "equal": [[writer.array(one) for one in pair] for pair in origins.equal],
        "fixed": list(checkpoint.fixed.items()),
    }


def find(cache: Cache, key: str, weights: Sequence[Weight]) -> CompiledModel | None:
    """The compiled model for these weights; None where it has to be compiled."""
    entry = cache.load(key)
    if entry is None:
        return None
    record = entry.header
    if any(weights[number].digest() != digest for number, digest in record["fixed"]):
        return None
    reader = Reader([weight.array() for weight in weights], entry.blobs)
    if not all(map(reader.make, record["made"])) or not all(map(reader.equal, record["equal"])):
        return None
    blobs = list(entry.blobs)
    for program in record["programs"]:
        constants = map(reader.contents, program["constants"])
        laid = lay_out({f"{number}": one for number, one in enumerate(constants)})
        blobs[program["blob"]] = laid.data
    return unpack(record["model"], blobs)


class Writer:
    """Records of constants. blobs: gets those that are made of no weights."""

    def __init__(self, origins: Origins, blobs: list[bytes | Array]) -> None:
        self._origins, self._blobs = origins, blobs

    def place(self, constants: bytes | Array) -> int:
        """Leave the constants of a program out; returns the number of their blob."""
        (number,) = (i for i, blob in enumerate(self._blobs) if blob is constants)
        self._blobs[number] = b""
        return number

    def made(self) -> list[Record]:
        """How arrays were made of others, or the numbers of weights, in their order."""
        return [
            {"weight": source}
            if isinstance(source, int)
            else {
                "op": source.op_type,
                "attributes": dict(source.attributes),
                "moves": source.moves,
                "operands": [None if one is None else self.array(one) for one in source.operands],
            }
            for source in self._origins.sources
        ]

    def contents(self, contents: Contents) -> Record:
        """Record what a constant is made of."""
        if isinstance(contents, Laid):
            sources = {name: self.contents(source) for name, source in contents.sources.items()}
            pieces = [astuple(piece) for piece in contents.pieces]
            sizes = {"dtype": contents.dtype.name, "size": contents.size}
            return sizes | {"pieces": pieces, "sources": sources}
        if isinstance(contents, Words):
            return {"words": contents.dtype.name, "parts": self.contents(contents.parts)}
        if isinstance(contents, Watched):
            return self.contents(contents.contents)
        if isinstance(contents, Transformed):
            how = contents.taps, contents.together, contents.is_transposed
            return {"weights": self.array(contents.weights), "how": how}
        return self.array(contents)

    def array(self, array: Array) -> Record:
        """Record an array: a view of one under observation, or its elements."""
        found = self._origins.locate(array)
        if found is not None:
            position, start = found
            if self._origins.arrays[position].dtype != array.dtype:
                raise _OtherTypeError
            return {"of": position, "view": astuple(whole(array, "", start))}
        flat = np.ascontiguousarray(array).reshape(-1)
        self._blobs.append(flat.view(np.uint8))
        number = len(self._blobs) - 1
        return {"blob": number, "dtype": array.dtype.name, "shape": array.shape}


class Reader:
    """Constants from their records. weights: of another file of the same structure, flat."""

    def __init__(self, weights: Sequence[Array], blobs: Sequence[Array]) -> None:
        self._weights, self._blobs = weights, blobs
        self._made: list[Array] = []

    def make(self, record: Record) -> bool:
        """Make the next array; whether it is what compiling would make."""
        if "weight" in record:
            self._made.append(self._weights[record["weight"]])
            return True
        operands = [None if one is None else self._array(one) for one in record["operands"]]
        result = Step(record["op"], record["attributes"], record["moves"]).run(operands)
        if result is not None:
            self._made.append(np.ascontiguousarray(result).reshape(-1))
        return result is not None

    def equal(self, records: Sequence[Record]) -> bool:
        """Whether arrays have the same bytes."""
        first, second = (self._array(record).tobytes() for record in records)
        return first == second

    def contents(self, record: Record) -> Contents:
        """The constant of a record."""
        if "words" in record:
            parts = self.contents(record["parts"])
            assert isinstance(parts, Laid)
            return Words(parts, numpy_dtype(record["words"]))
        if "pieces" in record:
            sources = {name: self.contents(one) for name, one in record["sources"].items()}
            pieces = tuple(map(_piece, record["pieces"]))
            return Laid(numpy_dtype(record["dtype"]), record["size"], pieces, sources)
        if "weights" in record:
            taps, together, is_transposed = record["how"]
            phases = tuple(tuple(map(tuple, axis)) for axis in taps)
            weights = self._array(record["weights"])
            return Transformed(weights, phases, tuple(together), is_transposed)
        return self._array(record)

    def _array(self, record: Record) -> Array:
        if "blob" in record:
            flat = self._blobs[record["blob"]].view(numpy_dtype(record["dtype"]))
            return flat.reshape(record["shape"])
        return _piece(record["view"]).of(self._made[record["of"]])


def _piece(fields: Sequence[Any]) -> Piece:
    source, start, strides, place, steps, shape = fields
    return Piece(source, start, tuple(strides), place, tuple(steps), tuple(shape))
