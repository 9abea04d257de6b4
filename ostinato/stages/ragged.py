"""Lower a model for a pool whose streams have different numbers of rows.

Nodes that depend on a number of rows are computed stream by stream, in loops over the batch; all
others once for all streams, so that weights are read once.

    x W (all streams)                          k, v, q [N, ..]
    for n < N                                  rows = lengths[n], place = places[n]
      cache[place, rows] = k[n]; out[n] = attention(q[n], cache[place, :rows + 1])
    out W' (all streams)

A node belongs into a loop if it reads a value that exists for one stream at a time only: a state,
or a value made of one that has its length, or no batch axis. A value of a loop that has a batch
axis and no such length is stored for all streams; a reader that needs it for all streams ends the
loop. Values of a loop that has ended are computed again where a later loop reads them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import describe
from ostinato.model.captures import captures
from ostinato.model.values import constant_array
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.tensor import AnyValue, Joined, Tensor
from ostinato.ops.lowering import Lowerer, Scope
from ostinato.program.expr import Axis, Index
from ostinato.program.nodes import Loop, Stmt
from ostinato.records import dataclass
from ostinato.sizes.dims import Dim, Size, computed, symbols
from ostinato.stages.kept import KeptStates, row_of


@dataclass
class _Open:
    """A loop over the streams of a batch that is being built.

    inside: the values that its scope has. shared: those that have to be stored for all streams.
    """

    axis: Axis
    scope: Scope
    body: list[Stmt] = field(default_factory=list)
    inside: set[ir.Value] = field(default_factory=set)
    shared: dict[ir.Value, Tensor | Joined] = field(default_factory=dict)


class Ragged:
    """Lowers the nodes of a model, those that depend on numbers of rows into loops over streams."""

    def __init__(self, builder: Builder, lowerer: Lowerer, scope: Scope, kept: KeptStates) -> None:
        assert kept.batch is not None
        self._builder, self._lowerer, self._scope, self._kept = builder, lowerer, scope, kept
        self._size, self._one = kept.batch.size, kept.batch.one
        # Values that exist for one stream at a time, and those among them that lie in a state.
        self._single: set[ir.Value] = set()
        self._stored: dict[ir.Value, AnyValue] = {}
        self._open: _Open | None = None

    def node(self, node: ir.Node) -> None:
        """Lower one node. Raises what `Lowerer.node` raises."""
        inputs = captures(node)
        if any(value in self._single or self._kept.is_given(value) for value in inputs):
            self._lower_inside(node)
            return
        if self._open is not None and any(value in self._open.shared for value in inputs):
            self.close()
        self._lowerer.node(self._scope, node)

    def _lower_inside(self, node: ir.Node) -> None:
        """Lower a node in the loop, after what it reads."""
        loop = self._begun()
        for value in captures(node):
            self._bring(loop, value)
        with self._builder.emit.block(loop.body), self._builder.emit.step(Index(loop.axis)):
            self._lowerer.node(loop.scope, node)
        for value in node.outputs:
            made = loop.scope.get(value)
            if made is None:
                continue
            loop.inside.add(value)
            shareable = self._shareable(made)
            if shareable is None:
                self._single.add(value)
                if self._kept.stores(node):
                    self._stored[value] = made
                if value in self._kept:
                    self._scope[value] = made
            elif self._scope.get(value) is None:
                loop.shared[value] = shareable

    def _begun(self) -> _Open:
        if self._open is None:
            axis = self._builder.draft.axis(self._size, "stream")
            loop = self._open = _Open(axis, Scope(self._scope))
            with self._builder.emit.block(loop.body):
                self._kept.begin(loop.scope, axis)
        return self._open

    def _bring(self, loop: _Open, value: ir.Value) -> None:
        """Let the scope of the loop have a value for its stream."""
        if value in loop.inside or constant_array(value) is not None:
            return
        producer = value.producer()
        if value in self._stored:
            loop.scope[value] = self._stored[value]
        elif value in self._single:
            assert producer is not None
            self._lower_inside(producer)
        elif not self._kept.is_given(value):
            row = self._row(self._lowerer.value(self._scope, value), loop.axis)
            if row is not None:
                loop.scope[value] = row
            elif producer is not None:
                self._lower_inside(producer)
            else:
                name = value.name or ""
                raise UnsupportedError(name, "input", "needs the batch as one of its dimensions")
        loop.inside.add(value)

    def _row(self, value: AnyValue, axis: Axis) -> AnyValue | None:
        """Take the row of one stream from a value of all; None where it has to be computed anew."""
        if not isinstance(value, (Tensor, Joined)):
            return None
        known: Any = [] if value.known is None or value.known.dtype != object else value.known.flat
        sizes = [size for size in known if isinstance(size, Dim)]
        if any(map(self._is_of_batch, sizes)):
            return None
        along = [size for size in value.shape if self._is_of_batch(size)]
        if not along:
            is_made = isinstance(value, Tensor) and value.progression is not None
            return None if is_made else value
        if along != [self._size]:
            return None
        return self._row_of(value, axis)

    def _row_of(self, value: Tensor | Joined, axis: Axis) -> Tensor | Joined | None:
        """The row of one stream. Parts stay parts: readers add up products part by part."""
        if not isinstance(value, Joined) or self._is_of_batch(value.shape[value.axis]):
            return row_of(self._builder.strided(value), self._size, self._one, axis)
        parts = tuple(row for part in value.parts if (row := self._row_of(part, axis)) is not None)
        shape = tuple(self._one if size == self._size else size for size in value.shape)
        return (
            Joined(value.dtype, shape, value.axis, parts)
            if len(parts) == len(value.parts)
            else None
        )

    def _is_of_batch(self, size: Size) -> bool:
        """Whether a size depends on the number of streams."""
        draft = self._builder.draft
        definitions = dict(draft.definitions)
        names, seen = [*symbols(size)], set[str]()
        while names:
            name = names.pop()
            if name == str(self._size):
                return True
            if name not in seen:
                seen.add(name)
                names += symbols(definitions.get(name, 0))
                names += symbols(draft.bounds.get(name, 0))
        return False

    def _shareable(self, value: AnyValue) -> Tensor | Joined | None:
        """Return the value if it can be stored for all streams, else None."""
        if not isinstance(value, (Tensor, Joined)) or value.known is not None:
            return None
        along = [size for size in value.shape if str(self._one) in symbols(size)]
        return value if along == [self._one] and not computed(*value.shape) else None

    def close(self) -> None:
        """End the loop, and store for all streams the values that can be."""
        loop, builder = self._open, self._builder
        if loop is None:
            return
        self._open = None
        with builder.emit.block(loop.body), builder.emit.step(Index(loop.axis)):
            for value, made in loop.shared.items():
                self._scope[value] = self._for_all(made, loop.axis)
        statement = Loop(loop.axis, (), tuple(loop.body), None)
        builder.limits.time(statement)
        builder.emit.append(statement)

    def _for_all(self, made: Tensor | Joined, axis: Axis) -> Tensor | Joined:
        """Allocate a value of all streams, and store the row of one stream to it."""
        shape = tuple(self._size if size == self._one else size for size in made.shape)
        if isinstance(made, Joined) and all(self._shareable(part) for part in made.parts):
            parts = tuple(self._for_all(part, axis) for part in made.parts)
            return Joined(made.dtype, shape, made.axis, parts)
        whole = self._builder.empty(made.dtype, shape)
        row = row_of(whole, self._size, self._one, axis)
        assert row is not None
        self._builder.copy(made, row)
        return whole

    def require_shared(self, value: ir.Value) -> None:
        """Refuse an output of the model that only exists for one stream at a time."""
        if value in self._single and value not in self._kept:
            node = value.producer()
            where = "" if node is None else f" (node {describe(node)!r}, {node.op_type})"
            reason = f"has a size that differs from stream to stream{where}"
            raise UnsupportedError(value.name or "", "output", reason)
