"""SessionOptions and RunOptions: what is honoured here, and why the rest is not needed."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.onnxruntime.errors import Fail
from ostinato.onnxruntime.logs import LEVELS, LOGGER
from ostinato.options import MOST_THREADS
from ostinato.spelling import mistyped

_FLUSH = "session.set_denormal_as_zero"
_KEEPS_FLOATS = "session.disable_quant_qdq"
# The level at which rows are rounded to bytes, its default, and others, which keep floats.
_ACCURACY, _BYTES = "session.qdq_matmulnbits_accuracy_level", "4"


class PlainEnum(enum.IntEnum):
    """Integers that print as onnxruntime's enumerations do: by class and name."""

    __str__ = enum.Enum.__str__


class GraphOptimizationLevel(PlainEnum):
    """How far onnxruntime rewrites a graph."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(PlainEnum):
    """Whether onnxruntime runs branches of a graph side by side."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(PlainEnum):
    """In which order onnxruntime runs nodes."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


IGNORED = {
    "execution_mode": "threads divide the work of a kernel, not branches of the graph",
    "inter_op_num_threads": "threads divide the work of a kernel, not branches of the graph",
    "execution_order": "the compiler decides the order",
    "enable_cpu_mem_arena": "working memory is planned while compiling",
    "enable_mem_pattern": "working memory is planned while compiling",
    "enable_mem_reuse": "working memory is planned while compiling",
    "use_deterministic_compute": "results are the same in every run anyway",
    "use_per_session_threads": "a session's threads are its own",
    "log_verbosity_level": "there is one level of details",
    "logid": "messages name the model",
}
"""Attributes of SessionOptions without effect, and why."""

_DEFAULTS: dict[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "enable_profiling": False,
    "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
    "execution_order": ExecutionOrder.DEFAULT,
    "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
    "inter_op_num_threads": 0,
    "intra_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "",
    "profile_file_prefix": "onnxruntime_profile_",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}

_PROVIDER = "there is one execution provider, the CPU"
_METHODS = {
    "set_load_cancellation_flag": "Ctrl-C ends a load",
    **dict.fromkeys(("add_provider", "add_provider_for_devices"), _PROVIDER),
    **dict.fromkeys(
        ("clear_ep_context_data_read_func", "set_ep_context_data_read_func"), _PROVIDER
    ),
    "set_provider_selection_policy": _PROVIDER,
    "set_provider_selection_policy_delegate": _PROVIDER,
}
"""Methods of SessionOptions without effect, and why."""

_OF_RUNS: dict[str, Any] = {
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "only_execute_path_to_fetches": False,
    "terminate": False,
}


class SessionOptions:
    """Options of a session, under onnxruntime's names.

    Honoured: `intra_op_num_threads` (0: one thread per core), `log_severity_level`,
    `enable_profiling` with `profile_file_prefix`, `optimized_model_filepath`, free dimensions,
    initializers, `graph_optimization_level` and the entry "session.disable_quant_qdq" for
    products of dequantised bytes, and the entry "session.set_denormal_as_zero". `IGNORED` says why
    others have no effect. Other names may be set, with a warning, so that a program does not end
    by them; names that look like a mistyped one raise AttributeError.
    """

    intra_op_num_threads: int
    log_severity_level: int
    enable_profiling: bool
    graph_optimization_level: GraphOptimizationLevel
    profile_file_prefix: str
    optimized_model_filepath: str
    # Methods that were called, and their arguments.
    _calls: list[tuple[str, tuple[Any, ...]]]
    _config: dict[str, str]

    def __init__(self) -> None:
        vars(self).update(_DEFAULTS, _calls=[], _config={})

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = _checked("SessionOptions", _DEFAULTS, name, value)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _METHODS:
            raise AttributeError(f"'SessionOptions' object has no attribute {name!r}")

        def ignore(*arguments: Any) -> None:
            LOGGER.info("SessionOptions.%s has no effect: %s", name, _METHODS[name])
            self._calls.append((name, arguments))

        return ignore

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[bytes], lengths: Sequence[int]
    ) -> None:
        """Have the model run by the real onnxruntime, with weights of files in memory.

        `InferenceSession` raises `Fail` where that is not installed.
        """
        arguments = names, buffers, lengths
        self._calls.append(("add_external_initializers_from_files_in_memory", arguments))

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Give a named dimension its size."""
        self._calls.append(("add_free_dimension_override_by_name", (dim_name, _size(dim_value))))

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Give dimensions with this denotation their size."""
        arguments = (denotation, _size(dim_value))
        self._calls.append(("add_free_dimension_override_by_denotation", arguments))

    def add_initializer(self, name: str, ortvalue: Any) -> None:
        """Let an initializer have this value."""
        self._calls.append(("add_initializer", (name, ortvalue)))

    def add_external_initializers(self, names: Sequence[str], ortvalues: Sequence[Any]) -> None:
        """Let initializers, whose data is outside of the model, have these values."""
        for name, value in zip(names, ortvalues, strict=True):
            self._calls.append(("add_external_initializers", ([name], [value])))

    def register_custom_ops_library(self, path: str) -> None:
        """Have the model run by the real onnxruntime: a library of kernels is made for it.

        Raises `Fail` where there is no such file.
        """
        if not os.path.exists(path):
            raise Fail.of(f"Failed to load library {path}: No such file or directory")
        self._calls.append(("register_custom_ops_library", (path,)))

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set an entry; raises `TypeError` for what is no text, `RuntimeError` for its length."""
        for what, text, longest in (("key", key, 1024), ("value", value, 8192)):
            if not isinstance(text, str):
                raise TypeError(f"session config entry: expected a str as {what}, got {text!r}")
            if len(text) > longest or (what == "key" and not text):
                raise RuntimeError(
                    f"Config {what} is empty or longer than maximum length {longest}"
                )
        self._config[key] = value
        self._calls.append(("add_session_config_entry", (key, value)))

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry; raises `RuntimeError` for a key that was not set."""
        if key not in self._config:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._config[key]

    def has_providers(self) -> bool:
        return bool(self.called("add_provider"))

    def called(self, method: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of a method that changes the model."""
        return [arguments for name, arguments in self._calls if name == method]

    def changed(self) -> dict[str, Any]:
        """The attributes that are not what they are by default."""
        return {n: vars(self)[n] for n, default in _DEFAULTS.items() if vars(self)[n] != default}

    def threads(self) -> int:
        """The number of threads of a session."""
        asked = self.intra_op_num_threads
        return min(asked if asked > 0 else cores(), MOST_THREADS)

    def saves_ort_format(self) -> bool:
        """Whether the optimised model is to be a file of onnxruntime's own format."""
        asked = self._config.get("session.save_model_format", "")
        return asked == "ORT" or (not asked and self.optimized_model_filepath.endswith(".ort"))

    def flushes_denormals(self) -> bool:
        return self._config.get(_FLUSH) == "1"

    def multiplies_bytes(self) -> bool:
        """Whether dequantised bytes are multiplied as bytes: from the level on where it does so."""
        extended = GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        keeps = self._config.get(_KEEPS_FLOATS) == "1"
        keeps |= self._config.get(_ACCURACY, _BYTES) != _BYTES
        return self.graph_optimization_level >= extended and not keeps

    def level(self) -> int:
        """The least level that the session logs."""
        severity = self.log_severity_level
        return LEVELS[severity] if severity >= 0 else LOGGER.getEffectiveLevel()


class RunOptions:
    """Options of a run: `terminate` ends it before it begins, the rest has no effect."""

    terminate: bool
    _config: dict[str, str]

    def __init__(self) -> None:
        vars(self).update(_OF_RUNS, _config={})

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = _checked("RunOptions", _OF_RUNS, name, value)

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._config[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        if key not in self._config:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._config[key]

    def add_active_adapter(self, adapter: Any) -> None:
        raise NotImplementedError("adapters of weights: merge them into the model instead")


def _checked(owner: str, defaults: Mapping[str, Any], name: str, value: Any) -> Any:
    """The value in the type that the attribute has; raises `TypeError` for another one.

    A name that is not known is taken with a warning. Raises `AttributeError`, as onnxruntime does,
    for one that looks like a mistyped one.
    """
    if name not in defaults:
        meant = mistyped(name, defaults)
        if meant:
            raise AttributeError(f"{owner!r} object has no attribute {name!r}: {meant}")
        LOGGER.warning("%s.%s is not known here: it has no effect", owner, name)
        return value
    default = defaults[name]
    kind = type(default)
    if isinstance(default, enum.Enum):
        # An enumeration of the real onnxruntime has the same names.
        found = getattr(kind, str(getattr(value, "name", "")), None)
    elif kind is str:
        found = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    elif kind is bool:
        # None is false, and so are numbers of NumPy that are 0.
        found = bool(value) if hasattr(value, "__bool__") else None
    else:
        found = _integer(value, 32)
    if found is None:
        raise TypeError(f"{owner}.{name}: expected {kind.__name__}, got {type(value).__name__}")
    return found


def _integer(value: Any, bits: int) -> int | None:
    """The value as pybind11 reads integers: what converts to one, other than Python's floats."""
    if isinstance(value, float) or not hasattr(value, "__int__"):
        return None
    number = int(value)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _size(value: Any) -> int:
    number = _integer(value, 64)
    if number is None:
        raise TypeError(f"a dimension: expected an integer, got {value!r}")
    return number


def cores() -> int:
    """Cores that this process may run on; processors that share one count once."""
    count = os.cpu_count() or 1
    numbers = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(count)
    folder = Path("/sys/devices/system/cpu")
    shared = set()
    for number in numbers:
        try:
            siblings = (folder / f"cpu{number}/topology/thread_siblings_list").read_text()
        except OSError:
            siblings = str(number)
        shared.add(siblings)
    return max(len(shared), 1)
