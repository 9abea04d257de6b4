"""Other ways to run a model, which give the same bits (`docs/numerics.md`)."""

from __future__ import annotations

import contextlib
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import ostinato.compiler
from ostinato import InferenceSession, OstinatoError
from ostinato.codegen import kernel_functions, safepoints, threads
from ostinato.codegen.target import host_target
from ostinato.compiler import optional_passes
from ostinato.machine.record import AVX2, AVX512, NEON, NEOVERSE_V1, WASM
from ostinato.model import origins
from ostinato.program import interpreter
from ostinato.program.verify import verify
from ostinato.protobuf import structure
from ostinato.schedule import share
from tests.one_model import OneModel

Array = np.ndarray[Any, Any]
AMX = replace(AVX512, byte_dots="vnni", byte_tiles=True, byte_lookups=True)
Feeds = Mapping[str, Array]

NAMES = (
    *("passes", "pass", "threads", "safepoints", "bound", "specialised"),
    *("machine", "machine", "interpreted", "other weights"),
)
# Integers of fewer elements may be sizes, axes or shapes.
LEAST_WEIGHTS = 8
# Records of machines whose code does not run here.
MACHINES = (AVX512, AVX2, NEON, NEOVERSE_V1, WASM, AMX)


@dataclass
class Mode:
    """Another way to run a model that has the same bits.

    options: of the session. machine: fields of the record of the machine; of one that is not here,
        its number among `MACHINES` and its other fields.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> None:
        """Change this process, which is a child, so that small models take the path in question."""
        if self.name == "threads":
            share.LEAST = share.WAIT = threads.MOST_ALONE = threads.LOSSES = 0
            share.WAKE = -(1 << 60)
            threads.SIGN_SPINS = threads.WAKE_SPINS = 1 << 40
        if self.name == "other weights":
            structure.LEAST = origins.LEAST = 2
        if self.name in ("threads", "safepoints"):
            safepoints.LIMIT, safepoints.GRAIN = 1 << 13, 1 << 10
            # Functions that are kept were written with the limits before.
            kernel_functions.function_text.cache_clear()
        if self.name == "machine":
            host = host_target()
            machine = replace(host.machine, **self.machine)
            other = replace(host, machine=machine)
            vars(ostinato.compiler)["find_target"] = lambda name: other

    def run(self, session: InferenceSession, model: bytes, feeds: Feeds) -> list[Any]:
        """The outputs; of a bound call, or of the interpreter, where that is the mode."""
        if self.name == "interpreted":
            return self._interpreted(session, model, feeds)
        if self.name == "other weights":
            return self._cached(model, feeds)
        if self.name != "bound":
            return session.run(None, dict(feeds))
        arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in feeds.items()}
        call = session.bind(arrays)
        call()
        call()
        return [call.outputs[output.name] for output in session.get_outputs()]

    def _cached(self, model: bytes, feeds: Feeds) -> list[Any]:
        """The outputs where the cache has the code of a model with other weights."""
        with tempfile.TemporaryDirectory() as folder:
            options = self.options | {"cache_dir": folder}
            with contextlib.suppress(OstinatoError):  # a check may refuse them
                InferenceSession(_with_other_weights(model), **options)
            return InferenceSession(model, **options).run(None, dict(feeds))

    def _interpreted(self, session: InferenceSession, model: bytes, feeds: Feeds) -> list[Any]:
        """What the schedule for a machine means; of models that are not all native, of this one."""
        one = OneModel(onnx.ModelProto.FromString(model))
        if not one.programs:
            return session.run(None, dict(feeds))
        machine = replace(MACHINES[self.machine["number"]], **self.machine["record"])
        values: dict[str, Any] = {**one.constants, **feeds}
        for program in one.programs:
            scheduled = one.schedule(program, machine).program
            verify(scheduled)
            given = {i.name: np.asarray(values[i.name]) for i in scheduled.inputs}
            values |= interpreter.run(scheduled, given)
        return [values[output.name] for output in session.get_outputs()]


def mode_of(seed: int, model: onnx.ModelProto, feeds: Feeds) -> Mode:
    """The mode in which a model is run besides."""
    random = np.random.default_rng(seed + 2**32)
    name = NAMES[int(random.integers(len(NAMES)))]
    passes = optional_passes()
    if name == "passes":
        chosen = random.random(len(passes)) < random.choice((0.5, 1.0))
        return Mode(name, {"disable": [p for p, c in zip(passes, chosen, strict=True) if c]})
    if name == "pass":
        return Mode(name, {"disable": [passes[int(random.integers(len(passes)))]]})
    if name == "specialised":
        sizes: dict[str, int] = {}
        for value in model.graph.input:
            axes = zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True)
            sizes |= {dim.dim_param: n for dim, n in axes if dim.dim_param}
        return Mode(name, {"specialize": sizes})
    if name == "machine":
        return Mode(name, {"threads": int(random.integers(1, 3))}, _machine(random))
    if name == "interpreted":
        caches = _caches(random) if random.random() < 0.7 else {}
        number = int(random.integers(len(MACHINES)))
        return Mode(name, {}, {"number": number, "record": caches})
    if name == "other weights":
        targets = ("host", "x86-64-v3") if platform.machine() == "x86_64" else ("host",)
        return Mode(name, {"target": str(random.choice(targets))})
    return Mode(name, {"threads": 2} if name == "threads" else {})


def _with_other_weights(model: bytes) -> onnx.ModelProto:
    """The model with the elements of each of its larger constants in another order."""
    other: onnx.ModelProto = onnx.ModelProto.FromString(model)
    for tensor in other.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size >= (2 if array.dtype.kind == "f" else LEAST_WEIGHTS):
            turned = np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)
            tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))
    return other


def _caches(random: np.random.Generator) -> dict[str, Any]:
    """Caches so small that small models need to be cut."""
    first = int(random.choice((256, 1024, 4096)))
    return {
        "first_level_bytes": first,
        "second_level_bytes": first * int(random.choice((2, 4, 16))),
        "page_bytes": int(random.choice((64, 256, 4096))),
        "followed_pages": int(random.choice((1, 4, 32))),
        "unroll": int(random.choice((1, 2, 4))),
        "most_groups": int(random.choice((1, 2, 4))),
        "gather_loads": int(random.choice((1, 8, 64))),
        "fma_latency": float(random.choice((1.0, 4.0, 16.0))),
    }


def _machine(random: np.random.Generator) -> dict[str, Any]:
    """A machine with such caches, few registers, or short ones."""
    return _caches(random) | {
        "vector_bytes": int(random.choice((16, 32, host_target().machine.vector_bytes))),
        "vector_registers": int(random.choice((8, 16, 32))),
        "lane_operands": bool(random.random() < 0.3),
        "loads_operands": bool(random.random() < 0.3),
        "short_blocks": bool(random.random() < 0.3),
    }
