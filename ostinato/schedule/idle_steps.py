"""Steps of a loop that only keep its states are not run.

    for t < T:                             first, steps = where c[t] begins, and how long it lasts
      h' = f(h, x[t]) if c[t] else h       for t < first: y[t] = 0
      y[t] = h' if c[t] else 0        =>   for first <= t < first + steps: as before
                                           for all t behind: y[t] = 0

So a batch of padded sequences takes as many steps as its longest one has, at whichever end the
padding is. A condition may differ between points: a step is idle where it fails at all of them.
Rows that an idle step stores are computed outside of the loop: from constants, from inputs of the
loop, and from the states, which are the initial ones before the first step that runs and the final
ones behind the last. Nothing may read what else an idle step computes.

Kernels that have been hoisted out of the loop compute the rows of the remaining steps only, where
nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from ostinato.program import interpreter
from ostinato.program.expr import Axis, Index, Load
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import (
    Buffer,
    Interface,
    Loop,
    Program,
    Stmt,
    bodies,
    map_kernels,
    statements,
    with_bodies,
)
from ostinato.records import dataclass
from ostinato.schedule.idle import Idle, find_idle, finder
from ostinato.schedule.index_maps import Affine, replace_axes, substitute_kernel
from ostinato.sizes.dims import Size, product, symbol

# Constant conditions are evaluated while compiling up to this many points.
_MOST_KNOWN = 1 << 20


@dataclass(frozen=True)
class _Range:
    """The steps that run: `steps` from `first` on. `rest` are behind them."""

    first: Size
    steps: Size
    rest: Size


def idle_steps(program: Program) -> Program:
    """Run each loop from the first to the last step that changes a state."""
    shortening = _Shortening(program)
    outside = frozenset((*(i.buffer for i in program.outputs), *program.bounds))
    body = shortening.body(program.body, outside)
    if not shortening.found:
        return program
    symbols = (*program.symbols, *shortening.sizes)
    buffers = {**program.buffers, **shortening.sizes}
    return replace(program, buffers=buffers, symbols=symbols).with_body(body)


class _Shortening:
    """Rewrites the loops of a program.

    found: whether a loop has idle steps. sizes: the buffers of those that kernels compute.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.found = False
        self.sizes: dict[str, Buffer] = {}

    def body(self, body: tuple[Stmt, ...], outside: frozenset[str]) -> tuple[Stmt, ...]:
        """Rewrite a list of statements; `outside` are the buffers that others mention."""
        result: list[Stmt] = []
        for number, statement in enumerate(body):
            if not bodies(statement):
                result.append(statement)
                continue
            others = outside.union(*map(_mentioned, (*body[:number], *body[number + 1 :])))
            if not isinstance(statement, Loop):
                result.append(with_bodies(statement, lambda b, o=others: self.body(b, o)))  # type: ignore[misc]
                continue
            carried = statement.carried
            loop = replace(statement, body=self.body(statement.body, others | carried))
            idle = find_idle(loop, others)
            behind = outside.union(*map(_mentioned, body[number + 1 :]))
            if idle is None:
                result.append(loop)
            else:
                result = self._shortened(result, loop, idle, behind)
        return tuple(result)

    def _shortened(
        self, before: list[Stmt], loop: Loop, idle: Idle, outside: frozenset[str]
    ) -> list[Stmt]:
        """Rewrite a loop, and the statements before it, without idle steps.

        outside: the buffers that others than these mention.
        """
        axis = loop.axis
        names = f"{axis.name}.first", f"{axis.name}.steps", f"{axis.name}.rest"
        finding = finder(axis, idle.conditions, names)
        asked = finding.reads()
        start = max((i + 1 for i, s in enumerate(before) if s.writes() & asked), default=0)
        begin, rest = before[:start], before[start:]
        found = self._known(finding)
        if found is None:
            begin.append(finding)
            most = self._program.upper(axis.extent)
            self.sizes |= {n: Buffer(n, "int64", 1, "size", bound=most) for n in names}
            found = _Range(*(symbol(name, computed=True) for name in names))
        elif found.steps == axis.extent:
            return [*before, loop]
        self.found = True
        kept = outside.union(*(k.reads() for k in idle.rows), *map(_mentioned, begin))
        feeding = _feeding(rest, loop, kept, self._program.buffers)
        return [
            *begin,
            *(_running(s, feeding, found) for s in rest),
            *_filled(idle.rows, axis, 0, found.first, "b"),
            _run(loop, found),
            *_filled(idle.rows, axis, found.first + found.steps, found.rest, "c"),
        ]

    def _known(self, finding: Kernel) -> _Range | None:
        """The steps that run, where constants decide that."""
        constants = self._program.constants
        points = product([axis.extent for axis in finding.reductions[0].axes])
        is_small = isinstance(points, int) and points * len(finding.reductions) <= _MOST_KNOWN
        if not is_small or not finding.reads() <= constants.keys() or _is_inner(finding):
            return None
        names = [store.access.buffer for store in finding.stores]
        results = interpreter.run(
            Program(
                inputs=(),
                outputs=tuple(Interface(name, name, "int64", (1,)) for name in names),
                symbols=(),
                buffers={n: self._program.buffers[n] for n in finding.reads()}
                | {name: Buffer(name, "int64", 1, "output") for name in names},
                constants={name: constants[name] for name in finding.reads()},
                body=(finding,),
            ),
            {},
        )
        return _Range(*(int(results[name][0]) for name in names))


def _mentioned(statement: Stmt) -> frozenset[str]:
    return statement.reads() | statement.writes()


def _is_inner(finding: Kernel) -> bool:
    """Whether a condition depends on the step of an enclosing loop."""
    nodes = [node for reduce in finding.reductions for node in reduce.nodes]
    found = {axis for n in nodes if isinstance(n, Load) for axis, _ in n.access.terms}
    found |= {node.axis for node in nodes if isinstance(node, Index)}
    return not found <= finding.summed_axes


def _run(loop: Loop, found: _Range) -> Loop:
    """The loop over the steps that run."""
    axis = Axis(f"{loop.axis.name}a", found.steps)
    image = {loop.axis: Affine(found.first, ((axis, 1),))}
    body = map_kernels(loop.body, lambda kernel: substitute_kernel(kernel, image))
    return replace(loop, axis=axis, body=body)


def _running(statement: Stmt, feeding: Mapping[Stmt, Axis], found: _Range) -> Stmt:
    """Limit a statement that computes rows for the loop to the steps that run."""
    axis = feeding.get(statement)
    if axis is None or not isinstance(statement, Kernel):
        return statement
    return _part(statement, axis, found.first, found.steps)


def _filled(
    kernels: Iterable[Kernel], axis: Axis, first: Size, extent: Size, suffix: str
) -> list[Kernel]:
    """The kernels for `extent` idle steps from `first` on."""
    whole = [replace(k, name=f"{k.name}{suffix}", axes=(axis, *k.axes)) for k in kernels]
    return [_part(kernel, axis, first, extent, suffix) for kernel in whole if extent != 0]


def _part(kernel: Kernel, axis: Axis, first: Size, extent: Size, suffix: str = "a") -> Kernel:
    """The points of a kernel from `first` on, `extent` of them along one of its axes."""
    part = Axis(f"{axis.name}{suffix}", extent)
    return replace_axes(kernel, {axis: Affine(first, ((part, 1),))})


def _feeding(
    before: Sequence[Stmt], loop: Loop, kept: frozenset[str], buffers: Mapping[str, Buffer]
) -> dict[Stmt, Axis]:
    """Find kernels before a loop that compute a row for each of its steps, and along which axis.

    kept: the buffers that others than these statements and the loop mention.
    """
    feeding: dict[Stmt, Axis] = {}
    places: dict[str, set[Size]] = {}
    for kernel in statements(loop.body):
        _add_places(places, kernel, loop.axis)
    for kernel in reversed(before):
        if not isinstance(kernel, Kernel) or kernel.ordered or not kernel.writes() <= places.keys():
            continue
        others = (s for s in before if s is not kernel and s not in feeding)
        apart = kept.union(*map(_mentioned, others), (c.state for c in loop.carries))
        if kernel.writes() & apart:
            continue
        axis = _row_axis(kernel, loop.axis.extent, places, buffers)
        if axis is not None:
            feeding[kernel] = axis
            _add_places(places, kernel, axis)
    return feeding


def _add_places(places: dict[str, set[Size]], statement: Stmt, axis: Axis) -> None:
    """Collect, for each buffer, the distances of elements that neighbours along the axis read."""
    if isinstance(statement, Kernel):
        for load in statement.loads():
            stride = 0 if load.index else load.access.stride(axis)
            places.setdefault(load.access.buffer, set()).add(stride)


def _row_axis(
    kernel: Kernel, steps: Size, places: Mapping[str, Set[Size]], buffers: Mapping[str, Buffer]
) -> Axis | None:
    """The axis of the kernel along which it stores the rows that are read in one step each."""
    for axis in kernel.axes:
        if axis.extent == steps and all(
            not store.partial
            and places.get(store.access.buffer) == {store.access.stride(axis)}
            and buffers[store.access.buffer].size
            in (store.access.stride(axis) * steps, store.access.stride(axis) * -steps)
            for store in kernel.stores
        ):
            return axis
    return None
