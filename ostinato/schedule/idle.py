"""Find the idle steps of a loop, which only keep its states, at either end of the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from math import prod

from ostinato.program.expr import (
    Access,
    Axis,
    Const,
    Expr,
    Index,
    Load,
    Op,
    Reduced,
    constant,
    op,
    rewriter,
    sized,
    walk,
)
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Loop, Require, statements
from ostinato.records import dataclass
from ostinato.schedule.index_maps import Affine, Map, substitute
from ostinato.schedule.operands import typical
from ostinato.schedule.steps import written_before_read

# Points and terms of a step per evaluation of a condition, at least: finding the idle steps then
# takes less than a hundredth of the time of the steps.
_LEAST_SAVED = 16


@dataclass(frozen=True)
class Condition:
    """A value that a step computes for each point of `axes`; in idle steps it is `idle` at all."""

    value: Expr
    axes: tuple[Axis, ...]
    idle: bool

    @property
    def own_axes(self) -> tuple[Axis, ...]:
        """Those of the axes on which it depends."""
        nodes = list(walk(self.value))
        found = {axis for n in nodes if isinstance(n, Load) for axis, _ in n.access.terms}
        found |= {node.axis for node in nodes if isinstance(node, Index)}
        return tuple(axis for axis in self.axes if axis in found)


@dataclass(frozen=True)
class Idle:
    """The idle steps of a loop: those in which all conditions hold.

    rows: the kernels that store into rows of their own, with what they store in idle steps.
    """

    conditions: tuple[Condition, ...]
    rows: tuple[Kernel, ...]


def find_idle(loop: Loop, outside: Set[str]) -> Idle | None:
    """Find out in which steps a loop does nothing; None where that is unclear, or does not pay.

    outside: the buffers that anything but the loop mentions, and those of sizes.
    """
    if loop.condition is not None or any(isinstance(s, Require) for s in statements(loop.body)):
        return None
    states = {carry.next: carry.state for carry in loop.carries}
    local = written_before_read(loop.body, {loop.axis}) - outside - {*states, *states.values()}
    kernels = [s for s in loop.body if isinstance(s, Kernel) and not s.writes() <= local]
    if not all(s.writes() <= local for s in loop.body if s not in kernels):
        return None
    conditions = _conditions(loop, kernels, states)
    if not conditions or not _pays(loop, conditions):
        return None
    in_idle = _in_idle_steps(conditions)
    given = (loop.reads() - loop.writes()).union(states.values())
    rows = []
    for kernel in kernels:
        stores = [s for s in kernel.stores if s.access.buffer not in states.keys() | local]
        idly = [replace(store, value=in_idle(store.value)) for store in stores]
        if kernel.ordered or not all(_is_row(store, loop.axis, given) for store in idly):
            return None
        if idly:
            rows.append(replace(kernel, reductions=(), stores=tuple(idly)))
    return Idle(conditions, tuple(rows))


def _conditions(
    loop: Loop, kernels: list[Kernel], states: Mapping[str, str]
) -> tuple[Condition, ...] | None:
    """The conditions under which each state is kept; None where one never is."""
    found: dict[Expr, Condition] = {}
    for kernel in kernels:
        for store in kernel.stores:
            if store.access.buffer in states.values():
                return None
            state = states.get(store.access.buffer)
            if state is None or _is_element(store.value, state, store):
                continue
            condition = _kept_by(store, state, kernel.axes)
            if condition is None or not _depends_on_step(condition.value, loop):
                return None
            if found.setdefault(condition.value, condition).idle != condition.idle:
                return None
    return tuple(found.values())


def _kept_by(store: Store, state: str, axes: tuple[Axis, ...]) -> Condition | None:
    """The condition of a store whose value is the state's element, or else something new."""
    if store.partial or not isinstance(store.value, Op) or store.value.name != "select":
        return None
    condition, yes, no = store.value.args
    for value, idle in ((no, False), (yes, True)):
        if _is_element(value, state, store):
            return Condition(condition, axes, idle)
    return None


def _is_element(value: Expr, state: str, store: Store) -> bool:
    """Whether a value is the state's element at the place where the store writes the next one."""
    if store.partial or not isinstance(value, Load) or value.mask is not None or value.index:
        return False
    place, target = value.access, store.access
    same = place.offset == target.offset and set(place.terms) == set(target.terms)
    return same and place.buffer == state


def _depends_on_step(condition: Expr, loop: Loop) -> bool:
    """Whether a condition depends on the step, and on nothing that the steps change."""
    nodes = list(walk(condition))
    asking = Kernel("", (), (), (Store(Access("", 0, ()), condition),))
    if any(isinstance(node, Reduced) for node in nodes) or asking.reads() & loop.writes():
        return False
    strides = (node.access.stride(loop.axis) for node in nodes if isinstance(node, Load))
    return Index(loop.axis) in nodes or any(stride != 0 for stride in strides)


def _in_idle_steps(conditions: tuple[Condition, ...]) -> Callable[[Expr], Expr]:
    """Return a function that simplifies expressions to what they are in idle steps."""
    known = {c.value: constant(c.idle, "bool") for c in conditions}

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Op) and node.name == "select" and isinstance(node.args[0], Const):
            return node.args[1] if node.args[0].value else node.args[2]
        return known.get(node)

    return rewriter(leaf)


def _is_row(store: Store, axis: Axis, given: Set[str]) -> bool:
    """Whether a store has its own place in each step, and a value that depends on no step."""
    if store.partial or store.access.stride(axis) == 0:
        return False
    nodes = list(walk(store.value))
    loaded = {node.access.buffer for node in nodes if isinstance(node, Load)}
    return loaded <= given and not any(isinstance(node, Reduced) for node in nodes)


def _pays(loop: Loop, conditions: tuple[Condition, ...]) -> bool:
    """Whether there are few conditions compared with what steps compute."""
    asked = sum(_points(c.own_axes) for c in conditions)
    kernels = (s for s in statements(loop.body) if isinstance(s, Kernel))
    saved = sum(_points(k.axes) * (1 + sum(_points(r.axes) for r in k.reductions)) for k in kernels)
    return _LEAST_SAVED * asked <= saved


def _points(axes: tuple[Axis, ...]) -> int:
    return prod(typical(axis.extent) for axis in axes)


def finder(axis: Axis, conditions: tuple[Condition, ...], names: tuple[str, str, str]) -> Kernel:
    """The kernel that counts the steps before the first that runs, those that run, and the rest.

    Idle steps between two that run count as running. names: of the three sizes that it stores,
    which add up to the extent of the axis.
    """
    extent, zero = sized(axis.extent), constant(0, "int64")
    reductions: list[Reduce] = []
    first: Expr = extent
    end: Expr = zero
    for condition in conditions:
        axes = (axis, *condition.own_axes)
        own = [Axis(f"{a.name}f", a.extent) for a in axes]
        image: Map = {a: Affine(0, ((b, 1),)) for a, b in zip(axes, own, strict=True)}
        value, step = substitute(condition.value, image), Index(own[0])
        following = step + 1
        for combine, idly, else_ in (("min", extent, step), ("max", zero, following)):
            chosen = (idly, else_) if condition.idle else (else_, idly)
            reductions.append(Reduce(tuple(own), combine, op("select", value, *chosen)))
        first = op("min", first, Reduced(len(reductions) - 2, "int64"))
        end = op("max", end, Reduced(len(reductions) - 1, "int64"))
    end = op("max", first, end)
    values = first, end - first, extent - end
    stores = [Store(Access(n, 0, ()), v) for n, v in zip(names, values, strict=True)]
    return Kernel(f"{axis.name}.range", (), tuple(reductions), tuple(stores))
