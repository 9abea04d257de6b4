"""Checks that a converted model gives, chunk by chunk, what the whole model gives at once."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

import ostinato
from ostinato.cli.stream_check import Arrays, Difference, Run, compare, runner, step_by_step
from ostinato.streaming import Conversion, convert
from ostinato.streaming.convert import Reach
from tests import witness

CHUNKS = (1, 2, 3, 7, 40)
FRAMES = 90


def model(text: str, weights: Mapping[str, Any] | None = None, opset: int = 18) -> onnx.ModelProto:
    """`text` is a graph in ONNX's syntax; arrays, or shapes to be filled, are its constants."""
    header = f'<ir_version: 9, opset_import: ["": {opset}]>'
    parsed = onnx.parser.parse_model(header + text)
    rng = np.random.default_rng(7)
    for name, value in (weights or {}).items():
        if isinstance(value, tuple):
            value = 0.4 * rng.standard_normal(value)
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return parsed


def feeds_of(session: ostinato.InferenceSession, **sizes: int) -> Arrays:
    """Random arrays for all inputs; "T" has 90 frames, "N" 2 rows, unless told otherwise."""
    known = {"T": FRAMES, "N": 2} | sizes
    rng = np.random.default_rng(1)
    found = {}
    for argument in session.get_inputs():
        shape = [known[size] if isinstance(size, str) else size for size in argument.shape]
        if argument.type == "tensor(float)":
            found[argument.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            found[argument.name] = rng.integers(0, 5, shape).astype(argument.type[7:-1])
    return found


def assert_streams(
    proto: onnx.ModelProto,
    time: Any = "T",
    chunks: tuple[int, ...] = CHUNKS,
    tolerance: float = 0.0,
    context: Reach = None,
    **sizes: int,
) -> Conversion:
    """The bits of the whole, for all `chunks`; onnxruntime to within 1e-4. Returns the result.

    tolerance: of the largest element; 0 demands the same bits.
    """
    conversion = convert(proto, time, chunk=None, context=context)
    session = ostinato.InferenceSession(proto, cache_dir=None)
    feeds = feeds_of(session, **sizes)
    whole = runner(session)(feeds)
    step = runner(ostinato.InferenceSession(conversion.model, cache_dir=None, fallback=False))
    compared = 0
    for chunk in chunks:
        parts = list(step_by_step(step, conversion, feeds, chunk * conversion.multiple))
        for difference in compare(whole, parts, conversion, chunk):
            assert_small(difference, whole, tolerance)
            compared += difference.frames
    timed = [t for t in conversion.outputs.values() if t.axis is not None]
    assert compared or not timed
    if len(timed) == len(conversion.outputs):
        assert_empty_step_changes_nothing(step, conversion, feeds)
    # Chunks of one length only have other sizes: every second model has them too.
    if zlib.crc32(proto.SerializeToString(deterministic=True)) % 2:
        assert_fixed_chunks(
            convert(proto, time, 2 * conversion.multiple, context=context), feeds, whole, tolerance
        )
    assert_onnxruntime_agrees(conversion, feeds, whole, 7 * conversion.multiple)
    return conversion


def assert_fixed_chunks(fixed: Conversion, feeds: Arrays, whole: Arrays, tolerance: float) -> None:
    """Chunks of the length that the model was converted for give the whole."""
    step = runner(ostinato.InferenceSession(fixed.model, cache_dir=None, fallback=False))
    usable = _whole_chunks(feeds, fixed)
    parts = list(step_by_step(step, fixed, usable, 2 * fixed.multiple))
    for difference in compare(_prefix(whole, fixed, usable, feeds), parts, fixed, 2):
        assert_small(difference, whole, tolerance)


def assert_empty_step_changes_nothing(step: Run, conversion: Conversion, feeds: Arrays) -> None:
    """Behind a step with frames, one without any has outputs of no frames and keeps the states."""
    states = conversion.initial_values({"N": 2})
    for frames in (conversion.multiple, 0):
        part = {n: np.take(feeds[n], range(frames), axis) for n, axis in conversion.time.items()}
        outputs = step(feeds | part | states)
        before, states = states, {i: outputs[o] for i, o in conversion.states.items()}
    for name, timing in conversion.outputs.items():
        assert timing.axis is None or outputs[name].shape[timing.axis] == 0
    for name, state in states.items():
        np.testing.assert_array_equal(state, before[name], strict=True)


def assert_small(difference: Difference, whole: Arrays, tolerance: float) -> None:
    """No bit differs, or nothing by more than `tolerance` of the largest element."""
    values = whole[difference.output]
    assert np.isfinite(values).all(), "a test of numbers that overflow says little"
    scale = float(np.abs(values).max(initial=1.0))
    assert not difference.wrong or difference.max_abs <= tolerance * scale, difference


def _whole_chunks(feeds: Arrays, conversion: Conversion) -> Arrays:
    """As many frames as fill chunks of the fixed size."""
    assert conversion.chunk is not None
    found = dict(feeds)
    for name, axis in conversion.time.items():
        count = feeds[name].shape[axis] // conversion.chunk * conversion.chunk
        found[name] = np.take(feeds[name], np.arange(count), axis)
    return found


def _prefix(whole: Arrays, conversion: Conversion, usable: Arrays, feeds: Arrays) -> Arrays:
    """`whole`, of which results without a time axis belong to all frames only."""
    if all(usable[name].shape == feeds[name].shape for name in feeds):
        return whole
    raise AssertionError("choose a number of frames that fills chunks")


def assert_onnxruntime_agrees(
    conversion: Conversion, feeds: Arrays, whole: Arrays, chunk: int
) -> None:
    """onnxruntime runs the converted model too, and comes to the same results."""
    serialised = conversion.model.SerializeToString()
    (name, axis), *_ = conversion.time.items()
    state = conversion.initial_values({"N": 2})
    steps = []
    total = feeds[name].shape[axis] // conversion.multiple * conversion.multiple
    for start in range(0, total, chunk):
        cut = {
            n: np.take(feeds[n], np.arange(start, min(start + chunk, total)), a)
            for n, a in conversion.time.items()
        }
        steps.append(feeds | cut | state)
    answers = witness.run_steps(serialised, steps, conversion.states)
    names = [output.name for output in conversion.model.graph.output]
    parts = [dict(zip(names, answer, strict=True)) for answer in answers]
    for difference in compare(whole, parts, conversion, chunk):
        assert_small(difference, whole, 1e-4)
