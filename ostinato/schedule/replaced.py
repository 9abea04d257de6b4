"""Inputs that become an output except for what is stored into it: both may be one memory.

    for all i: y[i] = x[i]         not run where y is x
    y[p] = f(..)
    .. g(y[q]) ..

Nothing reads the input after something else is stored into the output, and no check can fail from
there on, so a call that raises leaves the input as it was. What the copy leaves out is stored
behind it.

Memory that is both has one shape. So where the sizes of the output may be others than those of the
input, such as the rows of a cache that grows if there are more of them than it has room for, they
are taken to be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ostinato.program.expr import Access, Load
from ostinato.program.kernel import Kernel, map_accesses
from ostinato.program.nodes import Interface, Program, Require, statements
from ostinato.schedule.in_place import copied_from
from ostinato.sizes.substitution import with_equal


def replaced_inputs(program: Program) -> dict[str, tuple[int, int]]:
    """Map kernels that copy an input, by name, to the positions of the input and its output."""
    body = [(s, s.reads(), s.writes()) for s in program.body]
    inputs = {one.buffer: place for place, one in enumerate(program.inputs)}
    outputs = {one.buffer: place for place, one in enumerate(program.outputs)}
    found: dict[str, tuple[int, int]] = {}
    for place, (kernel, _, writes) in enumerate(body):
        if not isinstance(kernel, Kernel) or len(kernel.stores) != 1:
            continue
        (target,) = writes
        if target not in outputs or outputs[target] in program.shapes:
            continue
        source = _original(kernel, program, inputs, program.outputs[outputs[target]])
        if source is None:
            continue
        behind = range(place + 1, len(body))
        first = next((i for i in behind if target in body[i][2]), len(body))
        is_first = all(target not in reads | writes for _, reads, writes in body[:place])
        is_read = any(source in reads for _, reads, _ in body[first:])
        rest = statements(tuple(statement for statement, _, _ in body[first:]))
        if is_first and not is_read and not any(isinstance(s, Require) for s in rest):
            found[kernel.name] = inputs[source], outputs[target]
    count = Counter(source for source, _ in found.values())
    return {name: pair for name, pair in found.items() if count[pair[0]] == 1}


def _original(
    kernel: Kernel, program: Program, inputs: Mapping[str, int], output: Interface
) -> str | None:
    """The input of which a kernel copies elements to the same places of an output of one shape."""
    load = kernel.stores[0].value
    if not isinstance(load, Load) or load.access.buffer not in inputs:
        return None
    given = program.inputs[inputs[load.access.buffer]].shape
    if len(given) != len(output.shape):
        return None
    same = {there: here for there, here in zip(output.shape, given, strict=True) if there != here}

    def resized(access: Access) -> Access:
        terms = tuple((axis, with_equal(stride, same)) for axis, stride in access.terms)
        return replace(access, offset=with_equal(access.offset, same), terms=terms)

    changed = map_accesses(kernel, resized) if same else kernel
    return copied_from(changed, changed.stores[0])
