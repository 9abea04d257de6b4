"""Kernels of the loop program: what they compute for each point, and how they are tiled."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ostinato.program.expr import (
    FLOATS,
    Access,
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Load,
    Op,
    Reduced,
    constant,
    dtype_of,
    op,
    rewriter,
    walk,
)
from ostinato.program.functions import operations
from ostinato.program.words import loads_at_once
from ostinato.records import cached_property, dataclass
from ostinato.sizes import dims
from ostinato.sizes.dims import Size


@dataclass(frozen=True)
class Reduce:
    """A reduction over `axes` (outermost first) of `expr`, or of its products with `factor`.

    combine: "sum", "max", "min", "prod", or "larger": the first of the largest elements, NaN aside
        (first in the order of accumulation). With a `factor` it is "sum" and each step is
        `fma(expr, factor, accumulator)`, rounded once; for int32, whose elements are then four
        bytes each, `dot(expr, factor, accumulator)`, or two int16 each, `dot_pairs`.
    chains: number of interleaved accumulators: element `k` of the last axis goes to accumulator
        `k % chains`; afterwards accumulators `i` and `i + n/2` are combined, n halving from
        `chains` to 2. With 1, elements are accumulated one after the other. The order is part of
        the meaning.
    pairs: whether the elements of a product of int32 are two int16 each.
    """

    axes: tuple[Axis, ...]
    combine: str
    expr: Expr
    factor: Expr | None = None
    chains: int = 1
    pairs: bool = False

    @property
    def dtype(self) -> str:
        return dtype_of(self.expr)

    @property
    def operator(self) -> str:
        """The primitive that combines two results."""
        return {"sum": "add", "prod": "mul"}.get(self.combine, self.combine)

    @property
    def step(self) -> str:
        """The operation by which a product joins the accumulator."""
        if self.dtype in FLOATS:
            return "fma"
        return "dot_pairs" if self.pairs else "dot"

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.factor is None else (self.expr, self.factor)

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every distinct expression of the operands."""
        return tuple(walk(*self.operands))

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """The loads of the operands; a word of neighbouring bytes counts as its first byte."""
        return tuple(loads_at_once(*self.operands))

    def map(self, change: Callable[[Expr], Expr]) -> Reduce:
        """The reduction with its operands changed."""
        factor = None if self.factor is None else change(self.factor)
        expr = change(self.expr)
        is_same = expr is self.expr and factor is self.factor
        return self if is_same else replace(self, expr=expr, factor=factor)


@dataclass(frozen=True)
class Store:
    """Writes `value` to memory at `access`; where `mask` is false, memory is not touched.

    index: computed positions: each value of int64 or uint8, times its stride, is added to the
        address.
    """

    access: Access
    value: Expr
    mask: Expr | None = None
    index: tuple[tuple[Expr, Size], ...] = ()

    @property
    def partial(self) -> bool:
        """Whether values decide which elements are written, by a mask or a computed position."""
        return self.mask is not None or bool(self.index)

    def expressions(self) -> tuple[Expr, ...]:
        """All root expressions: the value, the mask, the computed positions."""
        mask = () if self.mask is None else (self.mask,)
        return (self.value, *mask, *(position for position, _ in self.index))

    def map(self, change: Callable[[Expr], Expr]) -> Store:
        """The store with every root expression changed."""
        mask = None if self.mask is None else change(self.mask)
        index = tuple([(change(position), stride) for position, stride in self.index])
        value = change(self.value)
        is_same = value is self.value and mask is self.mask and index == self.index
        return self if is_same else Store(self.access, value, mask, index)


@dataclass(frozen=True)
class Tile:
    """Tiling of a kernel into registers. It has no meaning: every tiling gives the same bits.

    lane: the axis whose points are computed together in vectors; its extent is `width * vectors`.
        None for kernels of scalars and for reductions in chains, whose lanes are the chains.
    block: the parallel axis that counts groups of lanes, where an axis was split.
    limit: the extent of the axis before it was padded to whole groups; None if it was not padded.
    row, rows: a parallel axis, and how many of its points share what is loaded along the lanes.
    even: whether rows of a known number are spread evenly over the tiles, instead of filling all
        tiles but the last.
    across: a short axis, such as the pixels of a narrow image, of which a tile has all points for
        each of its rows.
    other: an axis that takes the place of `row` in runs where it is longer.
    enough: how many points are enough for `row` to keep its place; None for no such number.
    groups: how many groups of lanes are computed together in runs where `row` has a single point,
        whose multiply-adds alone would wait for each other; 1 for no such variant.
    inside: axes that pass before the next group of lanes begins; all others run around the groups.
    chunk: how many points of the outermost of `inside`, or of `row`, pass before the next group of
        lanes begins, so that what all groups read stays in a cache; None for all.
    depth: how many steps of the outermost axis of long sums all tiles add before any continues, so
        that what tiles share stays in a cache; None for all.
    kept: for each sum, the store whose memory holds its partial results between pieces of `depth`.
    turned: whether operands of sums that lie across the lanes are loaded several terms at once and
        transposed in registers; of one vector.
    held: the accumulator budget of a loop, in vectors, where several sums over the same axes are
        divided among several loops; None for all sums in one loop.
    serpentine: the axis of the loop around, if groups of lanes run backwards in every other step;
        `CALL`, if they do so in every other run.
    """

    lane: Axis | None
    width: int
    vectors: int = 1
    block: Axis | None = None
    limit: Size | None = None
    row: Axis | None = None
    rows: int = 1
    even: bool = False
    serpentine: Axis | None = None
    other: Axis | None = None
    enough: int | None = None
    inside: tuple[Axis, ...] = ()
    chunk: int | None = None
    depth: int | None = None
    kept: tuple[int, ...] = ()
    held: int | None = None
    groups: int = 1
    across: Axis | None = None
    turned: bool = False

    @property
    def breadth(self) -> int:
        """Points of a row in a tile, beside those of the lanes."""
        if self.across is None:
            return 1
        assert isinstance(self.across.extent, int)
        return self.across.extent

    @property
    def height(self) -> int:
        """Points of a full tile that share what is loaded along the lanes."""
        return self.rows * self.breadth


@dataclass(frozen=True)
class Kernel:
    """For every point of `axes`: evaluate the reductions, then the stores.

    A point evaluates everything before it writes. Points are independent: no point reads or writes
    what another one writes. `guard`, where given, excludes points (used to pad an axis to whole
    vectors). `sources` names the model's nodes it came from.

    ordered: axes along which points run one after the other, in lexicographic order, and may read
        and overwrite what those before them wrote. Points that differ along any other axis still
        are independent, so nesting these axes in any way gives the same. No reductions then.
    """

    name: str
    axes: tuple[Axis, ...]
    reductions: tuple[Reduce, ...]
    stores: tuple[Store, ...]
    guard: Expr | None = None
    sources: tuple[str, ...] = ()
    tile: Tile | None = None
    ordered: tuple[Axis, ...] = ()

    def expressions(self) -> tuple[Expr, ...]:
        """All root expressions: operands of the reductions, those of the stores, the guard."""
        roots = [*self.operands]
        roots += [e for s in self.stores for e in s.expressions()]
        return tuple(roots if self.guard is None else [*roots, self.guard])

    def loads(self) -> Iterator[Load]:
        """Every distinct load of the kernel."""
        return iter(self._loads)

    def extending(self, part: Kernel) -> Kernel:
        """Return this kernel, which has all expressions of `part`: only the others are walked.

        So a kernel that grows by one operation after the other is analysed in linear time.
        """
        new = tuple(walk(*self.expressions(), skip=part.nodes))
        self.__dict__.update(
            nodes=part.nodes.union(new),
            loaded=part.loaded.union(_loads_of(new)),
            work=part.work + _work_of(new),
            _node_sizes=part._node_sizes | _sizes_of(new),
        )
        return self

    @cached_property
    def nodes(self) -> frozenset[Expr]:
        """Every distinct expression of the kernel."""
        return frozenset(self._in_order)

    @cached_property
    def _in_order(self) -> tuple[Expr, ...]:
        return tuple(walk(*self.expressions()))

    @cached_property
    def loaded(self) -> frozenset[Load]:
        """The loads, in no order; found without a walk where the nodes are known."""
        return frozenset(_loads_of(self.nodes))

    @cached_property
    def _loads(self) -> tuple[Load, ...]:
        return tuple(_loads_of(self._in_order))

    def loads_from(self, buffer: str) -> tuple[Load, ...]:
        """The loads from one buffer, in the order of `loads`."""
        return self._loads_from.get(buffer, ())

    @cached_property
    def _loads_from(self) -> Mapping[str, tuple[Load, ...]]:
        found = dict[str, list[Load]]()
        for load in self._loads:
            found.setdefault(load.access.buffer, []).append(load)
        return {buffer: tuple(loads) for buffer, loads in found.items()}

    @cached_property
    def loaded_from(self) -> Mapping[str, int]:
        """How many loads there are from each buffer; found without a walk if nodes are known."""
        return Counter([load.access.buffer for load in self.loaded])

    @cached_property
    def operands(self) -> tuple[Expr, ...]:
        """What all reductions add up or multiply."""
        return tuple([operand for reduce in self.reductions for operand in reduce.operands])

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """The addresses of all loads, then those of all stores."""
        loads = [load.access for load in self.loads()]
        return (*loads, *[store.access for store in self.stores])

    @cached_property
    def summed_axes(self) -> frozenset[Axis]:
        """The axes of its reductions."""
        return frozenset([axis for reduce in self.reductions for axis in reduce.axes])

    @cached_property
    def own_axes(self) -> frozenset[Axis]:
        """The axes of its points and of its reductions, not those of loops around it."""
        return self.summed_axes.union(self.axes)

    @cached_property
    def summed(self) -> tuple[Load, ...]:
        """The loads of the operands of all reductions, as `Reduce.loads`."""
        return tuple(dict.fromkeys(load for reduce in self.reductions for load in reduce.loads))

    @cached_property
    def work(self) -> int:
        """Loads and operations of a point; a function counts as many as it has primitives."""
        return _work_of(self.nodes)

    def reads(self) -> frozenset[str]:
        """Names of the buffers read, and of those of which a store may leave elements as is."""
        return self._reads

    @cached_property
    def _reads(self) -> frozenset[str]:
        kept = {store.access.buffer for store in self.stores if store.partial}
        return self.sizes.union(kept, (load.access.buffer for load in self.loaded))

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Names of the computed sizes that the kernel depends on."""
        found: list[Size] = [axis.extent for axis in self.own_axes]
        for store in self.stores:
            found += _sizes_of_place(store)
        return dims.computed(*found).union(self._node_sizes)

    @cached_property
    def _node_sizes(self) -> frozenset[str]:
        """The computed sizes that the expressions depend on."""
        return _sizes_of(self.nodes)

    @cached_property
    def stores_partly(self) -> bool:
        """Whether some store depends on values for which elements it writes."""
        return any(store.partial for store in self.stores)

    def writes(self) -> frozenset[str]:
        """Names of the buffers written."""
        return self._writes

    @cached_property
    def _writes(self) -> frozenset[str]:
        return frozenset([store.access.buffer for store in self.stores])


def _loads_of(nodes: Iterable[Expr]) -> list[Load]:
    return [node for node in nodes if isinstance(node, Load)]


def _work_of(nodes: Iterable[Expr]) -> int:
    """Count loads and operations among the nodes; a function counts as many as its primitives."""
    kinds = Counter(
        [
            (n.name, n.dtype) if isinstance(n, Op) else None
            for n in nodes
            if isinstance(n, (Op, Load, Cast))
        ]
    )
    return sum([n * (operations(*kind) if kind else 1) for kind, n in kinds.items()])


def _sizes_of(nodes: Iterable[Expr]) -> frozenset[str]:
    """The computed sizes that the nodes themselves depend on, not their operands."""
    found: list[Size] = []
    for node in nodes:
        if isinstance(node, Extent):
            found.append(node.size)
        elif isinstance(node, Load):
            found += _sizes_of_place(node)
    return dims.computed(*found)


def _sizes_of_place(place: Load | Store) -> list[Size]:
    """The sizes that an address is made of."""
    strides = [stride for _, stride in (*place.access.terms, *place.index)]
    return [place.access.offset, *strides]


def map_loads(kernel: Kernel, change: Callable[[Load], Expr | None]) -> Kernel:
    """The kernel with loads replaced where `change` gives an expression."""
    return map_expressions(kernel, lambda node: change(node) if isinstance(node, Load) else None)


def map_accesses(kernel: Kernel, change: Callable[[Access], Access]) -> Kernel:
    """The kernel with other addresses of what it loads and stores, computed positions aside."""
    changed = map_loads(kernel, lambda load: replace(load, access=change(load.access)))
    stores = tuple([replace(s, access=change(s.access)) for s in changed.stores])
    return replace(changed, stores=stores)


def with_sums(kernel: Kernel, reductions: tuple[Reduce, ...], places: Mapping[int, int]) -> Kernel:
    """The kernel with other reductions; `places` has where each of its own is among them."""

    def leaf(node: Expr) -> Expr | None:
        return Reduced(places[node.position], node.dtype) if isinstance(node, Reduced) else None

    renumbered = rewriter(leaf)
    stores = tuple([store.map(renumbered) for store in kernel.stores])
    return replace(kernel, reductions=reductions, stores=stores)


def map_expressions(kernel: Kernel, change: Callable[[Expr], Expr | None]) -> Kernel:
    """The kernel with expressions replaced, from the operands up, where `change` gives another."""
    rewritten = rewriter(change)
    reductions = tuple([reduce.map(rewritten) for reduce in kernel.reductions])
    stores = tuple([store.map(rewritten) for store in kernel.stores])
    # A kernel that stays the same object keeps its cached properties.
    is_same = all(map(operator.is_, reductions, kernel.reductions)) and all(
        map(operator.is_, stores, kernel.stores)
    )
    return kernel if is_same else replace(kernel, reductions=reductions, stores=stores)


def combine(reduce: Reduce, accumulator: Expr, expr: Expr, factor: Expr | None) -> Expr:
    """The accumulator after one more element."""
    if factor is not None:
        return Op(reduce.step, (expr, factor, accumulator), reduce.dtype)
    return op(reduce.operator, accumulator, expr)


def identity(reduce: Reduce) -> Const:
    """The identity of a reduction: 0, 1, or the value that every other one replaces."""
    if reduce.combine in ("sum", "prod"):
        return constant(0 if reduce.combine == "sum" else 1, reduce.dtype)
    largest = reduce.combine == "min"
    if reduce.dtype in FLOATS:
        return constant(float("inf") if largest else float("-inf"), reduce.dtype)
    if reduce.dtype == "bool":
        return constant(largest, reduce.dtype)
    limits = np.iinfo(reduce.dtype)
    return constant(limits.max if largest else limits.min, reduce.dtype)
