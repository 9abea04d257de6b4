"""Compile one model in many ways, and what the ways have in common once."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import ostinato.compiler
from ostinato.guards import Guards
from ostinato.machine.record import Machine
from ostinato.model.load import load_model
from ostinato.ops.core.together import Together
from ostinato.optimization import run_all_passes
from ostinato.passes.simplify.constant_evaluation import constant_evaluation
from ostinato.program.conditions import guards
from ostinato.program.laid import Contents
from ostinato.program.nodes import Program
from ostinato.program.verify import verify
from ostinato.schedule.pipeline import SCHEDULE_PASSES, Scheduled
from ostinato.stages.partition import Partition, Segment, partition


class OneModel:
    """A model behind all graph passes: what a session gave it to, inside of `watched`, or our own.

    programs: of its parts, one after the other, for any sizes; none if they are not all of it.
    compiled: those that sessions compile: with guards, where the model has some, and without.
    constants: outputs, and what programs read, that are the same in every run.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._given = model
        self._simplified: ir.Model | None = None
        self._partitions: dict[Any, Partition] = {}
        self._verified: list[Program] = []
        # By what they were made of, and where they were made, all that passes gave.
        self._made: dict[Any, Scheduled] = {}
        self._known: defaultdict[str, list[Scheduled]] = defaultdict(list)

    @property
    def _model(self) -> ir.Model:
        if self._simplified is None:
            model = load_model(self._given)
            run_all_passes(model)
            self._simplified = model
        return self._simplified

    @cached_property
    def _programs(self) -> tuple[list[Program], list[Program]]:
        """`programs` and `compiled`."""
        compiled = programs = self._whole(Guards.LIKELY)
        if any(guards(program) for program in compiled):
            programs = self._whole(Guards.NONE)
            compiled = [*compiled, *programs] if programs else []
        return programs, compiled

    @property
    def programs(self) -> list[Program]:
        return self._programs[0]

    @property
    def constants(self) -> Mapping[str, Any]:
        guarded = Guards.NONE if len(self.compiled) > len(self.programs) else Guards.LIKELY
        return self._parts(guarded).constants

    @property
    def compiled(self) -> list[Program]:
        return self._programs[1]

    def _whole(self, guarded: Guards) -> list[Program]:
        """The programs that are all of the model, or none."""
        parts = self._parts(guarded).parts
        programs = [part.program for part in parts if isinstance(part, Segment)]
        return programs if len(programs) == len(parts) else []

    def _parts(self, guarded: Guards) -> Partition:
        return self.partition(None, True, guarded, 0, None, False, Together())

    def partition(self, _: Any, fallback: bool = True, *rest: Any, **known: Any) -> Partition:
        """What `partition` gives for the model."""
        # Each session brings a `Together` of its own, which finds the same; so does what is known.
        key = fallback, *(Together if isinstance(one, Together) else one for one in rest)
        if key not in self._partitions:
            self._partitions[key] = partition(self._model, fallback, *rest, **known)
        return self._partitions[key]

    def _verify(self, program: Program) -> None:
        """What `verify` does, once for each program."""
        if not any(program is other for other in self._verified):
            verify(program)
            self._verified.append(program)

    def schedule(
        self, program: Program, machine: Machine, disable: Collection[str] = (), threads: int = 1
    ) -> Scheduled:
        """What `schedule` gives, from the first pass on that makes a difference."""
        start = id(program), machine, threads
        state = self._made.setdefault(start, Scheduled(program, machine, threads))
        for item in SCHEDULE_PASSES:
            left_out = item.name in disable and not item.needed
            step = item.instead if left_out else item.function
            if step is None:
                continue
            key = id(state), item.name, left_out
            if key not in self._made:
                self._made[key] = self._same(item.name, state, step(state))
            state = self._made[key]
        return state

    def _same(self, name: str, before: Scheduled, state: Scheduled) -> Scheduled:
        """The state itself, or an equal one: that before the pass, or where others have led."""
        if state is before:
            return before
        for other in (before, *self._known[name]):
            if _are_equal(other, state):
                return other
        self._known[name].append(state)
        return state

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What a session of the model makes of it inside, if it compiles it, is kept.

        Constants that it computes by code are left for the programs.
        """

        def run_passes(model: ir.Model, *rest: Any) -> dict[str, int]:
            changes = run_all_passes(model, *rest)
            if not changes[constant_evaluation.__name__]:
                self._simplified = model
            return changes

        def cut(model: ir.Model, *rest: Any, **known: Any) -> Partition:
            ours = model is self._simplified
            return (self.partition if ours else partition)(model, *rest, **known)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ostinato.compiler, "run_all_passes", run_passes)
            patch.setattr(ostinato.compiler, "partition", cut)
            patch.setattr(ostinato.compiler, "schedule", self.schedule)
            yield

    @contextmanager
    def compiled_from_here(self) -> Iterator[None]:
        """Sessions of the model, inside, begin with the graph that all passes gave.

        Those of which a node is compiled when it is called begin with the file.
        """
        if not self.programs:
            yield
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ostinato.compiler, "load_model", lambda _: self._model)
            patch.setattr(ostinato.compiler, "run_all_passes", lambda *_: {})
            patch.setattr(ostinato.compiler, "partition", self.partition)
            patch.setattr(ostinato.compiler, "schedule", self.schedule)
            patch.setattr(ostinato.compiler, "verify", self._verify)
            yield


def _are_equal(a: Scheduled, b: Scheduled) -> bool:
    """Whether both say the same; buffers, which hold arrays, count by identity."""
    one, other = a.program, b.program
    if one.body != other.body or one.buffers.keys() != other.buffers.keys():
        return False
    if any(one.buffers[name] is not other.buffers[name] for name in one.buffers):
        return False
    if one.constants.keys() != other.constants.keys():
        return False
    if not all(_are_same(one.constants[name], other.constants[name]) for name in one.constants):
        return False
    rest = [f.name for f in dataclasses.fields(Program) if f.name not in ("buffers", "constants")]
    if any(getattr(one, name) != getattr(other, name) for name in rest):
        return False
    others = [f.name for f in dataclasses.fields(Scheduled) if f.name != "program"]
    return all(getattr(a, name) == getattr(b, name) for name in others)


def _are_same(a: Contents, b: Contents) -> bool:
    """Whether constants say the same; one whose reading is watched is never one that is not."""
    return a is b or (type(a) is type(b) and not isinstance(a, np.ndarray) and a == b)
