"""How loops make rarer states: bytes, halves, masks, texts, what is empty or may be nothing."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tools.fuzz.loop_program import Program, makes, updates

# Bytes, which wrap: [width]


@makes("bytes")
def _first_bytes(p: Program) -> str:
    return p.constant(p.random.integers(0, 256, p.width), "uint8")


@makes("bytes", 2)
def _of_number(p: Program) -> str:
    byte = p.add("Cast", p.pick("number"), to=TensorProto.UINT8)
    return p.add("Add", byte, _first_bytes(p))


@updates("bytes", 3)
def _next_bytes(p: Program, state: str) -> str:
    op = p.choose(("Add", "Mul", "Sub", "BitwiseXor", "BitwiseAnd", "Max"))
    return p.add(op, *((state, p.pick("bytes")) if p.chance(0.5) else (p.pick("bytes"), state)))


@updates("bytes")
def _chosen_bytes(p: Program, state: str) -> str:
    return p.add("Where", p.pick("flag"), state, p.pick("bytes"))


@makes("vec", of="bytes")
def _vec_of_bytes(p: Program) -> str:
    wide = p.add("Cast", p.pick("bytes"), to=TensorProto.FLOAT)
    return p.add("Tanh", p.add("Mul", wide, p.constant(1 / 64, "float32")))


# Halves, all of them multiples of 1/8 that stay small: [width]


@makes("halves")
def _first_halves(p: Program) -> str:
    return p.constant(p.random.integers(-9, 9, p.width) / 8, "float16")


@makes("halves", 2)
def _half_of_number(p: Program) -> str:
    half = p.add("Cast", p.pick("number"), to=TensorProto.FLOAT16)
    return p.add("Mul", half, _first_halves(p))


@updates("halves", 2)
def _next_halves(p: Program, state: str) -> str:
    total = p.add(p.choose(("Add", "Sub", "Max")), state, p.pick("halves"))
    return p.add("Clip", total, p.constant(-8, "float16"), p.constant(8, "float16"))


@makes("vec", of="halves")
def _vec_of_halves(p: Program) -> str:
    return p.add("Sigmoid", p.add("Cast", p.pick("halves"), to=TensorProto.FLOAT))


# Masks: [n]


@makes("flags")
def _first_flags(p: Program) -> str:
    return p.constant(p.random.random(p.choose((0, 1, 3))) < 0.5, "bool")


@makes("flags", 2)
def _mask_of(p: Program) -> str:
    return p.mask(p.pick(p.choose(("rows", "ints"))))


@updates("flags", 3)
def _append_flag(p: Program, state: str) -> str:
    pair = [state, p.one(p.pick("flag"))]
    if p.chance(0.3):
        pair.reverse()
    return p.add("Concat", *pair, axis=0)


@updates("flags")
def _turned_flags(p: Program, state: str) -> str:
    return p.add("Not", state) if p.chance(0.5) else p.sliced(state)


@makes("number", of="flags")
def _how_many(p: Program) -> str:
    found = p.add("NonZero", p.pick("flags"))
    return p.count(found, 1)


@makes("rows", of="flags")
def _kept_rows(p: Program) -> str:
    """Rows of a mask that may be shorter than what it masks."""
    mask = p.pick("flags")
    shape = p.add("Concat", p.one(p.count(mask)), p.constant([p.width]), axis=0)
    return p.add("Compress", p.add("Expand", p.pick("vec"), shape), mask, axis=0)


# No rows at all: [0, width]


@makes("nothing")
def _first_nothing(p: Program) -> str:
    if p.chance(0.4):
        return p.constant(np.zeros((0, p.width)), "float32")
    far = p.constant([0]), p.constant([0]), p.constant([0])
    return p.add("Slice", p.pick("buffer"), *far)


@updates("nothing")
def _next_nothing(p: Program, state: str) -> str:
    if p.chance(0.4):
        return p.add("Concat", state, p.pick("nothing"), axis=0)
    return p.layer(state) if p.chance(0.5) else p.add("Add", state, p.pick("vec"))


@makes("vec", of="nothing")
def _sum_of_nothing(p: Program) -> str:
    total = p.add("ReduceSum", p.pick("nothing"), p.constant([0]), keepdims=0)
    return p.add("Add", total, p.pick("vec"))


@makes("rows", of="nothing")
def _beside_nothing(p: Program) -> str:
    return p.add("Concat", p.pick("nothing"), p.pick("rows"), axis=0)


# Texts: [n]

WORDS = ("", "a", "no", "Größe", "on and on", "0")


@makes("texts")
def _first_texts(p: Program) -> str:
    count = p.choose((0, 1, 3))
    return p.constant([p.choose(WORDS) for _ in range(count)], "object")


@updates("texts", 2)
def _append_text(p: Program, state: str) -> str:
    pair = [state, p.constant([p.choose(WORDS)], "object")]
    if p.chance(0.3):
        pair.reverse()
    return p.add("Concat", *pair, axis=0)


@updates("texts")
def _fewer_texts(p: Program, state: str) -> str:
    return p.sliced(state) if p.chance(0.5) else p.filtered(state)


@updates("texts")
def _other_texts(p: Program, state: str) -> str:
    return p.add("Where", p.pick("flag"), state, state)


@makes("number", of="texts")
def _how_many_texts(p: Program) -> str:
    return p.count(p.pick("texts"))


# What may be nothing: a vector or none


def _none(p: Program) -> str:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [p.width])
    return p.add("Optional", type=element)


def _given(p: Program) -> str:
    return p.add("Optional", p.pick("vec"))


@makes("maybe")
def _first_maybe(p: Program) -> str:
    return _given(p) if p.chance(0.5) else _none(p)


@updates("maybe")
def _next_maybe(p: Program, state: str) -> str:
    others = [_given, _none, lambda inner: state]
    p.random.shuffle(others)
    return p.branched("maybe", *others[:2])


@makes("flag", of="maybe")
def _is_given(p: Program) -> str:
    return p.add("OptionalHasElement", p.pick("maybe"))


@makes("vec", 2, of="maybe")
def _vec_if_given(p: Program) -> str:
    given = p.pick("maybe")
    decides = p.add("OptionalHasElement", given)
    return p.branched(
        "vec",
        lambda inner: inner.add("OptionalGetElement", given),
        lambda inner: inner.pick("vec"),
        decides,
    )


# Lists of integers, of which there is one at least


@makes("lists")
def _first_lists(p: Program) -> str:
    return p.add("SequenceConstruct", *(p.pick("ints") for _ in range(p.choose((1, 2)))))


@updates("lists")
def _next_lists(p: Program, state: str) -> str:
    return p.add("SequenceInsert", state, p.pick("ints"))


@makes("ints", of="lists")
def _one_of_lists(p: Program) -> str:
    return p.element(p.pick("lists"))


@makes("ints", of="lists")
def _joined_lists(p: Program) -> str:
    return p.add("ConcatFromSequence", p.pick("lists"), axis=0)
