"""A model evaluated by `onnx.reference`, with Scan and Loop as their documents have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ostinato.reference.kernels import Loop, Scan


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of `model`, computed by the reference kernels in the model's own precision."""
    with np.errstate(all="ignore"):  # NaN is an input like any other
        return ReferenceEvaluator(model, new_ops=[Scan, Loop]).run(None, dict(feeds))
