"""Random loops whose states change their sizes, are lists, or are written in place.

Values have kinds rather than shapes: how many rows there are only a run tells, and every operator
is valid for any number of them. What decides (conditions, counts, indices) is computed from
integers alone, so that runtimes differ by roundings only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.choosing import Chooser
from tools.fuzz.random_graph import Counter

SLOTS = 5
BEAMS = 2

Array = np.ndarray[Any, Any]
Rule = Callable[["Program"], str]

COMMON = ("number", "flag", "vec", "rows", "columns", "beams", "ints", "buffer", "list")
RARE = ("bytes", "halves", "flags", "nothing", "texts", "maybe", "lists")
KINDS = COMMON + RARE
RULES: dict[str, list[tuple[Rule, str]]] = {kind: [] for kind in KINDS}
"""What makes a value of a kind, and the rare kind that it needs; see `makes`."""
UPDATES: dict[str, list[Callable[[Program, str], str]]] = {kind: [] for kind in KINDS}
"""What makes the next value of a state of a kind of the one before; see `updates`."""


def makes(kind: str, weight: int = 1, of: str = "") -> Callable[[Rule], Rule]:
    """Register a function that adds nodes and returns the name of a value of this kind.

    of: the rare kind of what it takes.
    """

    def register(function: Rule) -> Rule:
        RULES[kind] += [(function, of)] * weight
        return function

    return register


def updates(
    kind: str, weight: int = 1
) -> Callable[[Callable[[Program, str], str]], Callable[[Program, str], str]]:
    """Register a function that adds nodes and returns the next value of a state."""

    def register(function: Callable[[Program, str], str]) -> Callable[[Program, str], str]:
        UPDATES[kind] += [function] * weight
        return function

    return register


@dataclass
class Program(Chooser):
    """A graph that grows; `outer` is the one around it, whose values it reads.

    kinds: of the values that there are in this model.
    """

    width: int
    names: Counter
    depth: int = 0
    outer: Program | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    kinds: tuple[str, ...] = COMMON

    # Choosing

    def pick(self, kind: str) -> str:
        """A value of a kind; one that is there, more often newer, or a new one."""
        own = self.values[kind]
        if self.outer is not None and self.chance(0.2 if own else 0.7):
            return self.outer.pick_there(kind) or self.pick_there(kind) or self.new(kind)
        if own and self.chance(0.8):
            return own[int(len(own) * self.random.random() ** 0.5)]
        return self.new(kind)

    def pick_there(self, kind: str) -> str:
        """A value of a kind that is there, here or around; empty if there is none."""
        own = self.values[kind]
        if own:
            return str(self.choose(own))
        return self.outer.pick_there(kind) if self.outer is not None else ""

    def new(self, kind: str) -> str:
        """A value of a kind, made by one of its rules of what there is."""
        rules = [rule for rule, of in RULES[kind] if not of or of in self.kinds]
        name = str(self.choose(rules)(self))
        self.values[kind].append(name)
        return name

    # Writing

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """One node; the name of its first output."""
        return self.add_several(op, 1, *inputs, **attributes)[0]

    def add_several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        outputs = [self.names.next() for _ in range(count)]
        name = f"{op.lower()}_{outputs[0]}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs

    def constant(self, value: Any, dtype: str = "int64") -> str:
        name = self.names.next()
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape) * 0.7, "float32")

    def inner(self) -> Program:
        inner = Program(self.random, self.width, self.names, self.depth + 1, self)
        inner.kinds = self.kinds
        return inner

    # What many rules need

    def layer(self, x: str) -> str:
        """Products of a vector, or of rows, with weights; a vector is added."""
        product = self.add("MatMul", x, self.weights(self.width, self.width))
        return self.add("Tanh", self.add("Add", product, self.pick("vec")))

    def below(self, limit: int) -> str:
        """A number from 0 to limit - 1 that a run computes."""
        return self.add("Mod", self.pick("number"), self.constant(limit))

    def one(self, number: str) -> str:
        """A tensor of one element of a scalar."""
        return self.add("Unsqueeze", number, self.constant([0]))

    def row(self, vec: str | None = None) -> str:
        """One row, of a vector."""
        return self.add("Unsqueeze", vec or self.pick("vec"), self.constant([0]))

    def some(self) -> str:
        """Rows of which there is one at least."""
        pair = [self.pick("rows"), self.row()]
        self.random.shuffle(pair)
        return self.add("Concat", *pair, axis=0)

    def count(self, value: str, axis: int = 0) -> str:
        """How many there are along an axis, as a scalar."""
        shape = self.add("Shape", value)
        return self.add("Gather", shape, self.constant(axis), axis=0)

    def index(self, value: str) -> str:
        """A valid index of the first axis of what is not empty."""
        return self.add("Mod", self.pick("number"), self.count(value))

    def mask(self, value: str) -> str:
        """One flag for every row."""
        places = self.add("Range", self.constant(0), self.count(value), self.constant(1))
        if self.chance(0.5):
            places = self.add("Add", places, self.pick("number"))
        rest = self.add("Mod", places, self.constant(self.choose((2, 3))))
        return self.add("Equal", rest, self.constant(self.choose((0, 1))))

    def sliced(self, rows: str, axis: int = 0) -> str:
        """A part: the last few, without the first, without the last, up to a count, backwards."""
        far = 2**40
        start, end, step = self.choose(
            (
                (-3, far, 1),
                (1, far, 1),
                (0, -1, 1),
                (0, 3, 1),
                (-1, -far, -1),
                (0, far, 2),
                (-2, -1, 1),
            )
        )
        starts, ends = self.constant([start]), self.constant([end])
        if step == 1 and self.chance(0.4):
            starts, ends = self.constant([0]), self.one(self.pick("number"))
            if self.chance(0.5):
                starts, ends = ends, self.constant([far])
                if self.chance(0.5):
                    starts = self.add("Neg", starts)
        return self.add("Slice", rows, starts, ends, self.constant([axis]), self.constant([step]))

    def filtered(self, rows: str) -> str:
        mask = self.mask(rows)
        if self.chance(0.5):
            return self.add("Compress", rows, mask, axis=0)
        places = self.add("Transpose", self.add("NonZero", mask), perm=[1, 0])
        if self.chance(0.5):
            return self.add("GatherND", rows, places)
        return self.add("Gather", rows, self.add("Squeeze", places, self.constant([1])), axis=0)

    def branched(self, kind: str, first: Rule, second: Rule, decides: str = "") -> str:
        """An If whose branches give values of one kind, of any size."""
        decides = decides or self.pick("flag")
        graphs, start, ends = {}, self.names.number, []
        for name, rule in (("then_branch", first), ("else_branch", second)):
            # Names in one branch may be those in the other.
            self.names.number = start
            inner = self.inner()
            given = inner.result(rule(inner))
            outputs = [info(given, kind, self.width)]
            graphs[name] = helper.make_graph(inner.nodes, name, [], outputs, inner.constants)
            ends.append(self.names.number)
        self.names.number = max(ends)
        return self.add("If", decides, **graphs)

    def result(self, name: str, taken: Sequence[str] = ()) -> str:
        """A value as an output of this graph, which must be made in it.

        taken: what is an output already.
        """
        is_own = any(name in node.output for node in self.nodes)
        return (
            name
            if is_own and name not in taken and self.chance(0.7)
            else self.add("Identity", name)
        )

    def element(self, of: str) -> str:
        if self.chance(0.4):
            return self.add("SequenceAt", of, self.constant(self.choose((0, -1))))
        index = self.add("Mod", self.pick("number"), self.add("SequenceLength", of))
        return self.add("SequenceAt", of, index)


SHAPES: dict[str, tuple[int, tuple[Any, ...]]] = {
    "number": (TensorProto.INT64, ()),
    "flag": (TensorProto.BOOL, ()),
    "vec": (TensorProto.FLOAT, ("width",)),
    "rows": (TensorProto.FLOAT, (None, "width")),
    "columns": (TensorProto.FLOAT, ("width", None)),
    "beams": (TensorProto.FLOAT, (BEAMS, None, "width")),
    "ints": (TensorProto.INT64, (None,)),
    "buffer": (TensorProto.FLOAT, (SLOTS, "width")),
    "list": (TensorProto.FLOAT, (None, "width")),
    "bytes": (TensorProto.UINT8, ("width",)),
    "halves": (TensorProto.FLOAT16, ("width",)),
    "flags": (TensorProto.BOOL, (None,)),
    "nothing": (TensorProto.FLOAT, (0, "width")),
    "texts": (TensorProto.STRING, (None,)),
    "maybe": (TensorProto.FLOAT, ("width",)),
    "lists": (TensorProto.INT64, (None,)),
}


def info(name: str, kind: str, width: int) -> onnx.ValueInfoProto:
    """The type of a value of a kind."""
    number, shape = SHAPES[kind]
    axes = [width if axis == "width" else axis for axis in shape]
    element = helper.make_tensor_type_proto(number, axes)
    if kind in ("list", "lists"):
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    if kind == "maybe":
        return helper.make_value_info(name, helper.make_optional_type_proto(element))
    return helper.make_tensor_value_info(name, number, axes)
