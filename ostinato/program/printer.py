"""Loop programs as text.

    input x: float32[T, 64]
    arena h: float32[128]
    loop t < T carry h <-> g
      kernel step [j < 128]
        r0 = sum k < 128: fma(h[k], w[128*k + j])
        v0 = sigmoid(r0)
        g[j] = v0 * (1 - v0)

A sum whose products are not rounded is printed as `sum ..: fma(a, b)`. A subexpression that occurs
more than once gets a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ostinato.program.expr import (
    Access,
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    Op,
    Reduced,
    children,
    walk,
)
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Interface, Loop, Program, Require, Stmt
from ostinato.sizes.dims import Size

# Infix operators with their precedence.
_INFIX = {
    **dict.fromkeys(("or", "xor", "and"), 1),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), 2),
    **dict.fromkeys(("add", "sub"), 3),
    **dict.fromkeys(("mul", "div", "mod"), 4),
}
_SIGNS = {
    "or": "|", "xor": "^", "and": "&", "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_ATOM = 5


def text(program: Program) -> str:
    """The whole program."""
    defined = dict(program.definitions)
    lines = [
        f"symbol {name} = {defined[name]}" if name in defined else f"symbol {name}"
        for name in program.symbols
    ]
    interfaces = {i.buffer: i for i in (*program.inputs, *program.outputs)}
    for name, buffer in program.buffers.items():
        label = _interface_label(interfaces[name]) if name in interfaces else f"[{buffer.size}]"
        label += f" <= {buffer.bound}" if buffer.kind == "size" else ""
        lines.append(f"{buffer.kind} {name}: {buffer.dtype}{label}")
    lines += [
        f"{'guard' if check.is_guard else 'check'} {check.size} >= 0: {check.message}"
        for check in program.checks
    ]
    for statement in program.body:
        lines += _statement(statement)
    return "\n".join(lines) + "\n"


def kernel_text(kernel: Kernel) -> str:
    """One kernel."""
    return "\n".join(_kernel(kernel)) + "\n"


def _interface_label(interface: Interface) -> str:
    other = "" if interface.name == interface.buffer else f" as {interface.name}"
    return f"[{', '.join(map(str, interface.shape))}]{other}"


def _statement(statement: Stmt) -> Iterator[str]:
    if isinstance(statement, Kernel):
        yield from _kernel(statement)
    elif isinstance(statement, Require):
        kind = "guard" if statement.is_guard else "require"
        yield f"{kind} {statement.condition}: {statement.message}"
    elif isinstance(statement, Loop):
        yield _loop_header(statement)
        yield from _indented(statement.body)
    else:
        yield f"if {statement.condition}"
        yield from _indented(statement.then)
        yield "else"
        yield from _indented(statement.orelse)


def _indented(body: Sequence[Stmt]) -> Iterator[str]:
    for statement in body:
        yield from (f"  {line}" for line in _statement(statement))


def _loop_header(loop: Loop) -> str:
    carries = ", ".join(f"{carry.state} <-> {carry.next}" for carry in loop.carries)
    condition = "" if loop.condition is None else f" while {loop.condition}"
    order = " in any order" if loop.is_independent else ""
    if loop.scratch is not None:
        order = " ".join((" dealt out with", ", ".join(sorted(loop.scratch)) or "nothing"))
    states = f" carry {carries}" if carries else ""
    return f"loop {_axis(loop.axis)}{order}{condition}{states}"


def _axis(axis: Axis) -> str:
    return f"{axis.name} < {axis.extent}"


def _kernel(kernel: Kernel) -> Iterator[str]:
    source = f" from {', '.join(kernel.sources)}" if kernel.sources else ""
    order = f" in order of {', '.join(map(str, kernel.ordered))}" if kernel.ordered else ""
    yield f"kernel {kernel.name} [{', '.join(map(_axis, kernel.axes))}]{order}{source}"
    names = _Names()
    if kernel.guard is not None:
        guard = _Scope([kernel.guard], names)
        yield from guard.definitions(kernel.guard)
        yield f"  where {guard.show(kernel.guard)}"
    for position, reduce in enumerate(kernel.reductions):
        yield from _reduce(position, reduce, names)
    scope = _Scope([e for store in kernel.stores for e in store.expressions()], names)
    for store in kernel.stores:
        for expr in store.expressions():
            yield from scope.definitions(expr)
        computed = [_times(scope.show(value, _ATOM), stride) for value, stride in store.index]
        condition = "" if store.mask is None else f" if {scope.show(store.mask)}"
        yield f"  {_access(store.access, computed)} = {scope.show(store.value)}{condition}"


def _reduce(position: int, reduce: Reduce, names: _Names) -> Iterator[str]:
    axes = ", ".join(map(_axis, reduce.axes))
    chains = f" in {reduce.chains} chains" if reduce.chains > 1 else ""
    scope = _Scope(reduce.operands, names)
    lines = [line for expr in reduce.operands for line in scope.definitions(expr)]
    shown = ", ".join(scope.show(expr) for expr in reduce.operands)
    element = shown if reduce.factor is None else f"{reduce.step}({shown})"
    yield f"  r{position} = {reduce.combine} {axes}{chains}: {element}"
    yield from (f"    with{line[1:]}" for line in lines)


class _Names:
    """Numbers for the named subexpressions of one kernel."""

    def __init__(self) -> None:
        self.next = 0

    def fresh(self) -> str:
        self.next += 1
        return f"v{self.next - 1}"


class _Scope:
    """Expressions of one scope, which share the names of common subexpressions."""

    def __init__(self, roots: Sequence[Expr], names: _Names) -> None:
        uses = Counter(child for node in walk(*roots) for child in children(node))
        uses.update(roots)
        self.shared = {node for node, count in uses.items() if count > 1 and not _short(node)}
        self.names = names
        # Texts, each with the precedence of its outermost operator.
        self.known: dict[Expr, tuple[str, int]] = {}

    def definitions(self, root: Expr) -> Iterator[str]:
        """Yield the lines that name the subexpressions of `root` which no line has named before."""
        for node in walk(root, skip=self.known):
            text, strength = self._text(node)
            if node in self.shared:
                name = self.names.fresh()
                yield f"  {name} = {text}"
                text, strength = name, _ATOM
            self.known[node] = text, strength

    def show(self, node: Expr, strength: int = 0) -> str:
        """The text of a named expression, in parentheses if it binds less than `strength`."""
        body, own = self.known[node]
        return f"({body})" if own < strength else body

    def _text(self, node: Expr) -> tuple[str, int]:
        """The text of an expression whose operands have texts."""
        if isinstance(node, Op) and node.name in _INFIX and len(node.args) == 2:
            own = _INFIX[node.name]
            left, right = self.show(node.args[0], own), self.show(node.args[1], own + 1)
            return f"{left} {_SIGNS[node.name]} {right}", own
        if isinstance(node, Op):
            name = f"bitcast<{node.dtype}>" if node.name == "bitcast" else node.name
            return f"{name}({', '.join(map(self.show, node.args))})", _ATOM
        if isinstance(node, Cast):
            return f"{node.dtype}({self.show(node.value)})", _ATOM
        if isinstance(node, Load):
            return self._load(node), _ATOM
        return _leaf(node), _ATOM

    def _load(self, load: Load) -> str:
        computed = [_times(self.show(value, _ATOM), stride) for value, stride in load.index]
        element = _access(load.access, computed)
        if load.mask is None:
            return element
        other = "?" if load.other is None else _leaf(load.other)
        return f"({element} if {self.show(load.mask)} else {other})"


def _short(node: Expr) -> bool:
    """Whether an expression is as short as a name for it would be."""
    return isinstance(node, Const | Index | Extent | Reduced)


def _leaf(node: Expr) -> str:
    if isinstance(node, Const):
        return str(np.float32(node.value)) if node.dtype == "float32" else str(node.value)
    if isinstance(node, Index):
        return node.axis.name
    if isinstance(node, Extent):
        return f"extent({node.size})"
    if isinstance(node, Reduced):
        return f"r{node.position}"
    return f"<{type(node).__name__}>"


def _access(access: Access, computed: Sequence[str] = ()) -> str:
    terms = [*(_times(axis.name, stride) for axis, stride in access.terms), *computed]
    if access.offset != 0 or not terms:
        terms.append(str(access.offset))
    return f"{access.buffer}[{' + '.join(terms).replace('+ -', '- ')}]"


def _times(position: str, stride: Size) -> str:
    if stride == 1:
        return position
    factor = str(stride)
    return f"({factor})*{position}" if " " in factor else f"{factor}*{position}"
