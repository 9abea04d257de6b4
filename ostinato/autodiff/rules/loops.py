"""Gradients of loops: a Scan in reverse over what the forward Scan kept of each step.

With the forward step `s' = f(s, x, w)`, `y = g(s, x, w)`, for states `s`, elements `x` of scan
inputs and values `w` from outside of the body:

    forward    Scan as it was, with one more output for each value that the backward step needs
               and that is not cheap to compute again from what is kept
    backward   Scan over the same steps in the other order
               state       gradient of s' -> gradient of s
               reads       gradients of y, what was kept, elements x
               collects    gradients of x; both factors of each product that is a gradient of w
    behind it  gradients of w: one product, or one sum, over all steps
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.body import BodyScope
from ostinato.autodiff.checkpoints import is_in_segments
from ostinato.autodiff.context import Context
from ostinato.autodiff.contributions import Dims, zeros
from ostinato.autodiff.counted import Countdown, count_steps
from ostinato.autodiff.growing import obstacle
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.scope import Scope, is_float
from ostinato.autodiff.sweep import sweep
from ostinato.graph.loop_form import LoopForm, Scanned, Stacked, State, origin, read_loop, reads
from ostinato.graph.writer import Operand, Writer
from ostinato.model.values import dims_of


@differentiates("Loop")
def _loop(context: Context) -> None:
    """A Loop over the steps in reverse; what grew is read as prefixes of what it became."""
    form = read_loop(context.node, context.scope.opset, context.attributes)
    assert form is not None
    reason = obstacle(form)
    if reason is not None:
        raise context.refuse(reason)
    _Backward(context, form).write()


@differentiates("Scan")
def _scan(context: Context) -> None:
    """A Scan over the steps in reverse; gradients of weights are products over all of them."""
    form = read_loop(context.node, context.scope.opset, context.attributes)
    assert form is not None
    if not form.count_axes_from_the_front():
        raise context.refuse("has no gradient: the rank of a value that it takes is not known")
    _Backward(context, form).write()


@dataclass(frozen=True)
class _Steps:
    """A value of each step, collected outside of the backward loop.

    backward: whether the last step, in the order of the forward loop, comes first.
    """

    value: ir.Value
    axis: int
    backward: bool


class _Backward:
    """The backward loop of `form`, part by part."""

    def __init__(self, context: Context, form: LoopForm) -> None:
        self.context, self.forward = context, form
        self.outer, self.names = context.scope, context.scope.names
        self.scope = BodyScope(self.outer, form, is_in_segments(context.node))
        body = ir.Graph([], [], nodes=[], name=self.names.fresh(f"grad/{form.body.name}"))
        self.form = LoopForm(context.node, body, [], [], [], None)
        # Writes nodes behind the loop.
        self.behind = context.writer.within("total")
        self._kept: dict[ir.Value, _Steps] = {}
        self._collected: dict[tuple[ir.Value, int, bool], ir.Value] = {}
        # The carried gradient of a state, by the state's input of the forward body.
        self._gradients: dict[ir.Value, ir.Value] = {}
        # Writes the beginning of a Loop's body, which finds the step and reads its values.
        self.beginning = context.writer.within("step")
        self.countdown: Countdown | None = None
        self.backward, self.length = False, None
        if form.head is None:
            first = form.scanned[0]
            self.backward = first.backward
            source = dims_of(first.source)
            self.length = None if source is None else source[first.axis]
        else:
            self.countdown = self._count_down()

    def write(self) -> None:
        """Write the loop and give its inputs their gradients."""
        states = self._carry_states()
        self._read_gradients()
        sweep(self.scope)
        self._hand_on(states)
        elements = self._collect_elements()
        totals = self._carry_totals()
        for value, stand_in in self.scope.settle().items():
            self._fill(value, stand_in)
        products = [(value, *self._pair(a, b)) for value, a, b in self.scope.products]
        sums = [(value, *self._rows(g, large, value)) for value, g, large in self.scope.sums]
        rows = [(value, *map(self._as_run, pair)) for value, *pair in self.scope.rows]
        self._finish()
        for state, carried in states:
            if state.initial in self.outer.wanted:
                self.outer.add(state.initial, carried.final)
        for source, gradient in [*elements, *totals]:
            self.outer.add(source, gradient)
        for value, a, b in products:
            writer = self.outer.writer(value.dtype, f"grad/{value.name}")
            self.outer.add_product(value, a, b, writer)
        for value, gradient, large in sums:
            writer = self.outer.writer(value.dtype, f"grad/{value.name}")
            self.outer.add_broadcast(value, gradient, large, writer)
        for value, places, added in rows:
            writer = self.outer.writer(value.dtype, f"grad/{value.name}")
            sizes = self.outer.sizes(value, writer)
            sizes = writer.take(sizes, range(1, len(dims_of(value) or ())), 0, "sizes")
            shape = writer.concat([np.array([-1], np.int64), sizes], 0, "shape")
            flat = writer.op("Reshape", [added, shape], "rows")
            self.outer.add_rows(value, places, flat, 0, writer)

    def _count_down(self) -> Countdown:
        """Write the number of steps, and those of the backward loop."""
        around = self.outer.writer(ir.DataType.INT64, f"grad/{self.context.node.name}")
        inner = around.within("step")
        inner.nodes = self.beginning.nodes
        return Countdown(count_steps(self.forward, self.outer, around), around, inner)

    # States

    def _carry_states(self) -> list[tuple[State, State]]:
        """A state for the gradient of each state that the loss depends on."""
        found = []
        for state in _carried(self.forward, self.scope.wanted, self.outer):
            before = self.scope.like(state.after, f"grad/{state.after.name}_given")
            initial = self.outer.gradient(state.final)
            if initial is None:
                writer = self.outer.writer(state.initial.dtype, f"grad/{state.initial.name}")
                shape = state.final if state.before in self.scope.prefixes else state.initial
                initial = zeros(writer, self.outer.sizes(shape, writer))
            final = self.scope.like(state.initial, f"grad/{state.initial.name}")
            self.scope.add(state.after, before)
            self._gradients[state.before] = before
            found.append((state, State(initial, before, before, final)))
        self.form.states = [carried for _, carried in found]
        return found

    def _hand_on(self, states: list[tuple[State, State]]) -> None:
        for state, carried in states:
            after = self.scope.gradient(state.before)
            if after is None:
                writer = self.scope.writer(state.before.dtype, f"grad/{state.before.name}")
                after = zeros(writer, self.scope.sizes(state.before, writer))
            carried.after = after

    def _carry_totals(self) -> list[tuple[ir.Value, ir.Value]]:
        """A state that adds up what all steps add to the gradient of a value outside."""
        found = []
        for value in self.scope.outside():
            gradient = self.scope.gradient(value)
            assert gradient is not None
            outer = self.outer.writer(value.dtype, f"grad/{value.name}")
            initial = zeros(outer, self.outer.sizes(value, outer))
            before = self.scope.like(value, f"grad/{value.name}_so_far")
            writer = self.scope.writer(value.dtype, f"grad/{value.name}")
            after = writer.op("Add", [before, gradient], "total")
            final = self.scope.like(value, f"grad/{value.name}_total")
            self.form.states.append(State(initial, before, after, final))
            found.append((value, final))
        return found

    # The values that a step reads

    def _read_gradients(self) -> None:
        for stacked in self.forward.stacked:
            gradient = self.outer.gradient(stacked.result)
            if gradient is not None and stacked.element in self.scope.wanted:
                element = self.scope.like(stacked.element, f"grad/{stacked.element.name}_given")
                self._read(element, _Steps(gradient, stacked.axis, stacked.backward))
                self.scope.add(stacked.element, element)

    def _read(self, element: ir.Value, steps: _Steps) -> None:
        self._kept[element] = steps
        self.form.scanned.append(Scanned(steps.value, element, steps.axis, not steps.backward))

    def _fill(self, value: ir.Value, stand_in: ir.Value) -> None:
        """Let the backward loop read a value of the forward body."""
        for scanned in self.forward.scanned:
            if scanned.element is value:
                source = self.outer.forward(scanned.source)
                return self._read(stand_in, _Steps(source, scanned.axis, scanned.backward))
        if self.countdown is not None and self._fill_by_number(value, stand_in, self.countdown):
            return None
        for state in self.forward.states:
            if state.before is value:
                steps = self._all_steps(state.after)
                return self._read(stand_in, self._one_later(steps, state.initial, stand_in))
        return self._read(stand_in, self._all_steps(value))

    def _fill_by_number(self, value: ir.Value, stand_in: ir.Value, countdown: Countdown) -> bool:
        """Let a Loop compute a value from the number of the step, where it can."""
        head, prefix = self.forward.head, self.scope.prefixes.get(value)
        assert head is not None
        if value is head.number:
            found = countdown.number
        elif value is head.going:
            found = self.beginning.value(np.array(True), "going")
        elif prefix is not None:
            extent = None
            if prefix.rows is None:
                sizes = Writer(
                    self.outer.root,
                    self.names,
                    self.outer.opset,
                    ir.DataType.INT64,
                    value.name or "",
                )
                size = sizes.value(sizes.squeeze(sizes.size(value, prefix.axis), 0, "rows"), "rows")
                self.forward.body.extend(sizes.nodes)
                extent = self._all_steps(size).value
            whole = self.outer.forward(prefix.state.final)
            found = countdown.prefix(
                whole, prefix, extent, self._gradients.get(prefix.state.before)
            )
            found.shape = value.shape
        else:
            return False
        self.form.substitute(stand_in, found)
        return True

    def _all_steps(self, value: ir.Value) -> _Steps:
        """The values of each step, which the forward loop stacks from now on if not before."""
        steps = self._stacked(value)
        if steps is None:
            self.forward.stack(value, self.names, 0, self.backward)
            steps = self._stacked(value)
            assert steps is not None
        return steps

    def _stacked(self, value: ir.Value) -> _Steps | None:
        """The values of each step that the forward loop stacks of a value of its body, if any."""
        for stacked in self.forward.stacked:
            if origin(stacked.element) is origin(value):
                result = self.outer.forward(stacked.result)
                return _Steps(result, stacked.axis, stacked.backward)
        return None

    def _one_later(self, after: _Steps, initial: ir.Value, like: ir.Value) -> _Steps:
        """The states before each step, from those after it."""
        writer = self.outer.writer(initial.dtype, f"grad/{initial.name}")
        first = writer.unsqueeze(self.outer.forward(initial), [after.axis], "first")
        ends = [after.value, first] if after.backward else [first, after.value]
        joined = writer.op("Concat", ends, "states", {"axis": after.axis})
        start, end = (1, np.iinfo(np.int64).max) if after.backward else (0, -1)
        bounds = [np.array([bound], np.int64) for bound in (start, end, after.axis)]
        before = writer.op("Slice", [joined, *bounds], "states_before")
        before.shape = self._shape(like, after.axis)
        return _Steps(before, after.axis, after.backward)

    # The values that a step gives

    def _collect_elements(self) -> list[tuple[ir.Value, ir.Value]]:
        """The gradients of the scan inputs."""
        found = []
        for scanned in self.forward.scanned:
            wanted = scanned.element in self.scope.wanted
            gradient = self.scope.gradient(scanned.element) if wanted else None
            if gradient is not None and scanned.source in self.outer.wanted:
                steps = self._collect(gradient, scanned.axis, scanned.backward)
                found.append((scanned.source, steps))
        return found

    def _collect(self, element: ir.Value, axis: int, backward: bool) -> ir.Value:
        """Give a value that stacks one element of each step of the backward loop."""
        kept = self._kept.get(element)
        if kept is not None and (kept.axis, kept.backward) == (axis, backward):
            return kept.value
        key = element, axis, backward
        if key not in self._collected:
            result = self.scope.like(element, f"{element.name}_steps")
            result.shape = self._shape(element, axis)
            if self.countdown is None:
                self.form.stacked.append(Stacked(element, result, axis, not backward))
            else:
                # A Loop stacks forward only.
                stacked = self.scope.like(element, f"{element.name}_stacked")
                stacked.shape = result.shape
                self.form.stacked.append(Stacked(element, stacked))
                result = stacked
                if not backward:
                    far = np.iinfo(np.int64).min
                    result = self.behind.slice(stacked, 0, -1, far, "steps", -1)
                    result.shape = stacked.shape
            self._collected[key] = result
        return self._collected[key]

    def _as_run(self, element: ir.Value) -> ir.Value:
        """The elements of all steps, in the order in which the backward loop runs them."""
        return self._collect(element, 0, not self.backward)

    def _pair(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The factors of a product, summed over its rows, of all steps.

        Beside one that no step changes, the sum of the other one is enough.
        """
        if not self._varies(a):
            return a, self._total(b)
        if not self._varies(b):
            return self._total(a), b
        kept = [self._kept[x] for x in (a, b) if x in self._kept]
        orders = [(k.axis, k.backward) for k in kept if k.axis < len(k.value.shape or ()) - 1]
        axis, backward = orders[0] if orders else (0, self.backward)
        return self._collect(a, axis, backward), self._collect(b, axis, backward)

    def _varies(self, value: ir.Value) -> bool:
        """Whether the backward body takes or makes the value."""
        taken = value in self._kept or any(state.before is value for state in self.form.states)
        return taken or value.producer() in set(self.scope.nodes)

    def _total(self, element: ir.Value) -> ir.Value:
        steps, axes = self._collect(element, 0, self.backward), np.zeros(1, np.int64)
        operands: list[Operand] = [steps, axes]
        keepdims = {"keepdims": 0}
        total = self.behind.op("ReduceSum", operands, "total", keepdims, element.dtype)
        total.shape = element.shape
        return total

    def _rows(self, gradient: ir.Value, large: Dims, value: ir.Value) -> tuple[ir.Value, Dims]:
        """A gradient of all steps, with an axis of steps that a sum to `value` sums over."""
        extra = len(large) - len(dims_of(value) or ())
        axes = [axis for known, axis, _ in self._collected if known is gradient and axis <= extra]
        axis = axes[0] if axes else 0
        steps = self._collect(gradient, axis, self.backward)
        return steps, (*large[:axis], self.length, *large[axis:])

    def _shape(self, element: ir.Value, axis: int) -> ir.Shape | None:
        dims = dims_of(element)
        if dims is None:
            return None
        return ir.Shape([*dims[:axis], self.length, *dims[axis:]])

    def _finish(self) -> None:
        if self.countdown is not None:
            self.countdown.write(self.form)
            self.form.body.extend(self.beginning.nodes)
        elif not self.form.scanned:
            first = self.forward.scanned[0]
            element = self.scope.like(first.element, f"{first.element.name}_unread")
            source = self.outer.forward(first.source)
            self._read(element, _Steps(source, first.axis, first.backward))
        self.form.body.extend(self.scope.nodes)
        name = self.names.fresh(f"grad/{self.context.node.name}")
        self.outer.nodes.append(self.form.make(self.names, name))
        self.outer.nodes.extend(self.behind.nodes)


def _carried(form: LoopForm, wanted: set[ir.Value], outer: Scope) -> list[State]:
    """The states whose gradient some step needs."""
    reached = {s.element for s in form.stacked if outer.has_gradient(s.result)}
    pending = [s for s in form.states if s.before in wanted and is_float(s.before)]
    carried: list[State] = []
    while True:
        for node in reversed(form.body):
            if any(value in reached for value in node.outputs):
                reached.update(value for value in reads(node) if value in wanted)
        new = [s for s in pending if outer.has_gradient(s.final) or s.before in reached]
        if not new:
            return [s for s in form.states if any(s is other for other in carried)]
        carried += new
        pending = [s for s in pending if not any(s is other for other in new)]
        reached |= {s.after for s in new}
