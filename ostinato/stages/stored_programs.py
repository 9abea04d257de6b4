"""Compiled programs in the cache, which models that differ in their weights alone share.

An entry holds the code and, in place of the constants, the place where each element comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set

from ostinato.codegen.artifact import Artifact
from ostinato.native.cache import Cache, machine_key
from ostinato.program.digest import counted, digest
from ostinato.program.laid import Contents, Watched, lay_out
from ostinato.program.nodes import Program
from ostinato.records import dataclass
from ostinato.stages.constants import Reader, Record, Writer
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
        reader = _Reader(entry.blobs, program.constants)
        records = enumerate(entry.header["constants"])
        constants = {f"{number}": reader.contents(record) for number, record in records}
        artifact = dataclasses.replace(stage.artifact, constants=lay_out(constants).data)
        return Code(artifact, constants, frozenset(counted(program)))

    def store(self, program: Program, code: Code) -> None:
        """Store the code of a program, which depends on no contents that do not count."""
        stage = NativeStage(dataclasses.replace(code.artifact, constants=b""))
        header, blobs = pack(CompiledModel((), (), (stage,)))
        records = [*map(_Writer(blobs).contents, code.constants.values())]
        self._cache.store(self._key(program), {"program": header, "constants": records}, blobs)

    def _key(self, program: Program) -> str:
        if id(program) not in self._keys:
            key = machine_key("program", digest(program), *self._facts)
            self._keys[id(program)] = program, key
        return self._keys[id(program)][1]


class _Writer(Writer):
    """Constants of the program stand for themselves.

    Computed ones are stored as they are: their sources are part of the digest, as all that was read
    is.
    """

    def given(self, constant: Watched) -> Record:
        return {"constant": constant.name}


class _Reader(Reader):
    """constants: of a program with the same digest."""

    def __init__(self, blobs: Sequence[Array], constants: Mapping[str, Contents]) -> None:
        super().__init__(blobs)
        self._constants = constants

    def contents(self, record: Record) -> Contents:
        if "constant" in record:
            return self._constants[record["constant"]]
        return super().contents(record)
