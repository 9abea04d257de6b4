"""Kernels with other sizes and literals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ostinato.program.expr import Access, Axis, Const, Expr, Extent, Index, Load, rewriter
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.sizes.dims import Size


class Resized:
    """Rebuild a kernel with other sizes; each of its sizes is asked for in order.

    literal: gives the replacement of a literal that is no size.
    """

    def __init__(
        self, change: Callable[[Size], Size], literal: Callable[[Const], Expr] | None = None
    ) -> None:
        self._size = change
        self._literal = literal
        self._axes: dict[Axis, Axis] = {}
        self._expr = rewriter(self._leaf)

    def of(self, kernel: Kernel) -> Kernel:
        """The rebuilt kernel."""
        tile = kernel.tile
        if tile is not None:
            # The registers of a tile are counted by the extents of these axes, which stay.
            self._axes |= {axis: axis for axis in (tile.lane, tile.across) if axis is not None}
        return replace(
            kernel,
            axes=tuple(map(self.axis, kernel.axes)),
            reductions=tuple(map(self._reduce, kernel.reductions)),
            stores=tuple(map(self._store, kernel.stores)),
            guard=None if kernel.guard is None else self._expr(kernel.guard),
            tile=None if tile is None else self._tile(tile),
            ordered=tuple(map(self.axis, kernel.ordered)),
        )

    def axis(self, axis: Axis) -> Axis:
        """The axis with another extent."""
        if axis not in self._axes:
            self._axes[axis] = Axis(axis.name, self._size(axis.extent))
        return self._axes[axis]

    def _some(self, axis: Axis | None) -> Axis | None:
        return None if axis is None else self.axis(axis)

    def _access(self, access: Access) -> Access:
        terms = tuple((self.axis(axis), self._size(stride)) for axis, stride in access.terms)
        return Access(access.buffer, self._size(access.offset), terms)

    def _places(self, index: tuple[tuple[Expr, Size], ...]) -> tuple[tuple[Expr, Size], ...]:
        return tuple((position, self._size(stride)) for position, stride in index)

    def _leaf(self, node: Expr) -> Expr | None:
        if isinstance(node, Load):
            access = self._access(node.access)
            return Load(access, node.dtype, node.mask, node.other, self._places(node.index))
        if isinstance(node, Index):
            return Index(self.axis(node.axis), node.dtype)
        if isinstance(node, Extent):
            return Extent(self._size(node.size), node.dtype)
        if isinstance(node, Const) and node.dtype == "int64":
            assert isinstance(node.value, int)
            size = self._size(node.value)
            return None if isinstance(size, int) else Extent(size)
        if isinstance(node, Const) and self._literal is not None:
            return self._literal(node)
        return None

    def _reduce(self, reduce: Reduce) -> Reduce:
        factor = None if reduce.factor is None else self._expr(reduce.factor)
        axes = tuple(map(self.axis, reduce.axes))
        return replace(reduce, axes=axes, expr=self._expr(reduce.expr), factor=factor)

    def _store(self, store: Store) -> Store:
        changed = store.map(self._expr)
        access, index = self._access(store.access), self._places(changed.index)
        return replace(changed, access=access, index=index)

    def _tile(self, tile: Tile) -> Tile:
        return replace(
            tile,
            block=self._some(tile.block),
            limit=None if tile.limit is None else self._size(tile.limit),
            row=self._some(tile.row),
            other=self._some(tile.other),
            serpentine=self._some(tile.serpentine),
            inside=tuple(map(self.axis, tile.inside)),
        )
