"""Windows that move along time: convolutions, pools, padding, frames of a Fourier transform.

A window over `extent` frames that moves by `stride` needs the frames before a chunk again: they
are kept as a state and put in front of the chunk, and the operator runs without padding in time.
So every result is one sum over one window in the operator's own order, whatever the chunk, and has
the bits it has in the whole model. Adding up the pieces of a window that chunks cut would not.

    s[n]   frames that come     s[n] = v[n - delay]
    y[j]   sees v[j * stride - pad .. j * stride - pad + extent - 1]
    o[n]   sent with the chunk that ends with s[(n + 1) * stride - 1]; the window's last frame
           is `slack` frames before that, 0 <= slack, so that o[n] = y[n - delay of y]
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.streaming import timing
from ostinato.streaming.context import END, Context
from ostinato.streaming.dims import Dims
from ostinato.streaming.facts import MIRRORED, Length, Stream
from ostinato.streaming.registry import streams


def decimated(
    context: Context, value: ir.Value, stream: Stream, step: int
) -> tuple[ir.Value, Stream]:
    """Every `step`-th frame, from the first on: windows of one frame."""
    return windowed(context, value, stream, 1, step, 0, None, sampled=True)


def windowed(
    context: Context,
    value: ir.Value,
    stream: Stream,
    extent: int,
    stride: int,
    pad: int,
    before: float | None,
    *,
    behind: int = 0,
    sampled: bool = False,
) -> tuple[ir.Value, Stream]:
    """Input frames and output frames of windows without padding.

    pad: frames of `before` that the operator puts before the first one; behind: and at the end.
    sampled: take the frames that windows of one frame would start at.
    """
    if pad > 0 and stream.fill is MIRRORED:
        raise context.refuse("pads in front of mirrored frames: let one node pad")
    rate, pads = stream.rate / stride, pad + behind
    if behind > 0:
        stream = timing.padded_behind(context, timing.placed(stream))
    timing.need_multiple(context, rate)
    reach = stream.delay - pad + extent - stride
    # The first window needs the frame that is as far behind frame 0 as it reaches before.
    mirrored = 1 - stream.delay - stride if stream.fill is MIRRORED else 0
    delay = max(0, math.ceil(max(reach, mirrored) / stride))
    slack = delay * stride - reach
    earlier = extent - stride + slack
    masking = before if pad > 0 else None
    if earlier > 0:
        purpose = f"the last {earlier} frames, before the chunk"
        value = timing.history(context, value, stream, earlier, "past", purpose, masking)
    else:
        value = timing.masked(context, value, stream, masking)
    first, end = max(0, -earlier), END if slack == 0 else -slack
    if sampled:
        value = context.writer.slice(value, stream.axis, first, end, "sampled", stride)
    elif first or end != END:
        value = context.writer.slice(value, stream.axis, first, end, "window")
    looks_ahead = delay * stride - stream.delay
    if looks_ahead > 0 and delay > 0:
        context.note(f"looks ahead: its result comes {delay} of its frames late")
    extra = None if stream.extra is None else (stream.extra + pads - extent) // stride + 1
    return value, Stream(stream.axis, rate, delay, extra=extra)


class Geometry:
    """Kernel, strides, dilations and pads of a node, with an entry for each spatial axis.

    weights: the sizes of the weights, for nodes that say the kernel's in no attribute.
    """

    def __init__(self, context: Context, weights: Dims = ()) -> None:
        read = context.attributes
        self.kernel: Dims = read.ints("kernel_shape", None) or weights[2:]
        self.count = count = len(self.kernel)
        self.strides = list(read.ints("strides", (1,) * count))
        self.dilations = list(read.ints("dilations", (1,) * count))
        self.pads = list(read.ints("pads", (0,) * 2 * count))
        self.auto_pad = read.string("auto_pad", "NOTSET")

    def extent(self, context: Context, axis: int) -> int:
        size = self.kernel[axis]
        if not isinstance(size, int):
            raise context.refuse("the size of its kernel is not known")
        dilation: int = self.dilations[axis]
        return (size - 1) * dilation + 1


def _spatial_axis(context: Context, stream: Stream) -> int:
    """Find the spatial axis that is time."""
    if stream.axis < 2:
        raise context.refuse("mixes all frames: time is its axis of channels")
    return stream.axis - 2


def _explicit_pads(context: Context, geometry: Geometry, stream: Stream) -> None:
    """`auto_pad` as numbers: for the time axis as of a whole number of strides, and `extra`."""
    if geometry.auto_pad in ("NOTSET", ""):
        return
    sizes, time = context.dims(context.given(0))[2:], _spatial_axis(context, stream)
    if geometry.strides[time] > 1 and geometry.auto_pad != "VALID":
        context.note(f"padded as sequences of a multiple of {geometry.strides[time]} frames are")
    for axis in range(geometry.count):
        total = 0
        if geometry.auto_pad != "VALID":
            stride, size = geometry.strides[axis], sizes[axis]
            if axis == time and not isinstance(size, int):
                size = stream.extra
            left = 0 if stride == 1 else None if not isinstance(size, int) else size % stride
            if left is None:
                raise context.refuse("auto_pad along an axis of unknown size: write the pads")
            total = max(0, geometry.extent(context, axis) - (left or stride))
        small, large = total // 2, total - total // 2
        upper = geometry.auto_pad != "SAME_LOWER"
        geometry.pads[axis] = small if upper else large
        geometry.pads[axis + geometry.count] = large if upper else small
    context.node.attributes.pop("auto_pad", None)


def _without_time_pads(context: Context, geometry: Geometry, time: int) -> tuple[int, int]:
    """Take the padding in time off the node; returns the frames before and behind."""
    pad, behind = geometry.pads[time], geometry.pads[time + geometry.count]
    geometry.pads[time] = geometry.pads[time + geometry.count] = 0
    context.node.attributes["pads"] = ir.AttrInt64s("pads", geometry.pads)
    return pad, behind


# By convolution, the inputs of the weights and of the zero point that stands for padding.
_CONVOLUTIONS: dict[str, tuple[int, int | None]] = {
    "Conv": (1, None),
    "ConvInteger": (1, 2),
    "QLinearConv": (3, 2),
}


@streams("Conv", first_frames=True)
@streams("ConvInteger", "QLinearConv")
def convolution(context: Context) -> None:
    """The last frames of earlier steps come first."""
    stream = context.only_stream()
    time = _spatial_axis(context, stream)
    weights, zero = _CONVOLUTIONS[context.op_type]
    geometry = Geometry(context, context.dims(context.given(weights)))
    _explicit_pads(context, geometry, stream)
    before = 0.0
    if zero is not None and context.has(zero):
        point = context.constant(zero)
        if point is None:
            raise context.refuse("its zero point is not constant")
        before = float(point.reshape(-1)[0])
    _window_node(context, stream, geometry, time, before)


def _window_node(
    context: Context, stream: Stream, geometry: Geometry, time: int, before: float
) -> None:
    pad, behind = _without_time_pads(context, geometry, time)
    extent, stride = geometry.extent(context, time), geometry.strides[time]
    if context.attributes.int("ceil_mode", 0):
        # The last window may reach so far beyond the end.
        behind += stride - 1
    value, result = windowed(
        context, context.given(0), stream, extent, stride, pad, before, behind=behind
    )
    if context.attributes.int("ceil_mode", 0) or geometry.auto_pad not in ("NOTSET", "", "VALID"):
        # The number of windows at the end depends on the length.
        result = replace(result, extra=result.extra if stride == 1 else None)
    context.operand(0, value)
    context.set_all(result)


@streams("MaxPool", "AveragePool", "LpPool")
def pooling(context: Context) -> None:
    """Pads with what leaves its result alone."""
    stream = context.only_stream()
    time = _spatial_axis(context, stream)
    if context.op_type == "MaxPool" and len(context.node.outputs) > 1:
        raise context.refuse("its second output numbers the elements of the whole sequence")
    geometry = Geometry(context)
    _explicit_pads(context, geometry, stream)
    padded = geometry.pads[time] > 0 or stream.delay < 0
    means = context.op_type == "AveragePool" and not context.attributes.int("count_include_pad", 0)
    if means and geometry.pads[time] > 0:
        raise context.refuse(
            "its first means are over fewer frames: set count_include_pad, or pad before it"
        )
    before = 0.0
    dtype = context.given(0).dtype
    if context.op_type == "MaxPool" and padded and dtype is not None:
        kind = dtype.numpy()
        before = -np.inf if kind.kind not in "iu" else float(np.iinfo(kind).min)
    _window_node(context, stream, geometry, time, before)


def _overlapping(
    context: Context, extent: int, stride: int, pads: list[int], time: int, more: int = 0
) -> Stream:
    """Put earlier frames before those of input 0, each of which makes `extent`, `stride` apart.

    The node runs over these too, and `pads` crop what only they make. Carrying the overlap as sums
    instead would add up each result in two pieces, in an order that depends on the chunk. Returns
    the fact of the result but for its axis. more: frames that the node adds at the end.

    Known frames before the first, of which the node crops what they make, are never sent: padding
    by as much as is cropped makes a causal layer.
    """
    behind = time + len(pads) // 2
    cut, more = pads[time], more + extent - stride - pads[time] - pads[behind]
    stream = context.required_stream(0)
    unsent = 0 if stream.fill is MIRRORED else cut // stride
    value, stream = timing.delayed(
        context, context.given(0), stream, max(0, -stream.delay - unsent)
    )
    late = cut + min(0, stream.delay) * stride
    stream = timing.padded_behind(context, timing.placed(stream))
    earlier = max(0, math.ceil((extent - stride) / stride))
    purpose = f"the last {earlier} frames, which overlap"
    context.operand(0, timing.history(context, value, stream, earlier, "past", purpose, 0.0))
    pads[time], pads[behind] = earlier * stride, max(0, extent - stride)
    context.node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    if late:
        context.note(f"its first {late} frames are cropped: a delay of as many")
    extra = None if stream.extra is None else stream.extra * stride + more
    return Stream(stream.axis, stream.rate * stride, stream.delay * stride + cut, extra=extra)


@streams("ConvTranspose", first_frames=True)
def transposed_convolution(context: Context) -> None:
    """Runs over the earlier frames that reach into the chunk too, and crops their own results."""
    time = _spatial_axis(context, context.only_stream())
    weights, given = context.dims(context.given(1)), context.attributes.ints("output_shape", ())
    geometry = Geometry(context, weights)
    if geometry.auto_pad not in ("NOTSET", "", "VALID") or given:
        raise context.refuse("auto_pad and output_shape depend on the length: write the pads")
    context.node.attributes.pop("auto_pad", None)
    extent, stride = geometry.extent(context, time), geometry.strides[time]
    padding = list(context.attributes.ints("output_padding", (0,) * geometry.count))
    result = _overlapping(context, extent, stride, geometry.pads, time, padding[time])
    padding[time] = max(0, stride - extent)
    context.node.attributes["output_padding"] = ir.AttrInt64s("output_padding", padding)
    context.set(result)


@streams("Col2Im", lengths=True)
def overlapping_blocks(context: Context) -> None:
    """Overlap-add of frames that are blocks of an image, as a transposed convolution."""
    stream, block, image = context.required_stream(0), context.constant(2), context.elements(1)
    if stream.axis != 2 or block is None:
        raise context.refuse("time is not its axis of blocks, or its block_shape is not constant")
    count, read = len(image), context.attributes
    strides, dilations = (read.ints(n, (1,) * count) for n in ("strides", "dilations"))
    pads = list(read.ints("pads", (0,) * 2 * count))
    extents = [(int(n) - 1) * d + 1 for n, d in zip(block, dilations, strict=True)]
    # Blocks are counted along all axes of the image, and are frames where the others have one.
    others = [
        isinstance(size, int) and 0 <= size + pads[i] + pads[i + count] - extents[i] < strides[i]
        for i, size in enumerate(image)
    ]
    if others.count(False) != 1:
        raise context.refuse("its blocks are not along time alone")
    time = others.index(False)
    result = _overlapping(context, extents[time], strides[time], pads, time)
    size, frames = image[time], context.converter.length
    if isinstance(size, int) and frames is not None:
        size = Length(result.rate, size - int(frames * result.rate))
    if not isinstance(size, Length) or size.scale != result.rate:
        raise context.refuse("its image is not as long as its blocks are")
    context.write_sizes(1, image, time, context.converter.frames(context.writer, result.rate))
    context.set(replace(result, axis=2 + time, extra=size.extra))


@streams("STFT")
def short_time_fourier_transform(context: Context) -> None:
    """Windows of samples, moved by frame_step; a frame for each."""
    stream = context.only_stream()
    if stream.axis != 1:
        raise context.refuse("time is not the axis of its samples")
    step = context.constant(1)
    length = context.constant(3)
    if length is None and context.has(2):
        size = context.dims(context.given(2))[0]
        length = np.array(size) if isinstance(size, int) else None
    if step is None or length is None:
        raise context.refuse("its frame_step or frame_length is not constant")
    value, result = windowed(context, context.given(0), stream, int(length), int(step), 0, None)
    context.operand(0, value)
    context.set(result)


# Powers of two.
_EXACT_SCALES = (2, 4, 8, 16)


@streams("Resize", "Upsample", lengths=True)
def resize(context: Context) -> None:
    """Repeats every frame a whole number of times, or interpolates between it and the next one."""
    _, stream = timing.settled(context, 0)
    context.only_stream()
    rank = context.rank(context.given(0))
    axes = [axis % rank for axis in context.attributes.ints("axes", tuple(range(rank)))]
    if stream.axis not in axes:
        context.set(stream)
        return
    scales = context.constant(1 if context.op_type == "Upsample" else 2)
    if context.has(3):
        scales = _scales(context, stream)
    if scales is None or not scales.size:
        raise context.refuse("its scales are not constant, or it resizes to given sizes")
    how = context.attributes.string("coordinate_transformation_mode", "half_pixel")
    if how == "tf_crop_and_resize":
        raise context.refuse("crops, maybe the sequence: let Slice do it")
    scale = dict(zip(axes, map(float, scales), strict=True))[stream.axis]
    if scale == 1:
        context.set(stream)
        return
    rounding = context.attributes.string("nearest_mode", "round_prefer_floor")
    mode = context.attributes.string("mode", "nearest")
    halves = how in ("half_pixel", "pytorch_half_pixel") and not context.attributes.int(
        "antialias", 0
    )
    # Places between frames are exact numbers then, however many frames came before.
    if context.op_type == "Resize" and mode == "linear" and halves and scale in _EXACT_SCALES:
        _interpolate(context, stream, int(scale))
        return
    repeats = (how, rounding) in (("half_pixel", "round_prefer_floor"), ("asymmetric", "floor"))
    if mode != "nearest" or scale % 1 or scale < 1:
        raise context.refuse(
            "drops frames, or interpolates in time other than linearly, by half_pixel, to a number "
            f"of frames that is {', '.join(map(str, _EXACT_SCALES))} times as large"
        )
    if not repeats and context.op_type == "Resize":
        raise context.refuse(f"{how} with {rounding} does not repeat every frame alike")
    factor = int(scale)
    extra = None if stream.extra is None else stream.extra * factor
    context.set(Stream(stream.axis, stream.rate * factor, stream.delay * factor, extra=extra))


def _interpolate(context: Context, stream: Stream, factor: int) -> None:
    """Resize the last frame before the chunk and the chunk, and crop what the ends make.

    Half of what lies between two frames waits for the second one. Before the first frame there is
    a copy of it, as the operator sees beyond the edge; beyond the last one, likewise.
    """
    frame, node, writer = timing.first_frame(context), context.node, context.writer
    stream = timing.padded_behind(context, timing.placed(stream))
    ahead = replace(stream, delay=-1, fill=frame, steady=False)
    purpose = "the last frame, before the chunk"
    joined = timing.history(context, context.given(0), ahead, 1, "past", purpose)
    resized = writer.declare("resized", None, joined.dtype)
    operands, attributes = [joined, *node.inputs[1:]], list(node.attributes.values())
    name = writer.name("Resize")
    writer.nodes.append(ir.Node("", "Resize", operands, attributes, outputs=[resized], name=name))
    half = factor // 2
    result = writer.slice(resized, stream.axis, half, -half, "interpolated")
    context.note(f"interpolates: its result comes {half} of its frames late")
    extra = None if stream.extra is None else stream.extra * factor
    # Only frames that are all alike are late here.
    delay = stream.delay * factor + half
    context.replace(result, Stream(stream.axis, stream.rate * factor, delay, extra=extra))


def _scales(context: Context, stream: Stream) -> np.ndarray | None:
    """The scales of a Resize to given sizes, which it reads from then on; None for others."""
    dims, elements = context.dims(context.given(0)), context.elements(3)
    axes = context.attributes.ints("axes", tuple(range(len(dims))))
    if context.attributes.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    found = []
    for axis, element in zip(axes, elements, strict=True):
        size = dims[axis % len(dims)]
        if axis % len(dims) == stream.axis:
            if not isinstance(element, Length) or element.scale is None or stream.extra is None:
                return None
            factor = element.scale / stream.rate
            if element.extra != stream.extra * factor:
                return None
            found.append(float(factor))
        elif element == size:
            found.append(1.0)
        elif isinstance(element, int) and isinstance(size, int) and not element % size:
            found.append(element / size)
        else:
            return None
    scales = np.array(found, np.float32)
    context.operand(2, context.writer.value(scales, "scales"))
    context.operand(3, None)
    return scales
