"""Lay operands of reductions out in the order in which their kernel reads them.

A kernel that accumulates `G` sums over `k` for groups of `L` lanes reads, for each group, for each
`k`, for each sum, `L` neighbouring elements:

    packed[group][k][sum][lane]        instead of  W[lane + L * group + N * sum][k]

so the whole operand is one stream, and elements that are needed at the same time lie side by side;
where the sums are divided among several loops, each loop has such a stream. Other axes of the
operand, groups of channels for instance, are the outermost. Lanes beyond the end of the axis are
filled with zeros.

Bytes that fit into four or two bits are packed into words along the sum (`schedule.fields`), and so
are all bytes that need no conversion then (`schedule.float_fields`) and bfloat16.

Constants are packed once, while compiling. So are the copies that `relayout` makes of computed
values or inputs: their writer writes this order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from ostinato.machine.record import Machine
from ostinato.program.expr import Access, Axis, Expr, Load, constant, rewrite, walk
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.laid import Contents, Laid, Piece
from ostinato.program.nodes import Buffer, Program, Stmt, expand_kernels, map_kernels
from ostinato.schedule.byte_fields import ByteField, byte_field
from ostinato.schedule.fields import AnyField, cut_for_fields
from ostinato.schedule.half_fields import HalfField
from ostinato.schedule.index_maps import Affine, Map, place_of, replace_axes, substitute
from ostinato.schedule.operands import Panel
from ostinato.schedule.shapes import sums_at_once
from ostinato.sizes.dims import Size, floordiv, is_nonnegative, product


def pack(program: Program, machine: Machine) -> Program:
    """Repack the constant operands of every tiled reduction, and the copies that it reads."""
    packing = _Packing(program, machine)
    body = expand_kernels(map_kernels(program.body, packing.kernel), packing.written)
    return program.with_body(body, packing.buffers, packing.constants)


class _Packing:
    """The buffers and constants of a program while its operands are packed."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.buffers, self.constants = dict(program.buffers), dict(program.constants)
        self._merges_bits = machine.merges_bits
        kernels = program.kernels()
        self._copies = {n: k for k in kernels for n in k.writes() if self.buffers[n].is_copy}
        # For each kernel that makes a copy, by name, the kernels that write panels in its place.
        self._writers: dict[str, dict[str, tuple[Kernel, ...]]] = {}
        # Kernels that read the same in the same order, such as the steps of an unrolled loop, share
        # a panel: what one step has read is in the cache for the next.
        self._laid: dict[tuple[Laid, tuple[int, ...]], str] = {}

    def kernel(self, kernel: Kernel) -> Kernel:
        """Let a kernel read packed operands."""
        fields: dict[Axis, AnyField]
        kernel, fields = cut_for_fields(
            kernel, panels(kernel, self.buffers), self.buffers, self.constants, self._merges_bits
        )
        for number, panel in enumerate(panels(kernel, self.buffers)):
            field = fields.get(panel.inner[-1]) if panel.inner else None
            kernel = self._reading(kernel, panel, f"packed.{kernel.name}.{number}", field)
        return kernel

    def written(self, kernel: Kernel) -> Iterable[Stmt]:
        """What runs in place of a kernel whose copy is packed."""
        made = self._writers.get(kernel.name)
        return (kernel,) if made is None else chain(*made.values())

    def _reading(self, kernel: Kernel, panel: Panel, name: str, field: AnyField | None) -> Kernel:
        """Pack a panel, and let the kernel read it."""
        loads, constants = panel.loads, self.constants
        if loads[0].access.buffer in self._copies:
            return self._reading_copies(kernel, panel, f"copy.{name}")
        if field is not None and field.holds(loads, constants):
            values, words = _words(panel, kernel, constants, field)
            name = self._constant(name, panel, (values, field.form), words, field.word)
            panel = replace(panel, inner=panel.inner[: -len(field.axes)])
            return _reading(kernel, panel, name, field)
        values, shared = _packed(panel, kernel, constants), byte_field(loads, constants)
        if shared is not None:
            words = _in_one(panel, values, shared)
            name = self._constant(name, panel, (values, shared.form), words, "int32")
            return _reading_words(kernel, panel, name, shared)
        name = self._constant(name, panel, (values, ()), values, loads[0].dtype)
        return _reading(kernel, panel, name)

    def _reading_copies(self, kernel: Kernel, panel: Panel, name: str) -> Kernel:
        copied = [self._copies[load.access.buffer].name for load in panel.loads]
        first, *_ = [self._writers.setdefault(writer, {}) for writer in copied]
        first[name] = _writers(panel, kernel, self._copies, name)
        size = product(_extents(panel)) * len(panel.loads)
        self._add(Buffer(name, panel.loads[0].dtype, size, "arena", True, is_copy=True), panel)
        return _reading(kernel, panel, name)

    def _constant(
        self,
        name: str,
        panel: Panel,
        what: tuple[Laid, tuple[int, ...]],
        words: Contents,
        dtype: str,
    ) -> str:
        """Add the constant of a panel; returns its name, which others of the same have as well."""
        name = self._laid.setdefault(what, name)
        self.constants[name] = words
        self._add(Buffer(name, dtype, words.size, "constant", True), panel)
        return name

    def _add(self, buffer: Buffer, panel: Panel) -> None:
        names = [load.access.buffer for load in panel.loads]
        sources = tuple(dict.fromkeys(s for n in names for s in self.buffers[n].sources))
        self.buffers[buffer.name] = replace(buffer, sources=sources)


def panels(kernel: Kernel, buffers: Mapping[str, Buffer]) -> list[Panel]:
    """The operands of a kernel that can be packed, by the loop in which they are read."""
    tile = kernel.tile
    if tile is None or tile.lane is None:
        return []
    by_loop: dict[tuple[int, tuple[Axis, ...], tuple[Axis, ...], str, str], list[Load]] = {}
    seen: set[Load] = set()
    for reduce, loop in zip(kernel.reductions, _loops(kernel, tile), strict=True):
        for node in walk(*reduce.operands):
            if not isinstance(node, Load) or node in seen:
                continue
            buffer = buffers[node.access.buffer]
            if buffer.kind != "constant" and not buffer.is_copy:
                continue
            around = tuple(
                axis
                for axis in kernel.axes
                if axis not in (tile.lane, tile.block) and node.access.stride(axis) != 0
            )
            if _can_move(node, reduce, kernel, around, buffer):
                key = loop, around, _inner(node, reduce), node.dtype, buffer.kind
                by_loop.setdefault(key, []).append(node)
                seen.add(node)
    return [
        Panel(around, tile.block, tile.lane, inner, tuple(loads))
        for (_, around, inner, *_), loads in by_loop.items()
    ]


def _loops(kernel: Kernel, tile: Tile) -> list[int]:
    """For each sum the number of the loop that adds its terms, among those along the same axes."""
    count = Counter(reduce.axes for reduce in kernel.reductions)
    met: Counter[tuple[Axis, ...]] = Counter()
    loops = []
    for reduce in kernel.reductions:
        together = sums_at_once(count[reduce.axes], tile.height * tile.vectors, tile.held)
        loops.append(met[reduce.axes] // together)
        met[reduce.axes] += 1
    return loops


def _inner(load: Load, reduce: Reduce) -> tuple[Axis, ...]:
    return tuple(axis for axis in reduce.axes if load.access.stride(axis) != 0)


def _can_move(
    load: Load, reduce: Reduce, kernel: Kernel, around: tuple[Axis, ...], buffer: Buffer
) -> bool:
    """Whether an operand differs by lane, and packing it repeats no element."""
    assert kernel.tile is not None and kernel.tile.lane is not None
    axes = [axis for axis, _ in load.access.terms]
    if kernel.tile.lane not in axes or load.mask is not None or load.index:
        return False
    if not set(axes) <= {*kernel.axes, *reduce.axes}:
        return False
    if {kernel.tile.row, kernel.tile.across} & {*around}:
        return False
    if buffer.kind != "constant":
        return True
    # A slice of a constant that begins where only a run knows may lie anywhere in it.
    extents = [axis.extent for axis in (*axes, *reduce.axes)]
    strides = [stride for _, stride in load.access.terms]
    if not all(isinstance(size, int) for size in (load.access.offset, *strides, *extents)):
        return False
    # Windows over a constant overlap: packing would repeat elements and take more memory.
    own = [a.extent for a in (*around, *_inner(load, reduce))]
    limit = kernel.tile.limit
    lanes = kernel.tile.lane.extent * (kernel.tile.block.extent if kernel.tile.block else 1)
    points = product([*own, lanes if limit is None else limit])
    return not around or is_nonnegative(buffer.size - points)


def _extents(panel: Panel) -> tuple[Size, ...]:
    axes = [*panel.outer, *([panel.block] if panel.block else []), *panel.inner, panel.lane]
    return tuple(axis.extent for axis in axes)


def _words(
    panel: Panel, kernel: Kernel, constants: Mapping[str, Contents], field: AnyField
) -> tuple[Laid, Contents]:
    """Lay the operands out, and pack them into words."""
    if isinstance(field, HalfField):
        halves = _packed(panel, kernel, constants, are_pairs=True)
        return halves, field.packed(halves)
    values = _packed(panel, kernel, constants)
    *outer, group = _known(_extents(panel))
    words = field.packed(
        values.elements().reshape(*outer, len(panel.loads), group), len(outer) - len(field.axes)
    )
    return values, words.reshape(-1)


def _in_one(panel: Panel, values: Laid, field: ByteField) -> np.ndarray:
    """Pack neighbouring words of an operand into one."""
    *outer, group = _known(_extents(panel))
    groups = len(panel.loads) // field.count
    words = values.elements().reshape(*outer, groups, field.count, group)
    return field.packed(words).reshape(-1)


def _packed(
    panel: Panel, kernel: Kernel, constants: Mapping[str, Contents], *, are_pairs: bool = False
) -> Laid:
    """Lay the operands out as `[outer.., block, inner.., load, lane]`.

    are_pairs: what is along the last inner axis lies side by side, behind the lanes.
    """
    assert kernel.tile is not None
    *outer, group = _known(_extents(panel))
    apart = outer[:-1] if are_pairs else outer
    inside = outer[len(apart) :]
    shape = (*apart, len(panel.loads), group, *inside)
    *steps, across, near = [math.prod(shape[axis + 1 :]) for axis in range(len(apart) + 2)]
    steps += [1] * len(inside)
    # Blocks come first, as where lanes are counted.
    step = steps.pop(len(panel.outer)) if panel.block else 0
    (blocks,) = _known([panel.block.extent if panel.block else 1])
    (points,) = _known([blocks * group if kernel.tile.limit is None else kernel.tile.limit])
    full, rest = divmod(points, group)
    others = (*panel.outer, *panel.inner)
    extents = _known(axis.extent for axis in others)
    pieces: list[Piece] = []
    for number, load in enumerate(panel.loads):
        name, (start,), place = load.access.buffer, _known([load.access.offset]), number * across
        lane, *strides = _known(load.access.stride(axis) for axis in (panel.lane, *others))
        taken, to = (lane * group, *strides, lane), (step, *steps, near)
        pieces.append(Piece(name, start, taken, place, to, (full, *extents, group)))
        if rest:
            start, place = start + full * lane * group, place + full * step
            pieces.append(Piece(name, start, taken[1:], place, to[1:], (*extents, rest)))
    sources = {load.access.buffer: constants[load.access.buffer] for load in panel.loads}
    dtype = constants[panel.loads[0].access.buffer].dtype
    return Laid(dtype, math.prod(shape), tuple(pieces), sources)


def _known(sizes: Iterable[Size]) -> list[int]:
    """The sizes around constants as numbers."""
    return [int(size) for size in sizes if isinstance(size, int)]


def _access(panel: Panel, name: str, number: int) -> Access:
    """The access of a panel's load `number` to the packed operands."""
    group = panel.lane.extent
    step = group * len(panel.loads)
    terms: list[tuple[Axis, Size]] = [(panel.lane, 1)]
    inner = reversed(panel.inner)
    for axis in (*inner, *([panel.block] if panel.block else []), *reversed(panel.outer)):
        terms.append((axis, step))
        step = step * axis.extent
    return Access(name, group * number, tuple(terms))


def _reading(kernel: Kernel, panel: Panel, name: str, field: AnyField | None = None) -> Kernel:
    """Let the kernel read the packed operands, which may be fields of words."""
    packed: dict[Expr, Expr] = {}
    for number, load in enumerate(panel.loads):
        access = _access(panel, name, number)
        if field is None:
            packed[load] = Load(access, load.dtype)
            continue
        packed |= field.readings(load, Load(access, field.word))
    return _replaced(kernel, panel, packed)


def _reading_words(kernel: Kernel, panel: Panel, name: str, field: ByteField) -> Kernel:
    """Let the kernel read packed words of which some are in one."""
    firsts = replace(panel, loads=panel.loads[:: field.count])
    packed: dict[Expr, Expr] = {}
    for number, load in enumerate(panel.loads):
        word, place = divmod(number, field.count)
        packed[load] = field.reading(Load(_access(firsts, name, word), load.dtype), place)
    return _replaced(kernel, panel, packed)


def _replaced(kernel: Kernel, panel: Panel, packed: Mapping[Expr, Expr]) -> Kernel:
    """The kernel with other loads in the sums that read a panel."""
    leaf = packed.get

    def reduce(r: Reduce) -> Reduce:
        if not set(panel.inner) <= set(r.axes):
            return r
        return r.map(lambda operand: rewrite(operand, leaf))

    return replace(kernel, reductions=tuple(reduce(r) for r in kernel.reductions))


def _writers(
    panel: Panel, kernel: Kernel, copies: Mapping[str, Kernel], name: str
) -> tuple[Kernel, ...]:
    """Kernels that write the panel in place of the copies that it consists of.

    One for full groups of lanes, one for a group that the axis does not fill, one for the zeros in
    the rest of it: so none of the three needs a mask.
    """
    assert kernel.tile is not None
    lane, block, limit = panel.lane, panel.block, kernel.tile.limit
    group = lane.extent
    stores: list[Store] = []
    for number, load in enumerate(panel.loads):
        (copied,) = copies[load.access.buffer].stores
        value = substitute(copied.value, _point(panel, kernel, load.access, copied.access))
        stores.append(Store(_access(panel, name, number), value))
    blocks = () if block is None else (block,)
    # Read operands in the order in which they lie in memory.
    near = all(
        load.access.stride(lane) == 1
        for load in walk(*(s.value for s in stores))
        if isinstance(load, Load)
    )
    axes = (*panel.outer, *panel.inner, *blocks, lane)
    if not near:
        axes = (*panel.outer, *blocks, *panel.inner, lane)
    whole = Kernel(name, axes, (), tuple(stores), sources=kernel.sources)
    if limit is None:
        return (whole,)
    full = floordiv(limit, group)
    used = limit - full * group
    padding = (group if block is None else block.extent * group) - limit
    last: Map = {} if block is None else {block: Affine(full, ())}
    zero = tuple(replace(s, value=constant(0, panel.loads[0].dtype)) for s in stores)
    result = [
        replace_axes(replace(whole, name=f"{name}.rest"), {**last, lane: _part(lane, 0, used)}),
        replace_axes(
            replace(whole, name=f"{name}.zeros", stores=zero),
            {**last, lane: _part(lane, used, padding)},
        ),
    ]
    if block is not None and full != 0:
        result.insert(0, replace_axes(whole, {block: _part(block, 0, full)}))
    return tuple(result)


def _point(panel: Panel, kernel: Kernel, read: Access, copied: Access) -> Map:
    """Express the point of a copy that a kernel reads in axes of the panel.

    The copy has the axes that the kernel had before some became lanes, or sums of their own.
    """
    first = place_of(copied, read.offset)
    own = {*kernel.axes, *panel.inner}
    along: tuple[tuple[Axis, Size], ...] = ((panel.lane, 1),)
    if panel.block is not None:
        along += ((panel.block, panel.lane.extent),)
    images: dict[Axis, Affine] = {}
    for axis, stride in copied.terms:
        terms = along if stride == read.stride(panel.lane) else ()
        terms = ((axis, 1),) if axis in own else terms
        images[axis] = Affine(first[axis], terms)
    return images


def _part(axis: Axis, start: Size, extent: Size) -> Affine:
    return Affine(start, ((Axis(axis.name, extent), 1),))
