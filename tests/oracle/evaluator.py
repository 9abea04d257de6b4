"""A model evaluated by `onnx.reference`, with the whole of Scan-9, and scalars in loops.

`onnx.reference` scans axis 0 forward only and refuses sequences of length 0; here every axis and
direction works, and a sequence of length 0 gives empty outputs of the shape one step would have.
It stacks scalar scan outputs of a Loop to a column; `ostinato.reference.kernels` makes a vector of
them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from ostinato.reference.kernels import Loop


class Scan(OpRun):
    op_domain = ""

    def need_context(self) -> bool:
        return True

    def _run(self, *args, context=None, **_):
        count = self.num_scan_inputs
        states, scanned = list(args[: len(args) - count]), args[len(args) - count :]
        extra = len(self.body.output_names) - len(states)
        axes = self.scan_input_axes or [0] * count
        backwards = self.scan_input_directions or [0] * count
        scanned = [
            np.flip(np.moveaxis(x, axis, 0), 0) if back else np.moveaxis(x, axis, 0)
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        (length,) = {len(x) for x in scanned}
        collected = [[] for _ in range(extra)]
        for t in range(length):
            results = self._step(context, states, [x[t] for x in scanned])
            states = results[: len(states)]
            for steps, y in zip(collected, results[len(states) :], strict=True):
                steps.append(y)
        if length == 0:
            zeros = [np.zeros(x.shape[1:], x.dtype) for x in scanned]
            examples = self._step(context, states, zeros)[len(states) :]
            stacks = [np.zeros((0, *y.shape), y.dtype) for y in examples]
        else:
            stacks = [np.stack(steps) for steps in collected]
        out_axes = self.scan_output_axes or [0] * extra
        out_backwards = self.scan_output_directions or [0] * extra
        outputs = [
            np.moveaxis(np.flip(y, 0) if back else y, 0, axis)
            for y, axis, back in zip(stacks, out_axes, out_backwards, strict=True)
        ]
        return (*states, *outputs)

    def _step(self, context, states, elements):
        feeds = dict(context or {})
        feeds.update(zip(self.body.input_names, [*states, *elements], strict=True))
        results = self._run_body(feeds)
        # As NumPy does not, so that a scalar stays an array of rank 0.
        return [np.asarray(result) for result in results]


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of `model`, computed by the reference kernels in the model's own precision."""
    with np.errstate(all="ignore"):  # NaN is an input like any other
        return ReferenceEvaluator(model, new_ops=[Scan, Loop]).run(None, dict(feeds))
