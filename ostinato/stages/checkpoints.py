"""Compiled models in the cache, which checkpoints of a network have in common.

An entry holds what was compiled for one set of weights and, in place of constants, how they are
made of weights (`model.origins`), so that nothing is compiled for other ones. It is found by the
structure of the file, and holds if the few weights that compiling looked at are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.native.cache import Cache
from ostinato.program.laid import Contents, Laid, lay_out, whole
from ostinato.program.transformed import Transformed
from ostinato.protobuf.structure import Weight
from ostinato.reference.direct import Step
from ostinato.stages import constants
from ostinato.stages.constants import Record
from ostinato.stages.packed import pack, unpack
from ostinato.stages.stage import Array, CompiledModel, NativeStage

if TYPE_CHECKING:
    from ostinato.model.origins import Origins
    from ostinato.program.nodes import Program
    from ostinato.stages.stored_programs import Code


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
            "constants": [*map(writer.contents, made.values())],
        }
        for stage, made in zip(natives, checkpoint.constants, strict=True)
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
        records = enumerate(program["constants"])
        laid = lay_out({f"{number}": reader.contents(record) for number, record in records})
        blobs[program["blob"]] = laid.data
    return unpack(record["model"], blobs)


class Writer(constants.Writer):
    """Constants are made of arrays under observation, by their numbers."""

    def __init__(self, origins: Origins, blobs: list[bytes | Array]) -> None:
        super().__init__(blobs)
        self._origins = origins

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

    def array(self, array: Array) -> Record:
        """Record a view of an array under observation, or the elements of another one."""
        found = self._origins.locate(array)
        if found is None:
            return super().array(array)
        position, start = found
        if self._origins.arrays[position].dtype != array.dtype:
            raise _OtherTypeError
        return {"of": position, "view": astuple(whole(array, "", start))}


class Reader(constants.Reader):
    """weights: of another file of the same structure, flat."""

    def __init__(self, weights: Sequence[Array], blobs: Sequence[Array]) -> None:
        super().__init__(blobs)
        self._weights = weights
        self._made: list[Array] = []

    def make(self, record: Record) -> bool:
        """Make the next array; whether it is what compiling would make."""
        if "weight" in record:
            self._made.append(self._weights[record["weight"]])
            return True
        operands = [None if one is None else self.array(one) for one in record["operands"]]
        result = Step(record["op"], record["attributes"], record["moves"]).run(operands)
        if result is not None:
            self._made.append(np.ascontiguousarray(result).reshape(-1))
        return result is not None

    def equal(self, records: Sequence[Record]) -> bool:
        """Whether arrays have the same bytes."""
        first, second = (self.array(record).tobytes() for record in records)
        return first == second

    def array(self, record: Record) -> Array:
        """The array of a record."""
        if "of" in record:
            return constants.piece(record["view"]).of(self._made[record["of"]])
        return super().array(record)
