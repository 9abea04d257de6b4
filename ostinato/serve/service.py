"""The interface of a service for every transport: its models, and the outputs of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ostinato.runtime.pool import checked_shared
from ostinato.runtime.session import InferenceSession, NodeArg
from ostinato.serve.lanes import Served, why_apart
from ostinato.serve.metrics import Metrics
from ostinato.serve.protocol import VERSION, Request, ServeError, Status, Tensor, named
from ostinato.version import __version__

Array = np.ndarray[Any, Any]

_EXTENSIONS = ("binary_tensor_data", "sequence")
_PLATFORM = "onnx_ostinato"


@dataclass(frozen=True)
class Interface:
    """What the clients of a model see: inputs and outputs that are no states.

    apart: why its sequences are stepped one by one, None where they are not. times: the axis of an
    input that counts frames, for inputs that have one. unclear: those where it may be several.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    apart: str | None
    times: Mapping[str, int]
    unclear: tuple[str, ...] = ()

    def frames(self, inputs: Mapping[str, Array]) -> int:
        """The number of frames of a request."""
        for name, axis in self.times.items():
            if name in inputs and axis < inputs[name].ndim:
                return int(inputs[name].shape[axis])
        return 1


def interface(served: Served) -> Interface:
    """Compile a model and look at it. Raises what a session, a stream and a pool raise."""
    session = InferenceSession(served.path, served.options)
    checked_shared(session, served.states, served.shared)
    apart = why_apart(session, served) if served.states else None
    read, written = {*served.states, *served.shared}, set(served.states.values())
    fed = [argument for argument in session.get_inputs() if argument.name not in read]
    given = [argument for argument in session.get_outputs() if argument.name not in written]
    of_states = {
        dim
        for argument in session.get_inputs()
        if argument.name in read
        for dim in argument.shape or ()
    }
    open_axes = {
        argument.name: [
            axis
            for axis, dim in enumerate(argument.shape or ())
            if not isinstance(dim, int) and dim not in of_states and dim != served.batch
        ]
        for argument in fed
    }
    times = {name: axes[0] for name, axes in open_axes.items() if len(axes) == 1}
    unclear = tuple(name for name, axes in open_axes.items() if len(axes) > 1)
    tensors = tuple(map(_tensor, fed)), tuple(map(_tensor, given))
    return Interface(*tensors, apart, times, unclear)


def _tensor(argument: NodeArg) -> Tensor:
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in argument.shape or ())
    return Tensor(argument.name, named(argument.type), shape)


class Engine(Protocol):
    """Answers requests: `Cluster` on one machine."""

    models: Mapping[str, Served]

    @property
    def is_ready(self) -> bool:
        """Whether new sequences may start."""

    async def infer(self, request: Request) -> dict[str, Array]:
        """The outputs of a request for one of the models. Raises `ServeError`."""

    def close(self, key: tuple[str, int | str]) -> None:
        """End a sequence of a model, if it is open."""


class Service:
    """The models of a server, whose names are those of `interfaces`."""

    def __init__(
        self, interfaces: Mapping[str, Interface], engine: Engine, metrics: Metrics
    ) -> None:
        self.interfaces, self._engine, self.metrics = interfaces, engine, metrics

    @property
    def is_ready(self) -> bool:
        """Whether new sequences may start."""
        return self._engine.is_ready

    def metadata(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        return {"name": "ostinato", "version": __version__, "extensions": [*_EXTENSIONS]}

    def model_metadata(self, name: str, version: str) -> dict[str, Any]:
        """Inputs and outputs of a model, without its states. Raises `ServeError`."""
        found = self.model(name, version)
        tensors = {
            kind: [
                {"name": t.name, "datatype": t.datatype, "shape": [*t.shape]}
                for t in getattr(found, kind)
            ]
            for kind in ("inputs", "outputs")
        }
        return {"name": name, "versions": [VERSION], "platform": _PLATFORM, **tensors}

    def model(self, name: str, version: str) -> Interface:
        """A model that clients may ask for. Raises `ServeError`."""
        if name not in self.interfaces:
            raise ServeError(
                Status.NOT_FOUND,
                f"no model {name!r}; this server has {', '.join(self.interfaces)}",
            )
        if version not in ("", VERSION):
            raise ServeError(Status.NOT_FOUND, f"model {name!r} has version {VERSION} alone")
        return self.interfaces[name]

    def has_states(self, name: str) -> bool:
        """Whether requests for a model belong to sequences."""
        return bool(self._engine.models[name].states)

    def close(self, name: str, sequence: int | str) -> None:
        """End a sequence, if it is open."""
        self._engine.close((name, sequence))

    async def infer(self, request: Request, version: str = "") -> dict[str, Array]:
        """The outputs that were asked for, in that order. Raises `ServeError`."""
        label = request.model if request.model in self.interfaces else "unknown"
        found = self.interfaces.get(label)
        with self.metrics.request(label, found.frames(request.inputs) if found else 0):
            found = self.model(request.model, version)
            names = [output.name for output in found.outputs]
            wanted = names if request.outputs is None else request.outputs
            for name in wanted:
                if name not in names:
                    raise ServeError(
                        Status.INVALID, f"output {name!r}: expected one of {', '.join(names)}"
                    )
            results = await self._engine.infer(request)
            return {name: results[name] for name in wanted}
