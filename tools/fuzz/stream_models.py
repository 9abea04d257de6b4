"""Small random networks over sequences, causal and not, to be converted into streams.

A model takes `x [N, 3, T]`, maybe `z [N, 2, T]`, and `s [N, 2]`, which has no time axis. It returns
a few of its values. Blocks take values `[N, channels, length]`, where the length follows from T,
and values without a time axis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser

Array = np.ndarray[Any, Any]
Length = Callable[[int], int]

# Lengths are compared at these numbers of frames of the input.
_PROBES = (36, 72, 144)
_FAR = 2**40


@dataclass(frozen=True)
class Value:
    """A value `[N, channels, length(T)]`, or `[N, channels]` where `length` is None."""

    name: str
    channels: int
    length: Length | None

    def probes(self) -> tuple[int, ...]:
        assert self.length is not None
        return tuple(map(self.length, _PROBES))


@dataclass
class Sketch:
    """A model that grows.

    others: the rank of each value that no block reads, and the model returns.
    """

    random: np.random.Generator
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    frames: list[Value] = field(default_factory=list)
    ends: list[Value] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def choose(self, items: Sequence[Any]) -> Any:
        return items[int(self.random.integers(len(items)))]

    def number(self, least: int, most: int) -> int:
        """From `least` to `most`, both included."""
        return int(self.random.integers(least, most + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def emit(self, expression: str, outputs: int = 1) -> Any:
        """A node; the name of its output, or a tuple of several."""
        names = [self.name() for _ in range(outputs)]
        self.lines.append(f"{', '.join(names)} = {expression}")
        return names[0] if outputs == 1 else tuple(names)

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: int) -> str:
        return self.constant(np.array(number, np.int64))

    def real(self, number: float) -> str:
        return self.constant(np.array(number, np.float32))

    def constant(self, array: Array) -> str:
        name = self.name()
        self.constants[name] = array
        return name

    def weights(self, *shape: int) -> str:
        scale = 0.6 / max(1.0, np.prod(shape[1:]) ** 0.5)
        return self.constant((scale * self.random.standard_normal(shape)).astype(np.float32))

    def size(self, value: str, axis: int, *, scalar: bool = False) -> str:
        """The size of an axis, `[1]` or a scalar."""
        size = self.emit(f"Shape <start={axis}, end={axis + 1}> ({value})")
        return str(self.emit(f"Squeeze ({size})")) if scalar else str(size)

    def turned(self, value: str, *order: int) -> str:
        return str(self.emit(f"Transpose <perm={list(order)}> ({value})"))

    def made(self, name: str, channels: int, length: Length | None) -> Value:
        value = Value(name, channels, length)
        (self.ends if length is None else self.frames).append(value)
        return value

    def any_frames(self) -> Value:
        """One of the values with a time axis, a late one most of the time."""
        if self.chance(0.7):
            return self.frames[-1]
        return self.choose(self.frames)  # type: ignore[no-any-return]


Block = Callable[[Sketch], None]


def random_model(seed: int, frames: int | None = None) -> onnx.ModelProto:
    """The model of a seed, for sequences of any length or of `frames`."""
    sketch = Sketch(np.random.default_rng(seed))
    sketch.made("x", 3, lambda t: t)
    if sketch.chance(0.3):
        sketch.made("z", 2, lambda t: t)
    for _ in range(sketch.number(1, 6)):
        is_wild = sketch.chance(0.12)
        sketch.choose(WILD if is_wild else TAME)(sketch)
    chosen = {sketch.frames[-1].name: 3} | sketch.others
    if sketch.ends:
        chosen[sketch.ends[-1].name] = 2
    if sketch.chance(0.3):
        chosen[sketch.choose(sketch.frames).name] = 3
    for name in ("x", "z"):
        chosen.pop(name, None)
    if not chosen:
        chosen[sketch.emit("Neg (x)")] = 3
    outputs = ", ".join(
        f"float[{', '.join(f'{name}_{i}' for i in range(rank))}] {name}"
        for name, rank in chosen.items()
    )
    text = "\n".join(sketch.lines)
    inputs = ", ".join(
        f"float[{sizes}] {name}"
        for name, sizes in (("x", "N, 3, T"), ("z", "N, 2, T"), ("s", "N, 2"))
        if name == "x" or re.search(rf"\b{name}\b", text)
    )
    if frames is not None:
        inputs = inputs.replace("T]", f"{frames}]")
    graph = f"g ({inputs}) => ({outputs}) {{\n{text}\n}}"
    opset = 22 if "Attention" not in text else 23
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')
    for name, array in sketch.constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


# Along time, one block after another


def convolution(g: Sketch) -> None:
    """Causal, with look-ahead, padded at both ends or not at all."""
    v = g.any_frames()
    assert v.length is not None
    kernel, dilation, stride = g.number(1, 4), g.number(1, 3), g.choose((1, 1, 1, 2, 3))
    extent, out = (kernel - 1) * dilation + 1, g.number(2, 4)
    before, behind = g.choose(
        [
            (extent - 1, 0),
            (extent - 1, 0),
            (0, extent - 1),
            (0, 0),
            (extent + 1, 0),
            (extent // 2, extent // 2),
            (extent - 1, extent - 1),
            (g.number(0, 3), g.number(0, 3)),
        ]
    )
    bias = f", {g.weights(out)}" if g.chance(0.5) else ""
    settings = f"kernel_shape=[{kernel}], dilations=[{dilation}], strides=[{stride}]"
    if g.chance(0.1) and dilation == 1:
        name = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
        padding = f'auto_pad="{name}"'
        same = name != "VALID"
        length = (
            (lambda t: -(-v.length(t) // stride))
            if same
            else (lambda t: (v.length(t) - extent) // stride + 1)
        )
    else:
        padding = f"pads=[{before}, {behind}]"
        length = lambda t: (v.length(t) + before + behind - extent) // stride + 1  # noqa: E731
    weights = g.weights(out, v.channels, kernel)
    g.made(g.emit(f"Conv <{settings}, {padding}> ({v.name}, {weights}{bias})"), out, length)


def transposed_convolution(g: Sketch) -> None:
    """Overlapping, or with gaps."""
    v = g.any_frames()
    assert v.length is not None
    kernel, stride, dilation = g.number(1, 4), g.number(1, 3), g.choose((1, 1, 2))
    extent = (kernel - 1) * dilation + 1
    before, behind = g.number(0, min(2, extent - 1)), g.number(0, min(2, extent - 1))
    more = g.number(0, stride - 1) if g.chance(0.3) else 0
    out, bias = g.number(2, 4), ""
    if g.chance(0.5):
        bias = f", {g.weights(out)}"
    settings = (
        f"kernel_shape=[{kernel}], strides=[{stride}], dilations=[{dilation}], "
        f"pads=[{before}, {behind}], output_padding=[{more}]"
    )
    name = g.emit(
        f"ConvTranspose <{settings}> ({v.name}, {g.weights(v.channels, out, kernel)}{bias})"
    )
    g.made(name, out, lambda t: (v.length(t) - 1) * stride + extent - before - behind + more)


def pooling(g: Sketch) -> None:
    """Largest, mean or p-norm of windows."""
    v = g.any_frames()
    assert v.length is not None
    kind, kernel, stride = g.choose(("Max", "Max", "Average", "Lp")), g.number(1, 4), g.number(1, 3)
    before, behind = g.number(0, kernel - 1), g.number(0, kernel - 1)
    settings = f"kernel_shape=[{kernel}], strides=[{stride}], pads=[{before}, {behind}]"
    rounds_up = kind != "Lp" and g.chance(0.2)
    if kind == "Average" and g.chance(0.7):
        settings += ", count_include_pad=1"
    if rounds_up:
        settings += ", ceil_mode=1"
        if behind or stride > kernel:
            return

    def length(t: int) -> int:
        room = v.length(t) + before + behind - kernel
        windows = (-(-room // stride) if rounds_up else room // stride) + 1
        if rounds_up and (windows - 1) * stride >= v.length(t) + before:
            windows -= 1
        return windows

    g.made(g.emit(f"{kind}Pool <{settings}> ({v.name})"), v.channels, length)


def recurrence(g: Sketch) -> None:
    """RNN, GRU or LSTM, its states and maybe the last one."""
    v, hidden = g.any_frames(), g.number(2, 4)
    kind, gates = g.choose((("GRU", 3), ("LSTM", 4), ("RNN", 1)))
    direction = g.choose(("forward",) * 18 + ("reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    x = g.turned(v.name, 2, 0, 1)
    w, r = g.weights(count, gates * hidden, v.channels), g.weights(count, gates * hidden, hidden)
    b = g.weights(count, 2 * gates * hidden)
    extra = ", linear_before_reset=1" if kind == "GRU" and g.chance(0.5) else ""
    settings = f'hidden_size={hidden}, direction="{direction}"{extra}'
    first = ""
    if g.chance(0.1):
        start = g.emit(f"MatMul (s, {g.weights(2, count * hidden)})")
        start = g.emit(f"Reshape ({start}, {g.ints(0, count, hidden)})")
        first = f", , {g.turned(start, 1, 0, 2)}"
    elif g.chance(0.2):
        rows = g.emit(f"Concat <axis=0> ({g.ints(count)}, {g.size('x', 0)}, {g.ints(hidden)})")
        first = f", , {g.emit(f'Expand ({g.weights(1, 1, hidden)}, {rows})')}"
    y, h = g.emit(f"{kind} <{settings}> ({x}, {w}, {r}, {b}{first})", 2)
    flat = g.emit(f"Reshape ({g.turned(y, 2, 1, 3, 0)}, {g.ints(0, hidden * count, -1)})")
    g.made(flat, hidden * count, v.length)
    if g.chance(0.4):
        state = g.emit(f"Reshape ({g.turned(h, 1, 0, 2)}, {g.ints(0, hidden * count)})")
        g.made(state, hidden * count, None)


def scan(g: Sketch) -> None:
    """A leaky sum, written as Scan."""
    v = g.any_frames()
    x, c = g.turned(v.name, 2, 0, 1), v.channels
    rows = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(c)})")
    first = g.emit(f"ConstantOfShape <value = float[1] {{0.5}}> ({rows})")
    half, way = g.real(0.5), 1 if g.chance(0.2) else 0
    s, e, t, o, u = (g.name() for _ in range(5))
    body = (
        f"body = step (float[N, {c}] {s}, float[N, {c}] {e}) => (float[N, {c}] {t}, "
        f"float[N, {c}] {o}) {{ {u} = Mul ({s}, {half}) {t} = Add ({u}, {e}) {o} = Tanh ({t}) }}"
    )
    ways = f"scan_input_directions=[{way}], scan_output_directions=[{way}]"
    end, y = g.emit(f"Scan <num_scan_inputs=1, {ways}, {body}> ({first}, {x})", 2)
    g.made(g.turned(y, 1, 2, 0), c, v.length)
    if g.chance(0.4):
        g.made(g.emit(f"Identity ({end})"), c, None)


def loop(g: Sketch) -> None:
    """A leaky sum over frames that a counting Loop picks."""
    v = g.any_frames()
    x, c = g.turned(v.name, 2, 0, 1), v.channels
    trips = g.size(x, 0, scalar=True)
    rows = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(c)})")
    first = g.emit(f"ConstantOfShape <value = float[1] {{0.5}}> ({rows})")
    half = g.real(0.5)
    i, on, more, s, e, t, o, u = (g.name() for _ in range(8))
    body = (
        f"body = step (int64 {i}, bool {on}, float[N, {c}] {s}) => (bool {more}, float[N, {c}] {t},"
        f" float[N, {c}] {o}) {{ {e} = Gather <axis=0> ({x}, {i}) {u} = Mul ({s}, {half})"
        f" {t} = Add ({u}, {e}) {o} = Tanh ({t}) {more} = Identity ({on}) }}"
    )
    end, y = g.emit(f"Loop <{body}> ({trips}, , {first})", 2)
    g.made(g.turned(y, 1, 2, 0), c, v.length)
    if g.chance(0.4):
        g.made(g.emit(f"Identity ({end})"), c, None)


def running_sum(g: Sketch) -> None:
    """Along time, or along channels."""
    v = g.any_frames()
    settings = f"exclusive={g.number(0, 1)}, reverse={g.choose((0, 0, 0, 1))}"
    axis = g.scalar(g.choose((2, 2, -1, 1)))
    total = g.emit(f"CumSum <{settings}> ({v.name}, {axis})")
    g.made(g.emit(f"Mul ({total}, {g.real(0.1)})"), v.channels, v.length)


def pointwise(g: Sketch) -> None:
    """One operand."""
    v = g.any_frames()
    op = g.choose(
        ("Tanh", "Sigmoid", "Neg", "Relu", "Softplus", "Cos", "Identity", "Abs", "Reciprocal")
    )
    if op == "Reciprocal":
        # Large, and infinite for padding of zeros.
        v = Value(g.emit(f"Mul ({v.name}, {v.name})"), v.channels, v.length)
    g.made(g.emit(f"{op} ({v.name})"), v.channels, v.length)


def shifted(g: Sketch) -> None:
    """Plus a constant, so that padding of zeros is something else before and behind."""
    v = g.any_frames()
    g.made(g.emit(f"Add ({v.name}, {g.weights(1, v.channels, 1)})"), v.channels, v.length)


def features(g: Sketch) -> None:
    """Operators within a frame."""
    v = g.any_frames()
    t, out = g.turned(v.name, 0, 2, 1), v.channels
    kind = g.number(0, 12)
    if kind == 9:
        gate = g.emit(f"MatMul (s, {g.weights(2, v.channels)})")
        y = g.emit(f"Mul ({t}, {g.emit(f'Unsqueeze ({gate}, {g.ints(1)})')})")
    elif kind == 10:
        place = g.emit(f"ArgMax <axis=2> ({t})")
        y, out = g.emit(f"GatherElements <axis=2> ({t}, {place})"), 1
    elif kind == 11:
        four = g.emit(f"Unsqueeze ({t}, {g.ints(1)})")
        pads, weights = f"[{g.choose((2, 2, 1))}, 1, 0, 1]", g.weights(1, 1, 3, 3)
        y = g.emit(f"Conv <pads={pads}> ({four}, {weights})")
        before = int(pads[1])
        y = g.emit(f"Squeeze ({y}, {g.ints(1)})")
        length = v.length
        assert length is not None
        g.made(g.turned(y, 0, 2, 1), out, lambda n: length(n) + before - 2)
        return
    elif kind == 12:
        quantised = g.emit(f"QuantizeLinear ({t}, {g.real(0.05)}, {g.constant(np.uint8(128))})")
        y = g.emit(f"DequantizeLinear ({quantised}, {g.real(0.05)}, {g.constant(np.uint8(128))})")
        # Rounded to a step, which small differences between runtimes can change.
        y = g.emit(f"Mul ({y}, {g.real(0.0)})")
    elif kind == 0:
        y = g.emit(f"LayerNormalization ({t}, {g.weights(v.channels)})")
    elif kind == 1:
        y = g.emit(f"Softmax ({t})")
    elif kind == 2:
        out = g.number(2, 4)
        y = g.emit(f"MatMul ({t}, {g.weights(v.channels, out)})")
    elif kind == 3:
        mean = g.emit(f"ReduceMean ({t}, {g.ints(2)})")
        y = g.emit(f"Sub ({t}, {mean})")
    elif kind == 4:
        _, index = g.emit(f"TopK ({t}, {g.ints(1)})", 2)
        one = g.emit(f"Cast <to=1> ({index})")
        y = g.emit(f"Mul ({t}, {one})")
    elif kind == 5:
        index = g.constant(np.array([g.number(0, v.channels - 1) for _ in range(2)]))
        y, out = g.emit(f"Gather <axis=2> ({t}, {index})"), 2
    elif kind == 6:
        out = 2
        weights = g.weights(v.channels, out)
        y = g.emit(f'Einsum <equation="ntc,cd->ntd"> ({t}, {weights})')
    elif kind == 7:
        y = g.emit(f"CumSum ({t}, {g.scalar(2)})")
    else:
        largest = g.emit(f"ArgMax <axis=2, keepdims=0> ({t})")
        y, out = g.emit(f"Gather ({g.weights(v.channels, 2)}, {largest})"), 2
    g.made(g.turned(y, 0, 2, 1), out, v.length)


def joined(g: Sketch) -> None:
    """Two values, cut to the same length at an end if need be."""
    a, b = g.any_frames(), g.choose(g.frames)
    differences = {p - q for p, q in zip(a.probes(), b.probes(), strict=True)}
    if len(differences) > 1:
        return
    (more,) = differences
    if more:
        longer, count = (a, more) if more > 0 else (b, -more)
        if count > 12:
            return
        cut = _without_end(g, longer, count) if g.chance(0.5) else _from(g, longer, count)
        a, b = (cut, b) if more > 0 else (a, cut)
    if g.chance(0.3):
        y, channels = g.emit(f"Concat <axis=1> ({a.name}, {b.name})"), a.channels + b.channels
    else:
        if a.channels != b.channels:
            index = g.constant(np.arange(a.channels) % b.channels)
            b = Value(g.emit(f"Gather <axis=1> ({b.name}, {index})"), a.channels, b.length)
        op = g.choose(("Add", "Mul", "Sub", "Max"))
        y, channels = g.emit(f"{op} ({a.name}, {b.name})"), a.channels
    g.made(y, channels, a.length)


def _from(g: Sketch, v: Value, count: int) -> Value:
    length = v.length
    assert length is not None
    y = g.emit(f"Slice ({v.name}, {g.ints(count)}, {g.ints(_FAR)}, {g.ints(2)})")
    return g.made(y, v.channels, lambda t: length(t) - count)


def _without_end(g: Sketch, v: Value, count: int) -> Value:
    length = v.length
    assert length is not None
    end = g.ints(-count)
    if g.chance(0.3):
        end = g.emit(f"Sub ({g.size(v.name, 2)}, {g.ints(count)})")
    y = g.emit(f"Slice ({v.name}, {g.ints(0)}, {end}, {g.ints(2)})")
    return g.made(y, v.channels, lambda t: length(t) - count)


def cut(g: Sketch) -> None:
    """From a frame on, up to one before the end, or every n-th frame."""
    v, count = g.any_frames(), g.number(1, 4)
    assert v.length is not None
    kind = g.number(0, 2)
    if kind == 0:
        _from(g, v, count)
    elif kind == 1:
        _without_end(g, v, count)
    else:
        start, step = g.number(0, 3), g.number(2, 3)
        operands = f"{g.ints(start)}, {g.ints(_FAR)}, {g.ints(2)}, {g.ints(step)}"
        y = g.emit(f"Slice ({v.name}, {operands})")
        g.made(y, v.channels, lambda t: -(-(v.length(t) - start) // step))


def padded(g: Sketch) -> None:
    """With zeros, another number, or copies; or cropped."""
    v = g.any_frames()
    assert v.length is not None
    before, behind = g.number(-2, 4), g.choose((0, 0, 0, 1, 3, -2))
    number = g.real(g.choose((0.0, 0.0, 0.7)))
    mode = g.choose(("constant",) * 6 + ("reflect", "edge"))
    y = g.emit(f'Pad <mode="{mode}"> ({v.name}, {g.ints(0, 0, before, 0, 0, behind)}, {number})')
    g.made(y, v.channels, lambda t: v.length(t) + before + behind)


def constants_in_front(g: Sketch) -> None:
    """Before the first frame, or behind the last one."""
    v, count = g.any_frames(), g.number(1, 3)
    assert v.length is not None
    values = (
        g.weights(1, v.channels, count)
        if g.chance(0.5)
        else g.constant(np.full((1, 1, count), g.choose((0.0, 0.3)), np.float32))
    )
    sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(v.channels)}, {g.ints(count)})")
    known = g.emit(f"Expand ({values}, {sizes})")
    order = f"{known}, {v.name}" if g.chance(0.8) else f"{v.name}, {known}"
    g.made(g.emit(f"Concat <axis=2> ({order})"), v.channels, lambda t: v.length(t) + count)


def stacked(g: Sketch) -> None:
    """Several frames to one, or one to several, where the lengths allow it."""
    v = g.any_frames()
    assert v.length is not None
    t = g.turned(v.name, 0, 2, 1)
    if g.chance(0.5):
        count = g.number(2, 3)
        if any(n % count for n in v.probes()):
            return
        y = g.emit(f"Reshape ({t}, {g.ints(0, -1, count * v.channels)})")
        g.made(g.turned(y, 0, 2, 1), count * v.channels, lambda t: v.length(t) // count)
    elif v.channels % 2 == 0:
        y = g.emit(f"Reshape ({t}, {g.ints(0, -1, v.channels // 2)})")
        g.made(g.turned(y, 0, 2, 1), v.channels // 2, lambda t: v.length(t) * 2)


def rearranged_freely(g: Sketch) -> None:
    """Axes in any order, merged and parted in any way: most of these lose the time axis."""
    v = g.any_frames()
    order = [int(axis) for axis in g.random.permutation(3)]
    t, c = g.turned(v.name, *order), v.channels
    targets = [
        *((0, 0, -1), (0, -1), (-1, c), (2, -1), (0, 0, 1, -1), (0, -1, 1), (1, 0, -1), (0, -1, c)),
        *((-1, 2 * c), (0, -1, 2 * c), (0, 0, 0), (0, 1, -1, c), (2, c, -1), (c, -1), (0, 2, -1)),
        *((-1, 2, c), (-1, 1), (c, -1, 2), (0, 0, -1, 2), (0, -1, 2, c), (-1, 0, 1), (-1, c, 2)),
    ]
    target = g.choose(targets)
    y, rank = g.emit(f"Reshape ({t}, {g.ints(*target)})"), len(target)
    if g.chance(0.3):
        axis = g.number(0, rank)
        y, rank = g.emit(f"Flatten <axis={axis}> ({y})"), 2
    if g.chance(0.5):
        y = g.emit(f"CumSum ({y}, {g.scalar(g.number(0, rank - 1))})")
    g.others[y] = rank


def products(g: Sketch) -> None:
    """Two values with a time axis, by operators that could sum over it."""
    v = g.any_frames()
    t, c = g.turned(v.name, 0, 2, 1), v.channels
    kind = g.number(0, 5)
    if kind == 0:
        result = g.choose(("ntc", "nt", "nc", "nct", "n"))
        y, rank = g.emit(f'Einsum <equation="ntc,ntc->{result}"> ({t}, {t})'), len(result)
    elif kind == 1:
        result = g.choose(("ntu", "ntc", "nu"))
        y, rank = g.emit(f'Einsum <equation="ntc,nuc->{result}"> ({t}, {t})'), len(result)
    elif kind == 2:
        vector = g.constant(g.random.standard_normal(c).astype(np.float32))
        y, rank = g.emit(f"MatMul ({t}, {vector})"), 2
        if g.chance(0.5):
            y = g.emit(f"MatMul ({vector}, {v.name})")
    elif kind == 3:
        order = g.choose(((2, 0, 1), (2, 1, 0)))
        a = g.turned(v.name, *order)
        y, rank = g.emit(f"MatMul ({a}, {g.turned(a, 0, 2, 1)})"), 3
    elif kind == 4:
        four = g.emit(f"Unsqueeze ({v.name}, {g.ints(g.choose((0, 1, 3)))})")
        y, rank = g.emit(f"GlobalMaxPool ({four})"), 4
    else:
        groups = g.emit(f"Reshape ({v.name}, {g.ints(0, c, 1, -1)})")
        y, rank = (
            g.emit(f"MeanVarianceNormalization <axes=[{g.choose((0, 1, 2, 3))}]> ({groups})"),
            4,
        )
    g.others[y] = rank


def repeated(g: Sketch) -> None:
    """Every frame several times, or interpolated."""
    v, factor = g.any_frames(), g.number(2, 3)
    assert v.length is not None
    how = g.choose(
        (
            'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
            'mode="nearest"',
            'mode="linear"',
        )
    )
    scales = g.constant(np.array([1, 1, factor], np.float32))
    y = g.emit(f"Resize <{how}> ({v.name}, , {scales})")
    g.made(y, v.channels, lambda t: v.length(t) * factor)


def positions(g: Sketch) -> None:
    """Numbers of frames as a feature, from a start on."""
    v, start = g.any_frames(), g.number(0, 2)
    length = g.size(v.name, 2, scalar=True)
    end = g.emit(f"Add ({length}, {g.scalar(start)})")
    numbers = g.emit(f"Range ({g.scalar(start)}, {end}, {g.scalar(1)})")
    f = g.emit(f"Mul ({g.emit(f'Cast <to=1> ({numbers})')}, {g.real(0.1)})")
    y = g.emit(f"Add ({v.name}, {g.emit(f'Sin ({f})')})")
    g.made(y, v.channels, v.length)


def spread_constant(g: Sketch) -> None:
    """What is the same for all frames, alone or beside others."""
    v = g.any_frames()
    parts = f"{g.size('x', 0)}, {g.ints(2)}, {g.size(v.name, 2)}"
    sizes = g.emit(f"Concat <axis=0> ({parts})")
    y = g.emit(f"Expand ({g.weights(1, 2, 1)}, {sizes})")
    if g.chance(0.5):
        g.made(y, 2, v.length)
    else:
        y = g.emit(f"Concat <axis=1> ({v.name}, {y})")
        g.made(y, v.channels + 2, v.length)


def repeated_constant(g: Sketch) -> None:
    """What is the same for all frames, through something that is not."""
    spread_constant(g)
    g.choose((running_sum, recurrence, padded, stacked, convolution, constants_in_front))(g)


def places(g: Sketch) -> None:
    """Other numbers of frames: from the end, of every second one, or all but some."""
    v = g.any_frames()
    length = g.size(v.name, 2, scalar=True)
    kind = g.number(0, 2)
    if kind == 0:
        numbers = g.emit(f"Range ({g.scalar(0)}, {length}, {g.scalar(1)})")
        numbers = g.emit(f"Sub ({length}, {numbers})")
    elif kind == 1:
        end = g.emit(f"Mul ({length}, {g.scalar(2)})")
        numbers = g.emit(f"Range ({g.scalar(0)}, {end}, {g.scalar(2)})")
    else:
        ones = g.emit(f"Expand ({g.ints(1)}, {g.size(v.name, 2)})")
        numbers = g.emit(f"CumSum ({ones}, {g.scalar(0)})")
    f = g.emit(f"Mul ({g.emit(f'Cast <to=1> ({numbers})')}, {g.real(0.1)})")
    y = g.emit(f"Add ({v.name}, {g.emit(f'Sin ({f})')})")
    g.made(y, v.channels, v.length)


def attention(g: Sketch) -> None:
    """By a mask, by the operator, or to everything."""
    v = g.any_frames()
    c, t = v.channels, g.turned(v.name, 0, 2, 1)
    q, k, w = (g.emit(f"MatMul ({t}, {g.weights(c, c)})") for _ in range(3))
    kind = g.choose(("causal", "causal", "window", "full", "ahead", "operator"))
    if kind == "operator":
        settings = f"is_causal={g.choose((1, 1, 0))}, q_num_heads=1, kv_num_heads=1"
        y = g.emit(f"Attention <{settings}> ({q}, {k}, {w})")
    else:
        scores = g.emit(f"MatMul ({q}, {g.turned(k, 0, 2, 1)})")
        if kind != "full":
            length = g.size(v.name, 2, scalar=True)
            numbers = g.emit(f"Range ({g.scalar(0)}, {length}, {g.scalar(1)})")
            columns = g.emit(f"Unsqueeze ({numbers}, {g.ints(0)})")
            rows = g.emit(f"Unsqueeze ({numbers}, {g.ints(1)})")
            if kind == "ahead":
                rows = g.emit(f"Add ({rows}, {g.scalar(2)})")
            seen = g.emit(f"LessOrEqual ({columns}, {rows})")
            if kind == "window":
                least = g.emit(f"Sub ({rows}, {g.scalar(g.number(1, 4))})")
                seen = g.emit(f"And ({seen}, {g.emit(f'Greater ({columns}, {least})')})")
            scores = g.emit(f"Where ({seen}, {scores}, {g.real(-np.inf)})")
        y = g.emit(f"MatMul ({g.emit(f'Softmax ({scores})')}, {w})")
    g.made(g.turned(y, 0, 2, 1), c, v.length)


def fourier(g: Sketch) -> None:
    """Frames of a Fourier transform of one channel."""
    v = g.any_frames()
    assert v.length is not None
    size, step = g.choose((4, 6, 8)), g.number(1, 3)
    one = g.emit(f"Gather <axis=1> ({v.name}, {g.scalar(0)})")
    three = g.emit(f"Unsqueeze ({one}, {g.ints(2)})")
    window = g.constant(np.hanning(size + 2)[1:-1].astype(np.float32))
    f = g.emit(f"STFT ({three}, {g.scalar(step)}, {window})")
    flat = g.emit(f"Reshape ({f}, {g.ints(0, -1, (size // 2 + 1) * 2)})")
    g.made(g.turned(flat, 0, 2, 1), size + 2, lambda t: (v.length(t) - size) // step + 1)


# Values without a time axis


def last_frame(g: Sketch) -> None:
    """The last frame, or the last few."""
    v = g.any_frames()
    kind = g.number(0, 2)
    if kind == 0:
        y, channels = g.emit(f"Gather <axis=2> ({v.name}, {g.scalar(-1)})"), v.channels
    else:
        count = g.number(1, 3)
        y = g.emit(f"Slice ({v.name}, {g.ints(-count)}, {g.ints(_FAR)}, {g.ints(2)})")
        channels = v.channels * count
        y = g.emit(f"Reshape ({y}, {g.ints(0, channels)})")
    g.made(y, channels, None)


def of_an_end(g: Sketch) -> None:
    """More nodes behind a value without a time axis."""
    if not g.ends:
        last_frame(g)
    v = g.ends[-1]
    kind = g.number(0, 3)
    if kind == 0:
        g.made(g.emit(f"MatMul ({v.name}, {g.weights(v.channels, 3)})"), 3, None)
    elif kind == 1:
        g.made(g.emit(f"Softmax ({v.name})"), v.channels, None)
    elif kind == 2:
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(v.channels)})")
        g.made(g.emit(f"Expand ({v.name}, {sizes})"), v.channels, None)
    else:
        other = g.choose(g.ends)
        y = g.emit(f"Concat <axis=1> ({v.name}, {other.name})")
        g.made(y, v.channels + other.channels, None)


def spread_end(g: Sketch) -> None:
    """A value without a time axis over all frames again."""
    if not g.ends:
        last_frame(g)
    end, v = g.ends[-1], g.any_frames()
    column = g.emit(f"Unsqueeze ({end.name}, {g.ints(2)})")
    kind = g.number(0, 4)
    if kind == 0:
        ones = g.weights(v.channels, end.channels)
        g.made(
            g.emit(f"Add ({v.name}, {g.emit(f'MatMul ({ones}, {column})')})"), v.channels, v.length
        )
        return
    if kind == 1:
        gate = g.emit(f"ReduceMean ({column}, {g.ints(1)})")
        g.made(g.emit(f"Mul ({v.name}, {gate})"), v.channels, v.length)
        return
    length = g.size(v.name, 2)
    if kind == 2:
        parts = f"{g.size('x', 0)}, {g.ints(end.channels)}, {length}"
        y = g.emit(f"Expand ({column}, {g.emit(f'Concat <axis=0> ({parts})')})")
    elif kind == 3:
        y = g.emit(f"Tile ({column}, {g.emit(f'Concat <axis=0> ({g.ints(1, 1)}, {length})')})")
    else:
        ones = g.emit(f"ConstantOfShape <value = float[1] {{1.0}}> ({length})")
        y = g.emit(f"Mul ({column}, {ones})")
    g.made(y, end.channels, v.length)


def state_of_another(g: Sketch) -> None:
    """An encoder whose last state is where a decoder begins."""
    if not g.ends:
        last_frame(g)
    end, v, hidden = g.ends[-1], g.any_frames(), 3
    start = g.emit(f"MatMul ({end.name}, {g.weights(end.channels, hidden)})")
    start = g.emit(f"Unsqueeze ({start}, {g.ints(0)})")
    x = g.turned(v.name, 2, 0, 1)
    w, r = g.weights(1, 3 * hidden, v.channels), g.weights(1, 3 * hidden, hidden)
    y, h = g.emit(f"GRU <hidden_size={hidden}> ({x}, {w}, {r}, , , {start})", 2)
    g.made(g.turned(g.emit(f"Squeeze ({y}, {g.ints(1)})"), 1, 2, 0), hidden, v.length)
    g.made(g.emit(f"Squeeze ({h}, {g.ints(0)})"), hidden, None)


# What nearly always needs the whole sequence


def over_time(g: Sketch) -> None:
    """Means, norms, sorting and products over all frames."""
    v = g.any_frames()
    kind = g.number(0, 8)
    if kind == 8:
        t = g.turned(v.name, 0, 2, 1)
        table = g.emit(f"MatMul ({v.name}, {t})")
        y = g.emit(f"MatMul ({table}, {v.name})")
    elif kind == 0:
        mean = g.emit(f"ReduceMean ({v.name}, {g.ints(2)})")
        y = g.emit(f"Sub ({v.name}, {mean})")
    elif kind == 1:
        y = g.emit(f"Softmax <axis=2> ({v.name})")
    elif kind == 2:
        y = g.emit(f"LayerNormalization <axis=2> ({v.name}, {g.weights(1)})")
    elif kind == 3:
        ones = g.weights(v.channels)
        y = g.emit(f"InstanceNormalization ({v.name}, {ones}, {ones})")
    elif kind == 4:
        g.made(g.emit(f"ReduceMax <keepdims=0> ({v.name}, {g.ints(2)})"), v.channels, None)
        return
    elif kind == 5:
        pooled = g.emit(f"GlobalAveragePool ({v.name})")
        y = g.emit(f"Mul ({v.name}, {pooled})")
    elif kind == 6:
        y, _ = g.emit(f"TopK <axis=2> ({v.name}, {g.size(v.name, 2)})", 2)
    else:
        length = g.emit(f"Cast <to=1> ({g.size(v.name, 2)})")
        y = g.emit(f"Div ({v.name}, {length})")
    g.made(y, v.channels, v.length)


def turned_around(g: Sketch) -> None:
    """The last frame first."""
    v = g.any_frames()
    operands = f"{g.ints(-1)}, {g.ints(-_FAR)}, {g.ints(2)}, {g.ints(-1)}"
    g.made(g.emit(f"Slice ({v.name}, {operands})"), v.channels, v.length)


def masked(g: Sketch) -> None:
    """Frames chosen by their numbers, counted from the start or from the end."""
    v = g.any_frames()
    length = g.size(v.name, 2, scalar=True)
    numbers = g.emit(f"Range ({g.scalar(0)}, {length}, {g.scalar(1)})")
    kind = g.number(0, 4)
    if kind == 0:
        mask = g.emit(f"Less ({numbers}, {g.scalar(g.number(1, 6))})")
    elif kind == 1:
        rest = g.emit(f"Mod ({numbers}, {g.scalar(2)})")
        mask = g.emit(f"Equal ({rest}, {g.scalar(0)})")
    elif kind == 2:
        end = g.emit(f"Sub ({length}, {g.scalar(g.number(1, 4))})")
        mask = g.emit(f"Less ({numbers}, {end})")
    elif kind == 3:
        half = g.emit(f"Div ({length}, {g.scalar(2)})")
        mask = g.emit(f"Less ({numbers}, {half})")
    else:
        fewer = g.emit(f"Min ({length}, {g.scalar(g.number(2, 9))})")
        mask = g.emit(f"Less ({numbers}, {fewer})")
    other = g.real(0.0) if g.chance(0.5) else v.name
    y = g.emit(f"Where ({mask}, {v.name}, {other})")
    g.made(y, v.channels, v.length)


def picked(g: Sketch) -> None:
    """A part of the sequence by place or by a computed size."""
    v = g.any_frames()
    assert v.length is not None
    kind = g.number(0, 4)
    if kind == 0:
        y = g.emit(f"Gather <axis=2> ({v.name}, {g.scalar(g.number(-3, 3))})")
        g.made(y, v.channels, None)
    elif kind == 1:
        half = g.emit(f"Div ({g.size(v.name, 2)}, {g.ints(2)})")
        y = g.emit(f"Slice ({v.name}, {g.ints(0)}, {half}, {g.ints(2)})")
        g.made(y, v.channels, lambda t: v.length(t) // 2)
    elif kind == 2:
        fewer = g.emit(f"Min ({g.size(v.name, 2)}, {g.ints(7)})")
        y = g.emit(f"Slice ({v.name}, {g.ints(0)}, {fewer}, {g.ints(2)})")
        g.made(y, v.channels, lambda t: min(v.length(t), 7))
    elif kind == 3:
        length = g.size(v.name, 2, scalar=True)
        end = g.emit(f"Sub ({length}, {g.scalar(2)})")
        numbers = g.emit(f"Range ({g.scalar(0)}, {end}, {g.scalar(1)})")
        y = g.emit(f"Gather <axis=2> ({v.name}, {numbers})")
        g.made(y, v.channels, lambda t: v.length(t) - 2)
    else:
        start = g.emit(f"Sub ({g.size(v.name, 2)}, {g.ints(3)})")
        y = g.emit(f"Slice ({v.name}, {start}, {g.ints(_FAR)}, {g.ints(2)})")
        y = g.emit(f"Reshape ({y}, {g.ints(0, 3 * v.channels)})")
        g.made(y, 3 * v.channels, None)


def rearranged(g: Sketch) -> None:
    """Time merged with other axes, split, tiled or joined with itself."""
    v = g.any_frames()
    assert v.length is not None
    kind, c = g.number(0, 5), v.channels
    t = g.turned(v.name, 0, 2, 1)
    if kind == 0:
        rows = g.emit(f"Reshape ({t}, {g.ints(-1, c)})")
        y = g.emit(f"MatMul ({rows}, {g.weights(c, c)})")
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.size(v.name, 2)}, {g.ints(c)})")
        g.made(g.turned(g.emit(f"Reshape ({y}, {sizes})"), 0, 2, 1), c, v.length)
    elif kind == 1:
        if any(n % 2 for n in v.probes()):
            return
        a, b = g.emit(f"Split <axis=2, num_outputs=2> ({v.name})", 2)
        g.made(g.emit(f"Add ({a}, {b})"), c, lambda t: v.length(t) // 2)
    elif kind == 2:
        y = g.emit(f"Tile ({v.name}, {g.ints(1, 1, 2)})")
        g.made(y, c, lambda t: v.length(t) * 2)
    elif kind == 3:
        y = g.emit(f"Concat <axis=2> ({v.name}, {v.name})")
        g.made(y, c, lambda t: v.length(t) * 2)
    elif kind == 4:
        # Channels and frames exchange their places without being moved.
        y = g.emit(f"Reshape ({t}, {g.ints(0, c, -1)})")
        g.made(y, c, v.length)
    else:
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(c, 1)}, {g.size(v.name, 2)})")
        four = g.emit(f"Reshape ({v.name}, {sizes})")
        g.made(g.emit(f"Squeeze ({four}, {g.ints(2)})"), c, v.length)


TAME: tuple[Block, ...] = (
    *(convolution,) * 4,
    *(recurrence,) * 3,
    *(joined,) * 4,
    *(cut, padded, pointwise, shifted, features) * 2,
    *(transposed_convolution, pooling, scan, running_sum, constants_in_front, stacked, repeated),
    *(loop, repeated_constant, rearranged_freely, products),
    *(positions, spread_constant, attention, fourier, last_frame, of_an_end),
)
WILD: tuple[Block, ...] = (
    *(spread_end, masked, picked, rearranged) * 2,
    *(over_time, turned_around, places, state_of_another),
)
