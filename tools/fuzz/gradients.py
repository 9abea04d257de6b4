"""Gradients of random graphs against central differences, both in float64.

    python -m tools.fuzz gradients --seconds 60

The graphs are those of `graphs`, and those of `loops` for odd seeds, at inputs that most likely lie
on no kink. A gradient is refused with the node that is to blame, or it is right; of some with
checkpoints.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ostinato import InferenceSession, ModelError, OstinatoError, UnsupportedError
from tests.autodiff.check import check
from tools.fuzz.graphs import Outcome, in_child
from tools.fuzz.modes import Array
from tools.fuzz.random_loops import random_loop
from tools.fuzz.random_models import random_model
from tools.fuzz.seeds import try_seeds

CHILD_SECONDS = 120.0
# Differences of what random networks amplify have fewer digits than those of one operator.
TOLERANCE = 2e-5
_HALVES = re.compile(r"(elem_type|data_type|i): 10$", re.MULTILINE)
# Some operators take no float64, which takes the place of float32 here.
_NO_DOUBLES = re.compile(r"tensor\(double\).* (forbids|another one of its type)")


def model_of(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model, of which only the results count that are floats of one type, and its inputs."""
    model, feeds = random_model(seed) if seed % 2 == 0 else random_loop(seed)
    kinds = [out.type.tensor_type.elem_type for out in model.graph.output]
    kind = next((k for k in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE) if k in kinds), None)
    kept = [out for out in model.graph.output if out.type.tensor_type.elem_type == kind]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model, feeds


def trial(seed: int) -> tuple[onnx.ModelProto, dict[str, Array], list[str]]:
    """A model, inputs off the multiples of 1/4, and the names of those that are floats.

    Raises `LookupError` where nothing is to be differentiated, or in float16, which has too few
    digits for differences.
    """
    model, feeds = model_of(seed)
    random = np.random.default_rng(seed)
    for name, array in feeds.items():
        if array.dtype.kind == "f":
            feeds[name] = (array + 0.1 * random.standard_normal(array.shape)).astype(array.dtype)
    floats = [name for name, array in feeds.items() if array.dtype.kind == "f" and array.size]
    if not floats or not model.graph.output or _HALVES.search(str(model)):
        raise LookupError
    return model, feeds, floats


def tried(seed: int) -> tuple[Outcome, list[Any]]:
    """What becomes of the gradients of one model; as in a child, with no results."""
    warnings.simplefilter("ignore")
    try:
        model, feeds, floats = trial(seed)
    except LookupError:
        return Outcome("nothing to do"), []
    try:
        if not _is_finite(model, feeds):
            return Outcome("nothing to do"), []
        checkpoint = 2 if seed % 3 == 0 else None
        check(
            *(model, feeds, floats),
            native=False,
            tolerance=TOLERANCE,
            onnxruntime=False,
            checkpoint=checkpoint,
        )
    except UnsupportedError as error:
        return Outcome("refused", str(error)), []
    except AssertionError as error:
        return Outcome("differ", str(error)), []
    except OstinatoError as error:
        if isinstance(error, ModelError) and _NO_DOUBLES.search(str(error)):
            return Outcome("nothing to do"), []
        return Outcome("exception", f"{type(error).__name__}: {error}"), []
    return Outcome("agree"), []


def _is_finite(model: onnx.ModelProto, feeds: dict[str, Array]) -> bool:
    """Whether differences of the results are numbers."""
    results = InferenceSession(model, cache_dir=None).run(None, feeds)
    return all(bool(np.isfinite(r).all()) for r in results if r.dtype.kind == "f")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each model in a process of its own."""

    def apart(seed: int) -> Outcome:
        return in_child(lambda: tried(seed), CHILD_SECONDS)[0]

    return try_seeds(apart, lambda seed: model_of(seed)[0], seconds, seed, count, folder)
