"""Compiled programs in the cache, which models that differ in their weights alone share.

An entry holds the code and, in place of the constants, the place where each element comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ostinato.codegen.artifact import Artifact
from ostinato.native.arguments import numpy_dtype
from ostinato.native.cache import Cache, machine_key
from ostinato.program.digest import counted, digest
from ostinato.program.laid import Contents, Laid, Piece, Watched, Words, elements, lay_out
from ostinato.program.nodes import Program
from ostinato.records import dataclass
from ostinato.stages.packed import pack, unpack
from ostinato.stages.stage import Array, CompiledModel, NativeStage


@dataclass(frozen=True)
class Code:
    """What is made of a program.

    constants: those that the code reads, in their order. read: those of the program whose contents
    it depends on.
    """

    artifact: Artifact
    constants: Mapping[str, Contents]
    read: Set[str]


class StoredPrograms:
    """Artifacts of programs, by digest.

    facts: all else that decides which code is made of a program.
    """

    def __init__(self, cache: Cache, *facts: str) -> None:
        self._cache, self._facts = cache, facts
        # Keyed by identity; the programs are held so that no other one takes the identity of one.
        self._keys: dict[int, tuple[Program, str]] = {}

    def find(self, program: Program) -> Code | None:
        """The stored code, with the constants of this program; None where there is none."""
        entry = self._cache.load(self._key(program))
        if entry is None:
            return None
        (stage,) = unpack(entry.header["program"], entry.blobs).stages
        assert isinstance(stage, NativeStage)
        constants = {
            f"{number}": _unpacked(record, program.constants, entry.blobs)
            for number, record in enumerate(entry.header["constants"])
        }
        artifact = dataclasses.replace(stage.artifact, constants=lay_out(constants).data)
        return Code(artifact, constants, frozenset(counted(program)))

    def store(self, program: Program, code: Code) -> None:
        """Store the code of a program, which depends on no contents that do not count."""
        stage = NativeStage(dataclasses.replace(code.artifact, constants=b""))
        header, blobs = pack(CompiledModel((), (), (stage,)))
        records = [_packed(name, one, program, blobs) for name, one in code.constants.items()]
        self._cache.store(self._key(program), {"program": header, "constants": records}, blobs)

    def _key(self, program: Program) -> str:
        if id(program) not in self._keys:
            key = machine_key("program", digest(program), *self._facts)
            self._keys[id(program)] = program, key
        return self._keys[id(program)][1]


def _packed(
    name: str, constant: Contents, program: Program, blobs: list[bytes | Array]
) -> dict[str, Any]:
    """Record how a constant is made of those of the program.

    Computed constants are stored as they are: their sources are part of the digest, as all that
    was read is.
    """
    record = {"dtype": constant.dtype.name, "size": constant.size}
    if isinstance(constant, Words):
        return record | {"parts": _packed(name, constant.parts, program, blobs)}
    if isinstance(constant, Laid):
        pieces = [dataclasses.astuple(piece) for piece in constant.pieces]
        others = {n: c for n, c in constant.sources.items() if n not in program.constants}
        made = {n: _packed(n, c, program, blobs) for n, c in others.items()}
        return record | {"pieces": pieces, "made": made}
    if isinstance(constant, Watched):
        whole = Piece(constant.name, 0, (1,), 0, (1,), (constant.size,))
        return record | {"pieces": [dataclasses.astuple(whole)], "made": {}}
    blobs.append(elements(constant))
    return record | {"blob": len(blobs) - 1}


def _unpacked(
    record: Mapping[str, Any], sources: Mapping[str, Contents], blobs: Sequence[Array]
) -> Contents:
    dtype = numpy_dtype(record["dtype"])
    if "parts" in record:
        parts = _unpacked(record["parts"], sources, blobs)
        assert isinstance(parts, Laid)
        return Words(parts, dtype)
    if "blob" in record:
        contents: Array = blobs[record["blob"]].view(dtype)
        return contents
    pieces = tuple(
        Piece(source, start, tuple(strides), place, tuple(steps), tuple(shape))
        for source, start, strides, place, steps, shape in record["pieces"]
    )
    made = {name: _unpacked(one, sources, blobs) for name, one in record["made"].items()}
    every = {**sources, **made}
    taken = {piece.source: every[piece.source] for piece in pieces}
    return Laid(dtype, record["size"], pieces, taken)
