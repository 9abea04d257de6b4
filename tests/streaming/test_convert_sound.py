"""Cases of the official suite along each of their axes: refused, or as the whole model says."""

from __future__ import annotations

import copy
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

import ostinato
from ostinato import OstinatoError
from ostinato.cli.stream_check import Arrays, Run, compare, runner, step_by_step
from ostinato.streaming import convert
from ostinato.streaming.registry import RULES
from tests.node_cases import node_cases

CASES_PER_OPERATOR = 4
# Of these the reference kernel (onnx 1.23) goes by the batch where it should go by channels, and
# pads integers with infinities.
WRONG_REFERENCE = {"LRN", "MaxPool"}
# These go through windows in Python.
SLOW_REFERENCE = {"AveragePool", "LpPool"}


@cache
def cases() -> dict[str, list[Any]]:
    found = defaultdict(list)
    for case in node_cases():
        nodes = [] if case.model is None else case.model.graph.node
        if len(nodes) == 1 and len(found[nodes[0].op_type]) < CASES_PER_OPERATOR:
            found[nodes[0].op_type].append(case)
    return found


def runner_of(model: onnx.ModelProto) -> Run:
    """On reference kernels, which are there at once; where they are wrong or slow, compiled."""
    if (WRONG_REFERENCE | SLOW_REFERENCE) & {node.op_type for node in model.graph.node}:
        return runner(ostinato.InferenceSession(model, cache_dir=None))
    evaluator = onnx.reference.ReferenceEvaluator(model)
    return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))


def streamed(case: Any, axis: int) -> tuple[onnx.ModelProto, Arrays]:
    """The case with axis `axis` of its first input of unknown size, other inputs as constants."""
    model = copy.deepcopy(case.model)
    arrays = case.data_sets[0][0]
    first, *others = model.graph.input
    for value, array in zip(others, arrays[1:], strict=True):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    first.type.tensor_type.shape.dim[axis].dim_param = "T"
    for output in model.graph.output:
        for size in output.type.tensor_type.shape.dim:
            size.Clear()
    return model, {first.name: arrays[0]}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("op", sorted(RULES))
def test_a_conversion_is_right_or_refused(op: str) -> None:
    tried = 0
    for case in cases()[op]:
        arrays = case.data_sets[0][0]
        plain = all(isinstance(a, np.ndarray) and a.dtype.kind in "fiub" for a in arrays)
        if not arrays or not plain or len(arrays) != len(case.model.graph.input):
            continue
        for axis, frames in enumerate(arrays[0].shape):
            tried += frames > 1 and check(case, axis)
    if not tried:
        pytest.skip("the suite has no case of it that can have a time axis")


def check(case: Any, axis: int) -> bool:
    """Compare the case with its steps along `axis`; whether that axis can be named at all."""
    try:
        model, feeds = streamed(case, axis)
    except IndexError:
        return False
    try:
        conversion = convert(model, {model.graph.input[0].name: axis}, None)
    except OstinatoError:
        return True
    if feeds[model.graph.input[0].name].shape[axis] % conversion.multiple:
        return True
    whole, step = runner_of(model)(feeds), runner_of(conversion.model)
    for chunk in (1, 2):
        parts = list(step_by_step(step, conversion, feeds, chunk * conversion.multiple))
        for difference in compare(whole, parts, conversion, chunk):
            assert not difference.wrong or difference.max_abs < 1e-4, (case.name, axis, difference)
    return True
