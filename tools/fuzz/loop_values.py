"""How loops compute numbers, flags, vectors and integers."""

from __future__ import annotations

from tools.fuzz.loop_program import SLOTS, Program, makes, updates

# Numbers and flags


@makes("number")
def _number(p: Program) -> str:
    return p.constant(p.choose((0, 1, 2, 3, 5)))


@makes("number", 3)
def _size(p: Program) -> str:
    kind = p.choose(("rows", "ints", "columns", "beams"))
    return p.count(p.pick(kind), {"columns": 1, "beams": 1}.get(kind, 0))


@makes("number", 2)
def _sum_of_ints(p: Program) -> str:
    total = p.add("ReduceSum", p.pick("ints"), p.constant([0]), keepdims=0)
    return p.add("Mod", total, p.constant(7))


@makes("number")
def _length(p: Program) -> str:
    return p.add("SequenceLength", p.pick("list"))


@makes("number", 2)
def _arithmetic(p: Program) -> str:
    x, y = p.pick("number"), p.pick("number")
    return p.add("Mod", p.add(p.choose(("Add", "Mul", "Max")), x, y), p.constant(p.choose((5, 9))))


@makes("number")
def _number_of_flag(p: Program) -> str:
    return p.add("Where", p.pick("flag"), p.pick("number"), p.pick("number"))


@makes("flag", 2)
def _compared(p: Program) -> str:
    op = p.choose(("Less", "Equal", "GreaterOrEqual"))
    return p.add(op, p.below(p.choose((3, 4))), p.constant(p.choose((1, 2))))


@makes("flag")
def _any(p: Program) -> str:
    with_one = p.add("Concat", p.pick("ints"), p.one(p.pick("number")), axis=0)
    largest = p.add("ReduceMax", with_one, p.constant([0]), keepdims=0)
    return p.add("Less", largest, p.constant(p.choose((3, 6))))


@updates("number")
def _next_number(p: Program, state: str) -> str:
    more = p.add("Add", state, p.pick("number"))
    return p.add("Mod", more, p.constant(p.choose((7, 12))))


@updates("number")
def _chosen_number(p: Program, state: str) -> str:
    return p.add("Where", p.pick("flag"), state, p.pick("number"))


@updates("flag")
def _next_flag(p: Program, state: str) -> str:
    return p.add(p.choose(("And", "Or", "Xor")), state, p.pick("flag"))


# Vectors


@makes("vec")
def _vec(p: Program) -> str:
    return p.weights(p.width)


@makes("vec", 3)
def _layer(p: Program) -> str:
    return p.layer(p.pick("vec"))


@makes("vec", 2)
def _reduced(p: Program) -> str:
    total = p.add("ReduceSum", p.pick("rows"), p.constant([0]), keepdims=0)
    return p.add("Tanh", total)


@makes("vec", 2)
def _largest(p: Program) -> str:
    return p.add(p.choose(("ReduceMax", "ReduceMean")), p.some(), p.constant([0]), keepdims=0)


@makes("vec", 3)
def _attention(p: Program) -> str:
    rows = p.some()
    scores = p.add("MatMul", rows, p.pick("vec"))
    return p.add("MatMul", p.add("Softmax", scores, axis=-1), rows)


@makes("vec", 2)
def _one_row(p: Program) -> str:
    rows = p.some()
    if p.chance(0.4):
        return p.add("Gather", rows, p.constant(-1), axis=0)
    return p.add("Gather", rows, p.index(rows), axis=0)


@makes("vec")
def _of_columns(p: Program) -> str:
    both = p.add("Concat", p.pick("columns"), p.weights(p.width, 1), axis=1)
    return p.add("ReduceMean", both, p.constant([1]), keepdims=0)


@makes("vec")
def _of_beams(p: Program) -> str:
    total = p.add("ReduceSum", p.pick("beams"), p.constant([0, 1]), keepdims=0)
    return p.add("Tanh", total)


@makes("vec", 2)
def _slot(p: Program) -> str:
    return p.add("Gather", p.pick("buffer"), p.below(SLOTS), axis=0)


@makes("vec")
def _of_list(p: Program) -> str:
    total = p.add("ReduceSum", p.element(p.pick("list")), p.constant([0]), keepdims=0)
    return p.add("Sigmoid", total)


@updates("vec", 2)
def _cell(p: Program, state: str) -> str:
    return p.layer(state)


@updates("vec")
def _gated(p: Program, state: str) -> str:
    return p.add("Where", p.pick("flag"), state, p.pick("vec"))


# Integers: [n]


@makes("ints")
def _first_ints(p: Program) -> str:
    return p.constant(p.random.integers(0, 9, p.choose((0, 1, 3))))


@makes("ints", 2)
def _range(p: Program) -> str:
    return p.add("Range", p.constant(0), p.below(5), p.constant(1))


@makes("ints", 2)
def _fewer_ints(p: Program) -> str:
    ints = p.pick("ints")
    mask = p.add("Less", ints, p.constant(p.choose((3, 5))))
    return p.add("Compress", ints, mask, axis=0)


@makes("ints")
def _places(p: Program) -> str:
    found = p.add("NonZero", p.add("Less", p.pick("ints"), p.constant(4)))
    return p.add("Squeeze", found, p.constant([0]))


@makes("ints")
def _largest_ints(p: Program) -> str:
    ints = p.pick("ints")
    limit = p.add("Min", p.one(p.count(ints)), p.constant([2]))
    return p.add_several("TopK", 2, ints, limit, axis=0)[0]


@makes("ints")
def _unique(p: Program) -> str:
    return p.add("Unique", p.add("Concat", p.pick("ints"), p.one(p.below(6)), axis=0), axis=0)


@makes("ints")
def _mapped_ints(p: Program) -> str:
    return p.add("Mod", p.add("Add", p.pick("ints"), p.pick("number")), p.constant(11))


@updates("ints", 3)
def _append_int(p: Program, state: str) -> str:
    number = p.one(p.pick("number"))
    return p.add("Concat", *((state, number) if p.chance(0.8) else (number, state)), axis=0)


@updates("ints")
def _cut_ints(p: Program, state: str) -> str:
    return p.sliced(p.add("Concat", state, p.one(p.pick("number")), axis=0))


@updates("ints")
def _push_or_pop(p: Program, state: str) -> str:
    def push(inner: Program) -> str:
        return inner.add("Concat", state, inner.one(inner.pick("number")), axis=0)

    def pop(inner: Program) -> str:
        ends = inner.constant([0]), inner.constant([-1])
        return inner.add("Slice", state, *ends, inner.constant([0]))

    return p.branched("ints", push, pop)
