"""The reverse sweep over the body of a loop, and which of its values differ in shape by step."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx_ir as ir

from ostinato.autodiff.contributions import Dims
from ostinato.autodiff.growing import prefixes_of
from ostinato.autodiff.nested import NestedScope
from ostinato.autodiff.scope import Scope, depends
from ostinato.graph.loop_form import LoopForm, reads
from ostinato.graph.random import is_random
from ostinato.graph.writer import Operand, Writer
from ostinato.model.values import dims_of

# Gradients that every step adds to one value of up to this rank are kept for all steps.
_KEPT_RANK = 2


class BodyScope(NestedScope):
    """The sweep over the body of a loop.

    Products, sums and rows for values outside wait for the end of the loop, but not where
    everything is computed again to save memory, or where steps give different shapes: then each
    step adds them up. Values whose shape may differ from step to step cannot be stacked: they are
    computed again, from prefixes of what grew.
    """

    def __init__(self, outer: Scope, form: LoopForm, repeats_all: bool) -> None:
        super().__init__(outer, form.body, _wanted(form, outer.wanted), repeats_all)
        self.form, self.prefixes = form, prefixes_of(form)
        self.products: list[tuple[ir.Value, ir.Value, ir.Value]] = []
        self.sums: list[tuple[ir.Value, ir.Value, Dims]] = []
        self.rows: list[tuple[ir.Value, ir.Value, ir.Value]] = []
        self._fixed = _names_around(outer)

    def sized(self) -> Iterator[ir.Value]:
        yield from super().sized()
        yield from (scanned.element for scanned in self.form.scanned)

    def is_free(self, value: ir.Value) -> bool:
        head = self.form.head
        if any(scanned.element is value for scanned in self.form.scanned):
            return True
        if value in self.prefixes or (head is not None and value in (head.number, head.going)):
            return True
        return self.repeats_all and any(state.before is value for state in self.form.states)

    def add_product(self, value: ir.Value, a: ir.Value, b: ir.Value, writer: Writer) -> None:
        if self.repeats_all or self.is_own(value) or not (self._stacks(a) and self._stacks(b)):
            super().add_product(value, a, b, writer)
        else:
            self.products.append((value, a, b))

    def add_broadcast(
        self, value: ir.Value, gradient: ir.Value, large: Dims, writer: Writer
    ) -> None:
        few = len(large) <= _KEPT_RANK and len(large) > len(dims_of(value) or ())
        waits = few and not self.repeats_all and self._is_fixed(large)
        if waits and not self.is_own(value):
            self.sums.append((value, gradient, large))
        else:
            super().add_broadcast(value, gradient, large, writer)

    def add_rows(
        self, value: ir.Value, places: Operand, rows: ir.Value, axis: int, writer: Writer
    ) -> None:
        waits = axis == 0 and not self.repeats_all and not self.is_own(value)
        if (
            waits
            and isinstance(places, ir.Value)
            and _are_few(places, value)
            and self._stacks(places)
            and self._stacks(rows)
        ):
            self.rows.append((value, places, rows))
        else:
            super().add_rows(value, places, rows, axis, writer)

    def varies(self, value: ir.Value) -> bool:
        """Whether steps may give an own value different shapes."""
        return not self._is_fixed(dims_of(value))

    def _is_fixed(self, dims: Dims | None) -> bool:
        return dims is not None and all(isinstance(n, int) or n in self._fixed for n in dims)

    def _stacks(self, value: ir.Value) -> bool:
        """Whether all steps give a value of the sweep one shape.

        One without sizes, such as the transpose of a gradient, has a shape if its operands do.
        """
        pending, seen = [value], set[ir.Value]()
        while pending:
            current = pending.pop()
            if current in seen or current.const_value is not None:
                continue
            seen.add(current)
            maker, dims = current.producer(), dims_of(current)
            if dims is None and maker is not None:
                pending.extend(reads(maker))
            elif not self._is_fixed(dims):
                return False
        return True

    def _is_repeatable(self, value: ir.Value) -> bool:
        return value not in self.prefixes and super()._is_repeatable(value)

    def _needed(self, value: ir.Value) -> list[ir.Value]:
        needed = super()._needed(value)
        return [read for read in needed if self._repeats(read)] if self._repeats(value) else needed

    def _allows(self, node: ir.Node) -> bool:
        return super()._allows(node) or any(map(self._repeats, node.outputs))

    def _repeats(self, value: ir.Value) -> bool:
        """Whether a value is computed again because it cannot be kept."""
        maker = value.producer()
        return maker is not None and self.varies(value) and not is_random(maker)


def _are_few(places: ir.Value, value: ir.Value) -> bool:
    """Whether there are fewer places than rows of a value, as far as is known."""
    numbers, (rows, *_) = dims_of(places), dims_of(value) or (0,)
    known = [number for number in numbers or () if isinstance(number, int)]
    if numbers is None or len(known) < len(numbers):
        return False
    return not isinstance(rows, int) or prod(known) < rows


def _names_around(scope: Scope) -> set[str]:
    """The names of sizes that no step of a loop in the scope's graph changes."""
    found = set[str]()
    graphs = [scope.graph]
    while isinstance(scope, NestedScope):
        scope = scope.outer
        graphs.append(scope.graph)
    for graph in graphs:
        made = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *made):
            found.update(size for size in dims_of(value) or () if isinstance(size, str))
    return found


def _wanted(form: LoopForm, around: set[ir.Value]) -> set[ir.Value]:
    """The values around the body and in it whose gradients are of use."""
    sources = around | {s.element for s in form.scanned if s.source in around}
    sources |= {s.before for s in form.states if s.initial in around}
    while True:
        found = depends(form.body, sources)
        more = {s.before for s in form.states if s.after in found and s.before not in found}
        if not more:
            return found
        sources |= more
