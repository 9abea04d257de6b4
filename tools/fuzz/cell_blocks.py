"""What adds states to a model: cells, windows, counters, caches of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.fuzz.cells import GROUP, SLOTS, TYPES, Cells

Block = Callable[[Cells], None]
BLOCKS: list[Block] = []


def block(weight: int = 1) -> Callable[[Block], Block]:
    """Register what adds states to a model, to be chosen as often as `weight` says."""

    def register(function: Block) -> Block:
        BLOCKS.extend([function] * weight)
        return function

    return register


def _with_vec(c: Cells, value: str) -> None:
    """Add `[N, width]` to a sequence, or keep it."""
    c.vecs.append(value)
    if c.chance(0.6):
        row = c.emit(f"Unsqueeze ({value}, {c.constant([1])})")
        c.seqs.append(c.emit(f"Add ({c.seq()}, {row})"))


@block(2)
def _recurrent(c: Cells) -> None:
    op, gates = c.choose((("GRU", 3), ("LSTM", 4), ("RNN", 1)))
    turned = c.emit(f"Transpose <perm=[1, 0, 2]> ({c.seq()})")
    weights = [c.weights(1, gates * c.width, c.width) for _ in range(2)]
    bias = c.weights(1, 2 * gates * c.width) if c.chance(0.6) else ""
    states = [c.name("s") for _ in range(2 if op == "LSTM" else 1)]
    reset = f", linear_before_reset={c.choose((0, 1))}" if op == "GRU" else ""
    operands = f"{turned}, {', '.join(weights)}, {bias}, , {', '.join(states)}"
    y, *last = c.emit(f"{op} <hidden_size={c.width}{reset}> ({operands})", 1 + len(states))
    for name, following in zip(states, last, strict=True):
        c.put(name, following, "float", 1, "N", c.width)
    steps = c.emit(f"Squeeze ({y}, {c.constant([1])})")
    c.seqs.append(c.emit(f"Transpose <perm=[1, 0, 2]> ({steps})"))


# Of a second state of a Scan: its operator, the operand beside it, and how a step reads it.
_SECOND = {"int64": ("Add", 3), "bool": ("Xor", True), "float": ("Mul", 0.5)}


@block(2)
def _scan(c: Cells) -> None:
    """A cell with a vector, and maybe a number or a flag for each row."""
    names = [c.name("s")]
    width, kind = c.width, c.choose(("", *_SECOND))
    inner = f"p = MatMul (h, {c.weights(width, width)}) q = Add (p, f) r = Tanh (q)"
    inputs, outputs = f"float[N, {width}] h", f"float[N, {width}] r"
    if kind:
        names.append(c.name("s"))
        op, value = _SECOND[kind]
        operand, axis = c.constant(value, TYPES[kind]), c.constant([1])
        inner += f" u = {op} (t, {operand}) a = Cast <to=1> (t)"
        inner += f" e = Unsqueeze (a, {axis}) y = Add (r, e)"
        inputs, outputs = f"{inputs}, {kind}[N] t", f"{outputs}, {kind}[N] u"
    else:
        inner += " y = Sub (r, h)"
    infos = f"({inputs}, float[N, {width}] f) => ({outputs}, float[N, {width}] y)"
    axes = "num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]"
    operands = ", ".join([*names, c.seq()])
    made = f"Scan <{axes}, body = body {infos} {{ {inner} }}> ({operands})"
    *after, y = c.emit(made, len(names) + 1)
    c.put(names[0], after[0], "float", "N", width)
    if kind:
        c.put(names[1], after[1], kind, "N")
    c.seqs.append(y)


@block()
def _loop(c: Cells) -> None:
    """As many steps as the caller says, none too."""
    h, w, v = c.name("s"), c.weights(c.width, c.width), c.vec()
    inner = f"p = MatMul (h, {w}) q = Add (p, {v}) r = Tanh (q) d = Identity (g)"
    infos = f"(int64 k, bool g, float[N, {c.width}] h) => (bool d, float[N, {c.width}] r)"
    yes = c.constant(True, "?")
    last = c.emit(f"Loop <body = b {infos} {{ {inner} }}> (n, {yes}, {h})")
    c.put(h, last, "float", "N", c.width)
    _with_vec(c, last)


@block(2)
def _window(c: Cells) -> None:
    """A causal convolution, whose state is the frames that it reads again."""
    name, taps = c.name("s"), c.choose((2, 3, 5))
    turned = c.emit(f"Transpose <perm=[0, 2, 1]> ({c.seq()})")
    joined = c.emit(f"Concat <axis=2> ({name}, {turned})")
    groups = c.choose((1, c.width))
    weights = c.weights(c.width, c.width // groups, taps)
    y = c.emit(f"Conv <group={groups}> ({joined}, {weights})")
    far = c.constant([2**40])
    tail = f"{c.constant([1 - taps])}, {far}, {c.constant([2])}"
    c.put(name, c.emit(f"Slice ({joined}, {tail})"), "float", "N", c.width, taps - 1)
    c.seqs.append(c.emit(f"Transpose <perm=[0, 2, 1]> ({y})"))


@block(2)
def _delays(c: Cells) -> None:
    """States that become each other."""
    names = [c.name("s") for _ in range(c.choose((1, 2, 3)))]
    values = [c.vec(), *names[:-1]]
    if c.chance(0.4):
        values = names[1:] + names[:1]
        place = int(c.random.integers(len(values)))
        values[place] = c.layer(values[place])
    for name, value in zip(names, values, strict=True):
        c.put(name, value, "float", "N", c.width)
    _with_vec(c, c.emit(f"Sub ({names[-1]}, {c.vec()})"))


@block(2)
def _counted(c: Cells) -> None:
    """Numbers and flags."""
    name, kind = c.name("s"), c.choose(("int64", "int32", "uint8", "bool"))
    if kind == "bool":
        above = c.emit(f"Greater ({c.vec()}, {c.constant(0.3, 'f4')})")
        op = c.choose(("Or", "Xor", "And"))
        following = c.emit(f"{op} ({name}, {above})")
        chosen = c.emit(f"Where ({c.choose((name, following))}, {c.vec()}, {c.vec()})")
    else:
        step = c.constant(c.choose((1, 100)), TYPES[kind])
        following = c.emit(f"Add ({name}, {step})")
        chosen = c.emit(f"Mul ({c.cast(name, 'float')}, {c.constant(0.01, 'f4')})")
        chosen = c.emit(f"Add ({chosen}, {c.vec()})")
    c.put(name, following, kind, "N", c.width)
    _with_vec(c, chosen)


@block(2)
def _averaged(c: Cells) -> None:
    """A state that decays, of any floating type, in any order of its axes."""
    name, kind = c.name("s"), c.choose(("float", "float16", "double"))
    wide, turned = c.cast(name, "float"), c.chance(0.3)
    value = c.emit(f"Transpose ({c.vec()})") if turned else c.vec()
    decay = c.constant(0.75, "f4")
    mean = c.emit(f"Add ({c.emit(f'Mul ({wide}, {decay})')}, {value})")
    following = c.cast(mean, kind)
    sizes: tuple[int | str, ...] = (c.width, "N") if turned else ("N", c.width)
    c.put(name, following, kind, *sizes)
    _with_vec(c, c.emit(f"Transpose ({mean})") if turned else mean)


@block(3)
def _written(c: Cells) -> None:
    """A cache of fixed length, of which a step writes a row, or two."""
    name, how = c.name("s"), c.choose(("elements", "nd", "elements", "reduced"))
    rows = c.emit(f"Unsqueeze ({c.vec()}, {c.constant([1])})")
    place, one = c.index(), c.constant([1])
    if how == "nd":
        column = c.emit(f"Unsqueeze ({place}, {one})")
        shape = c.emit(f"Shape ({place})")
        count = c.emit(f"Squeeze ({shape})")
        batch = c.emit(f"Range ({c.constant(0)}, {count}, {c.constant(1)})")
        pairs = c.emit(f"Concat <axis=1> ({c.emit(f'Unsqueeze ({batch}, {one})')}, {column})")
        following = c.emit(f"ScatterND ({name}, {pairs}, {c.vec()})")
    else:
        column = c.emit(f"Unsqueeze ({place}, {c.constant([1, 2])})")
        sizes = c.emit(f"Shape ({rows})")
        places = c.emit(f"Expand ({column}, {sizes})")
        reduction = ', reduction="add"' if how == "reduced" else ""
        following = c.emit(f"ScatterElements <axis=1{reduction}> ({name}, {places}, {rows})")
    read = following if c.chance(0.7) else name
    c.put(name, following, "float", "N", SLOTS, c.width)
    _with_vec(c, _read(c, read))


def _read(c: Cells, rows: str, length: str = "") -> str:
    """`[N, width]` of rows `[N, count, width]`, of which there may be none in the beginning.

    length: of a cache whose rows they are; an input may mask them.
    """
    how = c.choose(("sum", "mean", "attend", "attend"))
    if how != "attend":
        op = {"sum": "ReduceSum", "mean": "ReduceSumSquare"}[how]
        return str(c.emit(f"{op} <keepdims=0> ({rows}, {c.constant([1])})"))
    query = c.emit(f"Unsqueeze ({c.vec()}, {c.constant([2])})")
    scores = c.emit(f"MatMul ({rows}, {query})")
    is_masked = bool(length) and c.chance(0.3)
    if is_masked:
        mask = c.emit(f"Unsqueeze (m{length}, {c.constant([2])})")
        scores = c.emit(f"{c.choose(('Add', 'Mul'))} ({scores}, {mask})")
    shares = c.emit(f"Softmax <axis=1> ({scores})")
    mixed = c.emit(f"Mul ({rows}, {shares})")
    vec = str(c.emit(f"ReduceSum <keepdims=0> ({mixed}, {c.constant([1])})"))
    if is_masked:
        # An input of which nothing follows has any size in a stream, and one in a pool.
        c.results.append(vec)
    return vec


def _length(c: Cells) -> str:
    """The name of a number of rows: a new one, or that of another cache."""
    if c.lengths and c.chance(0.6):
        return str(c.choose(c.lengths))
    c.lengths.append(f"P{len(c.lengths)}")
    return c.lengths[-1]


@block(3)
def _grown(c: Cells) -> None:
    """Rows of every frame so far."""
    past, kind = c.name("s"), c.choose(("float", "float", "float16", "int64"))
    new, length, in_front = c.seq(), _length(c), c.chance(0.2)
    order = c.choose(((0, 1, 2), (0, 1, 2), (0, 2, 1), (1, 0, 2)))
    if kind == "int64":
        new = c.emit(f"Mul ({new}, {c.constant(8.0, 'f4')})")
    if kind != "float":
        new = c.cast(new, kind)
    axis = order.index(1)
    turned = c.emit(f"Transpose <perm={list(order)}> ({new})") if axis != 1 or order[0] else new
    pair = (turned, past) if in_front else (past, turned)
    present = c.emit(f"Concat <axis={axis}> ({', '.join(pair)})")
    named: tuple[int | str, ...] = ("N", length, c.width)
    sizes = tuple(named[a] for a in order)
    c.put(past, present, kind, *sizes, axis=axis, in_front=in_front)
    back = [order.index(a) for a in range(3)]
    rows = present if back == [0, 1, 2] else c.emit(f"Transpose <perm={back}> ({present})")
    if kind != "float":
        rows = c.cast(rows, "float")
    if c.chance(0.25):
        # One row of each, which is not there yet in a first step.
        place = c.emit(f"Min (i, {c.constant(1)})")
        place = c.emit(f"Unsqueeze ({place}, {c.constant([1])})")
        _with_vec(c, c.emit(f"GatherND <batch_dims=1> ({rows}, {place})"))
    else:
        _with_vec(c, _read(c, rows, length))


@block()
def _stacked(c: Cells) -> None:
    """The caches of several layers in one state."""
    past, length, layers = c.name("s"), _length(c), c.choose((2, 3))
    axis = c.choose((0, 0, 2))
    first, stack = c.constant([axis]), []
    names = ("N", length, c.width)
    for layer in range(layers):
        rows = c.emit(f"Gather <axis={axis}> ({past}, {c.constant(layer)})")
        present = c.emit(f"Concat <axis=1> ({rows}, {c.seq()})")
        stack.append(c.emit(f"Unsqueeze ({present}, {first})"))
        _with_vec(c, _read(c, present, length))
    sizes: tuple[int | str, ...] = (*names[:axis], layers, *names[axis:])
    grown = 2 if axis == 0 else 1
    following = c.emit(f"Concat <axis={axis}> ({', '.join(stack)})")
    c.put(past, following, "float", *sizes, axis=grown)


@block()
def _reordered(c: Cells) -> None:
    """Rows that change their places in the batch, as the beams of a search do, or in a group."""
    past, length = c.name("s"), _length(c)
    if c.chance(0.5):
        moved = c.emit(f"Gather <axis=0> ({past}, b)")
        present = c.emit(f"Concat <axis=1> ({moved}, {c.seq()})")
        c.put(past, present, "float", "N", length, c.width, axis=1, moves=True)
    else:
        moved = c.emit(f"Gather <axis=1> ({past}, o)")
        new = c.emit(f"Unsqueeze ({c.seq()}, {c.constant([1])})")
        new = c.emit(f"Concat <axis=1> ({new}, {c.emit(f'Neg ({new})')}, {new})")
        whole = c.emit(f"Concat <axis=2> ({moved}, {new})")
        c.put(past, whole, "float", "N", GROUP, length, c.width, axis=2, moves=True)
        present = c.emit(f"ReduceMax <keepdims=0> ({whole}, {c.constant([1])})")
    _with_vec(c, _read(c, present, length))


@block()
def _looked_up(c: Cells) -> None:
    """Rows of a table, at indices that need not exist."""
    c.vecs.append(c.emit(f"Gather ({c.weights(SLOTS, c.width)}, i)"))


@block()
def _mapped(c: Cells) -> None:
    c.seqs.append(c.layer(c.seq()))


def random_cells(random: np.random.Generator) -> Cells:
    """Blocks, which have one state at least."""
    c = Cells(random, width=int(random.choice((2, 3, 4, 8, 17))))
    for _ in range(int(c.choose((1, 2, 2, 3, 4)))):
        c.choose(BLOCKS)(c)
    if not c.states:
        _delays(c)
    return c
