"""How loops make rows, columns, beams, buffers and lists, and change them."""

from __future__ import annotations

import numpy as np

from tools.fuzz.loop_program import BEAMS, SLOTS, Program, makes, updates

# Rows: [n, width], of which there may be none


@makes("rows")
def _first_rows(p: Program) -> str:
    return p.weights(p.choose((0, 0, 1, 2)), p.width)


@makes("rows")
def _single_row(p: Program) -> str:
    return p.row()


@makes("rows", 2)
def _of_vec(p: Program) -> str:
    shape = p.add("Concat", p.one(p.below(4)), p.constant([p.width]), axis=0)
    return p.add("Expand", p.pick("vec"), shape)


@makes("rows", 2)
def _mapped(p: Program) -> str:
    return p.layer(p.pick("rows"))


@makes("rows", 3)
def _part(p: Program) -> str:
    return p.sliced(p.pick("rows"))


@makes("rows", 2)
def _chosen(p: Program) -> str:
    rows = p.pick("rows")
    return p.filtered(rows)


@makes("rows")
def _looked_up(p: Program) -> str:
    rows = p.some()
    places = p.add("Mod", p.pick("ints"), p.count(rows))
    return p.add("Gather", rows, places, axis=0)


@makes("rows")
def _transposed(p: Program) -> str:
    return p.add("Transpose", p.pick("columns"), perm=[1, 0])


@makes("rows")
def _masked(p: Program) -> str:
    rows = p.pick("rows")
    mask = p.add("Unsqueeze", p.mask(rows), p.constant([1]))
    return p.add("Where", mask, rows, p.pick("vec"))


@makes("rows")
def _summed(p: Program) -> str:
    return p.add("Tanh", p.add("CumSum", p.pick("rows"), p.constant(0)))


@makes("rows", 2)
def _branch_rows(p: Program) -> str:
    return p.branched(
        "rows", lambda inner: inner.pick("rows"), lambda inner: inner.sliced(inner.some())
    )


@makes("rows")
def _element_of_list(p: Program) -> str:
    return p.element(p.pick("list"))


@makes("rows")
def _joined_list(p: Program) -> str:
    return p.add("ConcatFromSequence", p.pick("list"), axis=0)


@updates("rows", 4)
def _append(p: Program, state: str) -> str:
    more = p.row() if p.chance(0.7) else p.sliced(p.some())
    return p.add("Concat", *((state, more) if p.chance(0.8) else (more, state)), axis=0)


@updates("rows", 2)
def _window(p: Program, state: str) -> str:
    longer = p.add("Concat", state, p.row(), axis=0)
    kept = p.constant([-p.choose((2, 4))]), p.constant([2**40])
    return p.add("Slice", longer, *kept, p.constant([0]))


@updates("rows", 2)
def _shrink(p: Program, state: str) -> str:
    return p.sliced(state) if p.chance(0.5) else p.filtered(state)


@updates("rows", 2)
def _append_or_drop(p: Program, state: str) -> str:
    def grown(inner: Program) -> str:
        return inner.add("Concat", state, inner.row(), axis=0)

    def other(inner: Program) -> str:
        return state if inner.chance(0.4) else inner.sliced(state)

    return p.branched("rows", *((grown, other) if p.chance(0.5) else (other, grown)))


@updates("rows")
def _reordered(p: Program, state: str) -> str:
    longer = p.add("Concat", state, p.row(), axis=0)
    count = p.count(longer)
    places = p.add("Range", p.constant(0), count, p.constant(1))
    moved = p.add("Mod", p.add("Add", places, p.pick("number")), count)
    return p.add("Gather", longer, moved, axis=0)


@updates("rows")
def _changed(p: Program, state: str) -> str:
    if p.chance(0.5):
        return p.add("Tanh", p.add("Add", state, p.pick("vec")))
    longer = p.add("Concat", state, p.row(), axis=0)
    place = p.add("Unsqueeze", p.one(p.index(longer)), p.constant([0]))
    return p.add("ScatterND", longer, place, p.row())


# Columns: [width, n]; beams: [beams, n, width]


@makes("columns")
def _first_columns(p: Program) -> str:
    return p.weights(p.width, p.choose((0, 1)))


@makes("columns")
def _columns_of_rows(p: Program) -> str:
    return p.add("Transpose", p.pick("rows"), perm=[1, 0])


@updates("columns", 2)
def _append_column(p: Program, state: str) -> str:
    column = p.add("Unsqueeze", p.pick("vec"), p.constant([1]))
    return p.add("Concat", *((state, column) if p.chance(0.7) else (column, state)), axis=1)


@updates("columns")
def _cut_columns(p: Program, state: str) -> str:
    column = p.add("Unsqueeze", p.pick("vec"), p.constant([1]))
    return p.sliced(p.add("Concat", state, column, axis=1), axis=1)


@makes("beams")
def _first_beams(p: Program) -> str:
    return p.weights(BEAMS, p.choose((0, 1, 2)), p.width)


@updates("beams", 2)
def _append_beams(p: Program, state: str) -> str:
    base = p.add("Reshape", p.pick("vec"), p.constant([1, 1, p.width]))
    piece = p.add("Tanh", p.add("Mul", base, p.weights(BEAMS, 1, p.width)))
    return p.add("Concat", state, piece, axis=1)


@updates("beams", 2)
def _reorder_beams(p: Program, state: str) -> str:
    longer = _append_beams(p, state) if p.chance(0.7) else state
    first = p.below(BEAMS)
    second = p.below(BEAMS) if p.chance(0.5) else p.constant(p.choose((0, 1)))
    order = p.add("Concat", p.one(first), p.one(second), axis=0)
    return p.add("Gather", longer, order, axis=0)


# Buffers: [slots, width], written in place


@makes("buffer")
def _first_buffer(p: Program) -> str:
    return p.weights(SLOTS, p.width)


@updates("buffer", 3)
def _write_slot(p: Program, state: str) -> str:
    place = p.below(SLOTS)
    form = p.choose(("ScatterND", "ScatterElements", "Where"))
    if form == "ScatterND":
        inputs = p.add("Unsqueeze", p.one(place), p.constant([0])), p.row()
        reduction = p.choose(("none", "add"))
        return p.add("ScatterND", state, *inputs, reduction=reduction)
    if form == "ScatterElements":
        places = p.add("Expand", p.one(place), p.constant([1, p.width]))
        return p.add("ScatterElements", state, places, p.row(), axis=0)
    slots = p.constant(np.arange(SLOTS)[:, None])
    return p.add("Where", p.add("Equal", slots, place), p.pick("vec"), state)


@updates("buffer")
def _shift(p: Program, state: str) -> str:
    ends = p.constant([1]), p.constant([SLOTS])
    return p.add("Concat", p.add("Slice", state, *ends, p.constant([0])), p.row(), axis=0)


# Lists of rows, of which there is one at least


@makes("list")
def _first_list(p: Program) -> str:
    return p.add("SequenceConstruct", p.pick("rows"))


@updates("list", 4)
def _insert(p: Program, state: str) -> str:
    value = p.row() if p.chance(0.5) else p.pick("rows")
    if p.chance(0.7):
        return p.add("SequenceInsert", state, value)
    place = p.add("Mod", p.pick("number"), p.add("SequenceLength", state))
    return p.add("SequenceInsert", state, value, place)


@updates("list")
def _insert_and_erase(p: Program, state: str) -> str:
    longer = p.add("SequenceInsert", state, p.row())
    if p.chance(0.4):
        return p.add("SequenceErase", longer)
    return p.add("SequenceErase", longer, p.constant(p.choose((0, -1))))
