"""Other runtimes on the same model and inputs: onnxruntime, and the reference shipped with onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ostinato.errors import OptionError, RunError

if TYPE_CHECKING:
    import numpy as np

Witness = Literal["onnxruntime", "reference"]


def outputs_of(witness: Witness, model: Path, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The model's outputs according to `witness`.

    onnxruntime runs in a process of its own: there are models that make it abort.

    Raises:
        OptionError: onnxruntime is not installed.
        RunError: the witness refused the model, or died of it.
    """
    if witness == "reference":
        return _reference_outputs(model, feeds)
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    _import_onnxruntime(", or compare with --vs reference")
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_onnxruntime_outputs, model, dict(feeds)).result()
    except BrokenProcessPool as error:
        raise RunError(f"onnxruntime aborted on {model}") from error


def _reference_outputs(model: Path, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    try:
        return list(ReferenceEvaluator(str(model)).run(None, dict(feeds)))
    except Exception as error:
        raise RunError(f"onnx.reference failed on {model}: {error}") from error


def _onnxruntime_outputs(model: Path, feeds: dict[str, np.ndarray]) -> list[Any]:
    # Its exceptions do not survive the way to another process, a message does.
    try:
        return list(onnxruntime_session(model).run(None, feeds))
    except Exception as error:
        raise RunError(f"onnxruntime failed on {model}: {error}") from None


def _import_onnxruntime(otherwise: str = "") -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        text = f"onnxruntime is not installed: pip install onnxruntime{otherwise}"
        raise OptionError(text) from error
    return onnxruntime


def onnxruntime_session(model: Path) -> Any:
    """An onnxruntime session on one thread with every optimisation on."""
    runtime = _import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def onnxruntime_bound_call(
    session: Any, feeds: Mapping[str, np.ndarray]
) -> tuple[Callable[[], object], list[np.ndarray]]:
    """(call, outputs): a call on buffers bound once, the fastest way to call onnxruntime.

    Raises:
        RunError: it takes no buffers for the outputs: their sizes are not those that the model
            claims, as in files that PyTorch exported.
    """
    runtime = _import_onnxruntime()
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, runtime.OrtValue.ortvalue_from_numpy(array))
    values = [runtime.OrtValue.ortvalue_from_numpy(y) for y in session.run(None, dict(feeds))]
    for output, value in zip(session.get_outputs(), values, strict=True):
        binding.bind_ortvalue_output(output.name, value)

    def call(run: Any = session._sess.run_with_iobinding, bound: Any = binding._iobinding) -> None:
        run(bound, None)

    try:
        call()
    except Exception as error:
        raise RunError(f"onnxruntime takes no bound outputs: {error}") from error
    # `binding` owns `bound`, and the values own the memory; both must outlive the call.
    call.keep = (session, binding, values)  # type: ignore[attr-defined]
    return call, [value.numpy() for value in values]
