"""Inputs that become an output except for what is stored into it: both may be one memory.

    for all i: y[i] = x[i]         not run where y is x
    y[p] = f(..)
    .. g(y[q]) ..

Nothing reads the input after something else is stored into the output, and no check can fail from
there on, so a call that raises leaves the input as it was.
"""

from __future__ import annotations

from collections import Counter

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program, Require, statements
from ostinato.schedule.in_place import copied_from, whole_stores


def replaced_inputs(program: Program) -> dict[str, tuple[int, int]]:
    """Map kernels that copy an input, by name, to the positions of the input and its output."""
    body = [(s, s.reads(), s.writes()) for s in program.body]
    inputs = {one.buffer: place for place, one in enumerate(program.inputs)}
    outputs = {one.buffer: place for place, one in enumerate(program.outputs)}
    found: dict[str, tuple[int, int]] = {}
    for place, (kernel, _, writes) in enumerate(body):
        if not isinstance(kernel, Kernel) or len(kernel.stores) != 1:
            continue
        (target,), source = writes, copied_from(kernel, kernel.stores[0])
        if source not in inputs or target not in outputs or outputs[target] in program.shapes:
            continue
        behind = range(place + 1, len(body))
        first = next((i for i in behind if target in body[i][2]), len(body))
        is_first = all(target not in reads | writes for _, reads, writes in body[:place])
        is_read = any(source in reads for _, reads, _ in body[first:])
        rest = statements(tuple(statement for statement, _, _ in body[first:]))
        is_whole = target in whole_stores(kernel, program.buffers)
        if is_whole and is_first and not is_read and not any(isinstance(s, Require) for s in rest):
            found[kernel.name] = inputs[source], outputs[target]
    count = Counter(source for source, _ in found.values())
    return {name: pair for name, pair in found.items() if count[pair[0]] == 1}
