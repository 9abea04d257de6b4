"""Blocks that compute along time: convolutions, pools, recurrences, running sums."""

from __future__ import annotations

from tools.fuzz.stream_sketch import Sketch, Value


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
