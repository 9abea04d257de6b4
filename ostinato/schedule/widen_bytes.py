"""Products of bytes take pairs of 16 bits where no instruction multiplies bytes.

    sum += dot(x[4 k ..], w[k])      =>      wide[j] = int16(x[j])
                                             sum += dot_pairs(wide[4 k + 2 half ..], u[k, half])

An instruction of x86 multiplies two halves of a word by two others and adds both products. Bytes of
both operands would have to be extracted from their words for each product. So the constant operand
is stored as halves, and the computed one is widened once, where so many products read each element
that this pays. Integers wrap and no product of halves overflows, so results keep their bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from ostinato.machine.record import Machine
from ostinato.program.expr import Access, Axis, Expr, Load, Op, cast, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.laid import Contents, elements
from ostinato.program.nodes import Branch, Buffer, Program, Stmt, with_bodies
from ostinato.program.words import BYTES, FLIP, first_of_word, pair
from ostinato.records import dataclass
from ostinato.schedule.decisions import decided
from ostinato.schedule.relayout import least_uses
from ostinato.sizes.dims import Size, is_nonnegative, product

# How many rows have to read each constant: fewer are bound by its bytes, of which there are then
# twice as many. How many products have to read each widened element. Products of 4 rows and more
# take 0.64 to 1.03 of the time with 32 columns and more, 0.90 to 1.00 with 16 and up to 1.05 with 8
# (sessions with and without `disable=("widen_bytes",)` in turns, on Zen 3).
LEAST_ROWS = 4
# The same where the run decides: the other kernel is compiled for few rows.
LEAST_OPEN_ROWS = 16
LEAST_PRODUCTS = 32
_HALVES = 2

# The buffers of widened bytes, by that of the bytes and whether these are signed, and flipped.
_Made: TypeAlias = "dict[tuple[str, bool, bool], str]"


@dataclass(frozen=True)
class _Words:
    """The operands of a sum of products of bytes: the first byte of a word, and constant words.

    signed: whether the bytes are, and the constants are not, or the other way round. flipped:
    whether signed bytes are made unsigned there. rows: that read each constant.
    """

    bytes: Load
    signed: bool
    flipped: bool
    constants: Load
    rows: Size


def widen_bytes(program: Program, machine: Machine) -> Program:
    """Let sums of products of bytes take pairs, where no instruction multiplies bytes."""
    if machine.byte_dots != "none":
        return program
    buffers, constants = dict(program.buffers), dict(program.constants)

    def inside(body: tuple[Stmt, ...], is_alone: bool) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        made: _Made = {}
        for statement in body:
            made = {key: wide for key, wide in made.items() if key[0] not in statement.writes()}
            if isinstance(statement, Kernel):
                result += _changed(statement, buffers, constants, made, is_alone)
            else:
                alone = is_alone and isinstance(statement, Branch)
                result.append(with_bodies(statement, partial(inside, is_alone=alone)))
        return tuple(result)

    body = inside(program.body, True)
    return program.with_body(body, buffers, constants)


def _changed(
    kernel: Kernel,
    buffers: dict[str, Buffer],
    constants: dict[str, Contents],
    made: _Made,
    is_alone: bool,
) -> list[Stmt]:
    """Return the statements that take a kernel's place; outside of loops the run may decide.

    made: buffers that are widened already; gets those that this kernel widens in all runs.
    """
    found = _words(kernel, buffers, constants)
    known = found is not None and is_nonnegative(found.rows - LEAST_ROWS)
    if found is None or not (known or is_alone):
        return [kernel]
    paired = _in_pairs(kernel, found, buffers, constants, made if known else dict(made))
    if known:
        return paired
    return decided(kernel, "pairs", found.rows, LEAST_OPEN_ROWS, tuple(paired), buffers)


def _words(
    kernel: Kernel, buffers: Mapping[str, Buffer], constants: Mapping[str, Contents]
) -> _Words | None:
    """The operands of a kernel's only sum, if pairs take less time; else None."""
    if len(kernel.reductions) != 1 or kernel.ordered or kernel.guard is not None:
        return None
    (reduce,) = kernel.reductions
    if reduce.step != "dot" or reduce.chains > 1 or reduce.factor is None:
        return None
    expr, words, flipped = reduce.expr, reduce.factor, False
    signed = isinstance(expr, Load)
    if signed:
        expr, words = words, expr
    if not isinstance(words, Load):
        return None
    if isinstance(expr, Op) and expr.name == "xor" and expr.args[1] is _whole(FLIP):
        expr, flipped = expr.args[0], True
    first = first_of_word(expr)
    plain = first is not None and all(x.mask is None and not x.index for x in (first, words))
    if first is None or not plain or words.access.buffer not in constants:
        return None
    rows = least_uses(kernel, [words])
    extents = [axis.extent for axis in (*kernel.axes, *reduce.axes)]
    products, size = product(extents) * BYTES, buffers[first.access.buffer].size
    few = isinstance(rows, int) and rows < LEAST_ROWS
    pays = not few and is_nonnegative(products - LEAST_PRODUCTS * size)
    return _Words(first, signed, flipped, words, rows) if pays else None


def _in_pairs(
    kernel: Kernel,
    found: _Words,
    buffers: dict[str, Buffer],
    constants: dict[str, Contents],
    made: _Made,
) -> list[Stmt]:
    """The kernel of the sum on pairs, behind a kernel that widens its computed operand.

    Buffers in `made` are not widened again.
    """
    (reduce,) = kernel.reductions
    widened = list[Stmt]()
    key = found.bytes.access.buffer, found.signed, found.flipped
    if key not in made:
        made[key] = f"wide.{kernel.name}"
        widened = [_widening(kernel, found, made[key], buffers)]

    half = Axis(f"{reduce.axes[-1].name}h", _HALVES)
    own = found.bytes.access
    terms = (*own.terms, (half, BYTES // _HALVES))
    halves = [Load(Access(made[key], own.offset + n, terms), "int16") for n in range(_HALVES)]
    paired = replace(
        reduce,
        axes=(*reduce.axes, half),
        expr=pair(halves),
        factor=_constant_pairs(found, half, buffers, constants),
        pairs=True,
    )
    return [*widened, replace(kernel, reductions=(paired,))]


def _widening(kernel: Kernel, found: _Words, name: str, buffers: dict[str, Buffer]) -> Kernel:
    """The kernel that widens the bytes that another one reads; `buffers` gets what it fills."""
    source = buffers[found.bytes.access.buffer]
    buffers[name] = Buffer(name, "int16", source.size, "arena")
    place = Axis(f"{kernel.reductions[0].axes[-1].name}w", source.size)
    byte: Expr = Load(Access(source.name, 0, ((place, 1),)), source.dtype)
    byte = cast(byte, "int8" if found.signed else "uint8")
    if found.flipped:
        byte = op("xor", byte, constant(128, "uint8"))
    store = Store(Access(name, 0, ((place, 1),)), cast(byte, "int16"))
    return Kernel(name, (place,), (), (store,), sources=kernel.sources)


def _constant_pairs(
    found: _Words, half: Axis, buffers: dict[str, Buffer], constants: dict[str, Contents]
) -> Load:
    """Store words of constant bytes as two words of halves; `buffers` and `constants` get them."""
    words, kind = found.constants, np.uint8 if found.signed else np.int8
    source = words.access.buffer
    name = f"{'unsigned' if found.signed else 'halves'}.{source}"
    values = elements(constants[source])
    if name not in constants:
        bytes_ = np.ascontiguousarray(values).view(kind).reshape(-1, _HALVES, BYTES // _HALVES)
        widened = np.ascontiguousarray(bytes_.transpose(1, 0, 2).astype(np.int16))
        constants[name] = widened.view(np.int32).reshape(-1)
        buffers[name] = replace(buffers[source], name=name, size=_HALVES * values.size)
    access = Access(name, words.access.offset, (*words.access.terms, (half, values.size)))
    return Load(access, words.dtype)


def _whole(number: int) -> Expr:
    return constant(number, "int32")
