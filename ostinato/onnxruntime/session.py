"""onnxruntime's InferenceSession over a compiled model, or over the real onnxruntime."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ostinato
from ostinato.caller import warn
from ostinato.errors import OstinatoError, UnsupportedError
from ostinato.onnxruntime import process
from ostinato.onnxruntime.binding import IOBinding
from ostinato.onnxruntime.devices import OfDevices
from ostinato.onnxruntime.edited import edited, parsed
from ostinato.onnxruntime.errors import (
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    OnnxruntimeError,
    raise_translated,
    require_own,
    unprefixed,
)
from ostinato.onnxruntime.feeds import (
    differing,
    fitted,
    require_all,
    require_feed,
    shapes_of_scalars,
)
from ostinato.onnxruntime.logs import LOGGER
from ostinato.onnxruntime.options import IGNORED, RunOptions, SessionOptions
from ostinato.onnxruntime.real import RealSession, folders, module
from ostinato.onnxruntime.values import OrtValue, held
from ostinato.options import Options
from ostinato.runtime.session import NodeArg
from ostinato.stages.notice import Notice
from ostinato.stages.report import NotNative, described

# A name that shape inference gives a dimension.
_INFERRED = re.compile(r"unk__\d+")
# Characters in a dimension that is computed from others, which onnxruntime does not print.
_ARITHMETIC = re.compile(r"[()+*/<>]")


@dataclasses.dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class _Refusal(Notice):
    """Refuses a model with nodes that are interpreted, so that the real onnxruntime runs it."""

    def __call__(self, entries: Sequence[NotNative]) -> None:
        if entries:
            first, *others = entries
            said = tuple(described(entry) for entry in others)
            raise UnsupportedError(first["node"], first["op"], first["reason"], others=said)


# Methods of SessionOptions that give a model what compiled ones do not take.
_OF_ONNXRUNTIME = {
    "register_custom_ops_library": "kernels of a library of one's own",
    "add_external_initializers_from_files_in_memory": "weights of files in memory",
}


class InferenceSession(OfDevices):
    """A session with onnxruntime's interface.

    path_or_bytes: a model's path, or its bytes.
    sess_options: see `SessionOptions`. providers, provider_options: checked as onnxruntime checks
        them; the model is compiled for the CPU whatever they say.

    A model that cannot be all native runs in the real onnxruntime if that is installed, which one
    line of the logger "ostinato.onnxruntime" says, and on slow reference kernels otherwise.
    Raises onnxruntime's exceptions, by its names: `ostinato.onnxruntime.errors`.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._model = _readable(path_or_bytes)
        if sess_options is not None:
            require_own("sess_options", sess_options, SessionOptions)
        self._sess_options = sess_options or SessionOptions()
        # Programs read these from onnxruntime's session.
        self._model_path = self._model if isinstance(self._model, str) else None
        self._model_bytes = None if isinstance(self._model, str) else self._model
        self._name = self._model if isinstance(self._model, str) else "the model"
        try:
            self._providers = checked_providers(providers, provider_options)
        except ValueError as error:
            # onnxruntime goes on with the CPU, too.
            warn(f"{error} The CPU is used.")
            self._providers = []
        self._real: RealSession | None = None
        # Dimensions that have had different sizes in inputs that share their name.
        self._apart: set[str] = set()
        # Inputs that the model declares as scalars, and the shapes of arrays that came for them.
        self._scalars: set[str] = set()
        self._shapes: dict[str, list[int | None]] = {}
        self._events: list[dict[str, Any]] = []
        self._profiled = self._sess_options.enable_profiling
        self._start = time.perf_counter_ns()
        for name in self._sess_options.changed().keys() & IGNORED.keys():
            self._log(logging.INFO, "SessionOptions.%s has no effect: %s", name, IGNORED[name])
        self._open()
        self._record("session_initialization", self._start)

    def _open(self) -> None:
        for method, what in _OF_ONNXRUNTIME.items():
            if not self._sess_options.called(method):
                continue
            if module() is None:
                raise Fail.of(f"{what} need the real onnxruntime")
            real = RealSession(self._model, self._sess_options, self._providers)
            self._use(real, f"it has {what}")
            return
        model = edited(self._model, self._sess_options)
        try:
            session = self._load(model)
        except OstinatoError as error:
            self._use(self._replacement(error), error)
            return
        arguments = session.get_inputs()
        self._scalars = {a.name for a in arguments if a.type.startswith("tensor") and a.shape == []}
        self._inputs = [_as_declared(argument) for argument in arguments]
        named = {dim for a in self._inputs for dim in a.shape or () if isinstance(dim, str)}
        self._outputs = [_as_computed(argument, named) for argument in session.get_outputs()]
        self._initializers = session.get_overridable_initializers()
        if self._sess_options.optimized_model_filepath:
            self._write_optimized(model)

    def _load(self, model: Any) -> ostinato.InferenceSession:
        """Compile the model; runs take what was compiled from now on."""
        start = time.perf_counter()
        settings = Options(
            threads=self._sess_options.threads(),
            flush_denormals=self._sess_options.flushes_denormals(),
            integer_products=self._sess_options.multiplies_bytes(),
            seed=process.seed,
        )
        notice = _Refusal(self._name) if folders() else Notice(self._name)
        session = ostinato.InferenceSession._loaded(model, settings, notice)
        if not session.report().from_cache:
            seconds = time.perf_counter() - start
            self._log(logging.INFO, "%s: compiled in %.1f s, once", self._name, seconds)
        self._compiled: ostinato.InferenceSession | None = session
        self._run: Callable[[Any, Any], list[Any]] = session.run
        return session

    def _write_optimized(self, model: Any) -> None:
        """Write the optimised model; raises what onnxruntime raises for a path that is none."""
        path = self._sess_options.optimized_model_filepath
        if self._sess_options.saves_ort_format():
            if module() is None:
                raise Fail.of(f"{path}: models in ORT format need the real onnxruntime")
            RealSession(self._model, self._sess_options, self._providers)  # writes it
            return
        import onnx

        try:
            onnx.save(ostinato.optimize(model), path)
        except OSError as error:
            raise InvalidArgument.of(f"{path} cannot be written: {error}") from error

    def _use(self, real: RealSession, reason: object) -> None:
        """Let the real onnxruntime run the model from now on."""
        self._log(logging.WARNING, "%s runs in onnxruntime, not compiled: %s", self._name, reason)
        session = real.session
        self._compiled, self._run = None, real.run
        self._inputs, self._outputs, self._initializers = (
            [NodeArg(a.name, a.type, a.shape) for a in arguments]
            for arguments in (
                session.get_inputs(),
                session.get_outputs(),
                session.get_overridable_initializers(),
            )
        )

    def _replacement(self, error: OstinatoError) -> RealSession:
        """A session of the real onnxruntime, once ours has refused the model, or a run of it.

        Raises the translated error where there is none, and what the real one raises.
        """
        if module() is None:
            if not _is_protobuf(self._model):
                raise InvalidProtobuf.of(f"Load model failed: {error}") from error
            raise_translated(error)
        if self._real is None:
            self._real = RealSession(self._model, self._sess_options, self._providers)
        return self._real

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Compute the named outputs, all of them for None, from arrays or OrtValues by name."""
        if run_options is not None:
            _require_going_on(run_options)
        start = time.perf_counter_ns() if self._profiled else 0
        try:
            results = self._run(output_names, input_feed)
        except OstinatoError as error:
            results = self._recovered(output_names, input_feed, error)
        if start:
            self._record("model_run", start)
        return results

    def _recovered(
        self, output_names: Sequence[str] | None, feed: Mapping[str, Any], error: OstinatoError
    ) -> list[Any]:
        """The results of a run that ended in an error, where onnxruntime would have given some."""
        session = self._compiled
        if session is None:
            raise error
        plain = fitted(feed)
        try:
            shapes = shapes_of_scalars(plain, self._scalars)
            if shapes != self._shapes:
                self._shapes = shapes
                session = self._anew("what is no scalar comes for an input that is one")
            # Unlike `self._inputs`, these tell a scalar from a value of any rank.
            inputs = session.get_inputs()
            known = {argument.name for argument in (*inputs, *self._initializers)}
            plain = {n: value for n, value in plain.items() if n in known or value is not None}
            require_feed(plain, inputs, known)
            self._require_names(output_names)
            if apart := differing(plain, inputs) - self._apart:
                self._apart |= apart
                session = self._anew(f"inputs have different sizes of {', '.join(sorted(apart))}")
            return session.run(output_names, plain)
        except OnnxruntimeError:
            raise
        except OstinatoError as again:
            real = self._replacement(again)
            results = real.run(output_names, plain)
            self._use(real, again)
            return results

    def _anew(self, reason: str) -> ostinato.InferenceSession:
        """The model compiled for the inputs that it is given, unlike those that it declares."""
        self._log(logging.INFO, "%s: compiled anew, as %s", self._name, reason)
        return self._load(edited(self._model, self._sess_options, self._apart, self._shapes))

    def _require_names(self, output_names: Any) -> None:
        _require_list(output_names)
        known = {argument.name for argument in self._outputs}
        for name in output_names or ():
            if name not in known:
                raise InvalidArgument.of(f"Invalid output name:{name}")

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` from OrtValues to OrtValues."""
        given = input_dict_ort_values.items()
        feed = {name: held(f"input {name!r}", value) for name, value in given}
        return [OrtValue(value) for value in self.run(output_names, feed, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """`run` in another thread, which calls `callback(results, user_data, error)`.

        Raises at once `ValueError` for an input that is missing and `TypeError` for a name that is
        no list of names.
        """
        _require_list(output_names)
        require_all(input_feed, self._inputs)

        def work() -> None:
            try:
                results, said = self.run(output_names, input_feed, run_options), ""
            except Exception as error:
                results, said = [], unprefixed(error)
            callback(results, user_data, said)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """Arrays that runs read and write."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run over the arrays of a binding."""
        if run_options is not None:
            _require_going_on(run_options)
        iobinding.run()

    def get_session_options(self) -> SessionOptions:
        return self._sess_options

    def get_inputs(self) -> list[NodeArg]:
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        return self._initializers

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself; raises `Fail` if its file is gone."""
        try:
            proto = parsed(self._model)
        except OSError as error:
            raise Fail.of(f"{self._name} cannot be read any more: {error}") from error
        return ModelMetadata(
            producer_name=proto.producer_name,
            graph_name=proto.graph.name,
            domain=proto.domain,
            description=proto.doc_string,
            graph_description=proto.graph.doc_string,
            # The largest number stands for a model without a version.
            version=proto.model_version if proto.HasField("model_version") else 2**63 - 1,
            custom_metadata_map={entry.key: entry.value for entry in proto.metadata_props},
        )

    def get_providers(self) -> list[str]:
        return [*process.PROVIDERS]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: {} for name in process.PROVIDERS}

    @property
    def _provider_options(self) -> dict[str, dict[str, str]]:
        """What programs read in place of `get_provider_options()`."""
        return self.get_provider_options()

    @property
    def _model_meta(self) -> ModelMetadata:
        """What programs read in place of `get_modelmeta()`."""
        return self.get_modelmeta()

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
    ) -> None:
        """Check the providers; the model stays compiled for the CPU.

        Raises `ValueError`, and `RuntimeError` for a provider that no build of onnxruntime has.
        """
        checked = checked_providers(providers, provider_options)
        for provider in checked:
            name = provider if isinstance(provider, str) else provider[0]
            if name not in process.get_all_providers():
                raise RuntimeError(f"Unknown Provider Type: {name}")
        self._providers = checked

    def disable_fallback(self) -> None:
        """Have no effect: there is one provider."""

    def enable_fallback(self) -> None:
        """Have no effect: there is one provider."""

    def get_profiling_start_time_ns(self) -> int:
        return self._start

    def end_profiling(self) -> str:
        """Write the runs' times as a Chrome trace and return its name; "" unless asked for.

        `ostinato profile MODEL` tells the kernels' times.
        """
        options = self._sess_options
        if not self._profiled:
            return ""
        self._profiled = False
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        path = f"{options.profile_file_prefix}_{stamp}.json"
        Path(path).write_text(json.dumps(self._events), encoding="utf-8")
        return path

    def _record(self, name: str, start: int) -> None:
        if self._profiled:
            event = {"cat": "Session", "name": name, "ph": "X", "pid": os.getpid(), "tid": 0}
            times = {
                "ts": (start - self._start) // 1000,
                "dur": (time.perf_counter_ns() - start) // 1000,
            }
            self._events.append({**event, **times, "args": {}})

    def _log(self, level: int, text: str, *arguments: object) -> None:
        if level >= self._sess_options.level():
            LOGGER.log(level, text, *arguments)


def checked_providers(
    providers: Sequence[Any] | None, provider_options: Sequence[Any] | None
) -> list[Any]:
    """The providers, checked as onnxruntime checks them; `ValueError` and warnings as there."""
    if providers is None or isinstance(providers, str):
        return [] if providers is None else [providers]
    if not isinstance(providers, collections.abc.Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is not None:
        if not isinstance(provider_options, collections.abc.Sequence):
            raise ValueError("'provider_options' should be a sequence.")
        if len(providers) != len(provider_options):
            raise ValueError(
                "'providers' and 'provider_options' should be the same length if both are given."
            )
    for provider in providers:
        name = provider[0] if isinstance(provider, tuple) and len(provider) == 2 else provider
        if not isinstance(name, str):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        if name not in process.PROVIDERS:
            available = ", ".join(process.PROVIDERS)
            warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{available}'"
            )
    return [*providers]


def _readable(model: Any) -> str | bytes:
    if isinstance(model, bytes):
        if not model:
            raise InvalidArgument.of("No graph was found in the protobuf.")
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"Unable to load from type '{type(model)}'")
    path = os.fspath(model)
    if not os.path.exists(path):
        raise NoSuchFile.of(
            f"Load model from {path} failed:Load model {path} failed. File doesn't exist"
        )
    return path


def _is_protobuf(model: str | bytes) -> bool:
    try:
        return bool(parsed(model).graph.output)
    except Exception:
        return False


def _as_declared(argument: NodeArg) -> NodeArg:
    """The argument with None for dimensions that have no name, [] for no shape."""
    # Such a dimension has the name of its value and the number of the axis.
    shape = [
        None if dim == f"{argument.name}.{axis}" else dim
        for axis, dim in enumerate(argument.shape or ())
    ]
    return NodeArg(argument.name, argument.type, shape)  # type: ignore[arg-type]


def _as_computed(argument: NodeArg, named: set[str]) -> NodeArg:
    """An output with None for dimensions that only this package has a name for.

    named: the names that the inputs' dimensions have.
    """

    def is_own(dim: int | str | None) -> bool:
        name = dim if isinstance(dim, str) and dim not in named else ""
        return bool(_INFERRED.fullmatch(name) or _ARITHMETIC.search(name))

    shape = [None if is_own(dim) else dim for dim in _as_declared(argument).shape or ()]
    return NodeArg(argument.name, argument.type, shape)  # type: ignore[arg-type]


def _require_list(output_names: Any) -> None:
    if isinstance(output_names, str):
        raise TypeError("output_names must be a sequence of names, got a str")


def _require_going_on(run_options: RunOptions) -> None:
    require_own("run_options", run_options, RunOptions)
    if run_options.terminate:
        raise Fail.of("Exiting due to terminate flag being set to true.")
