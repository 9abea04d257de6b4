"""Random graphs that move elements, each value with several readers: the bits of NumPy.

    python -m tools.fuzz moves --seconds 60

What fuses, moves and elides copies decides by index maps: small graphs of whole numbers, of which
thousands pass in a minute, reach more of these than large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession, OstinatoError
from tools.fuzz.choosing import Chooser
from tools.fuzz.graphs import AGREE, Outcome
from tools.fuzz.modes import Array
from tools.fuzz.seeds import try_seeds

MOST_ELEMENTS, MOST_WINDOWS = 400, 6
# Whole numbers below this are exact in float32, sums of a few of them too.
LARGEST = 2.0**20


class Graph(Chooser):
    """A graph under construction. values: what each name is, newest last."""

    def __init__(self, random: np.random.Generator) -> None:
        super().__init__(random)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values: dict[str, Array] = {}

    def pick(self) -> tuple[str, Array]:
        """A value with an axis and elements, mostly a new one."""
        fits = [(k, v) for k, v in self.values.items() if v.ndim and 0 < v.size <= MOST_ELEMENTS]
        return self.choose(fits[-6:] if self.chance(0.7) else fits)

    def integers(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def constant(self, values: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, inputs: Sequence[str], value: Array, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        self.values[name] = np.ascontiguousarray(value, np.float32)
        return name

    def part(self, name: str, axis: int, places: range) -> str:
        """Rows at evenly spaced places."""
        end = places[-1] + places.step
        bounds = (places.start, end if end >= 0 else -(2**40), axis, places.step)
        value = self.values[name].take(places, axis)
        return self.add("Slice", [name, *map(self.integers, bounds)], value)

    def rows(self) -> None:
        """Some rows, forwards or backwards."""
        name, value = self.pick()
        axis = int(self.random.integers(value.ndim))
        start, end = sorted(self.random.integers(0, value.shape[axis], 2).tolist())
        places = range(start, end + 1, self.choose((1, 1, 2)))
        self.part(name, axis, places if self.chance(0.8) else places[::-1])

    def windows(self) -> None:
        """Rows from several places on, one window behind the other or beside it."""
        name, value = self.pick()
        axis = int(self.random.integers(value.ndim))
        length = int(self.random.integers(1, value.shape[axis] + 1))
        starts = range(0, value.shape[axis] - length + 1, self.choose((1, 1, 2)))[:MOST_WINDOWS]
        if self.chance(0.5):
            # As many values as there are, some of them several times.
            starts = starts[: value.shape[axis] // length]
        parts = [self.part(name, axis, range(start, start + length)) for start in starts]
        if self.chance(0.7):
            axis = self.choose((axis, axis + 1))
            parts = [self.unsqueezed(part, axis) for part in parts]
        joined = np.concatenate([self.values[part] for part in parts], axis)
        self.add("Concat", parts, joined, axis=axis)

    def unsqueezed(self, name: str, axis: int) -> str:
        value = np.expand_dims(self.values[name], axis)
        return self.add("Unsqueeze", [name, self.integers(axis)], value)

    def turned(self) -> None:
        name, value = self.pick()
        order = self.random.permutation(value.ndim).tolist()
        self.add("Transpose", [name], value.transpose(order), perm=order)

    def reshaped(self) -> None:
        name, value = self.pick()
        shape, left = [], value.size
        while left > 1 and len(shape) < 3:
            shape.append(self.choose([n for n in range(1, left + 1) if left % n == 0]))
            left //= shape[-1]
        shape = self.random.permutation([*shape, left]).tolist()
        self.add("Reshape", [name, self.integers(*shape)], value.reshape(shape))

    def padded(self) -> None:
        name, value = self.pick()
        pads = np.zeros((2, value.ndim), np.int64)
        pads[:, self.random.integers(value.ndim)] = self.random.integers(0, 3, 2)
        mode = self.choose(("constant", "edge"))
        inputs = [name, self.integers(*pads.flatten().tolist())]
        self.add("Pad", inputs, np.pad(value, [*map(tuple, pads.T)], mode=mode), mode=mode)

    def repeated(self) -> None:
        name, value = self.pick()
        times = [self.choose((1, 1, 2)) for _ in value.shape]
        self.add("Tile", [name, self.integers(*times)], np.tile(value, times))

    def chosen(self) -> None:
        name, value = self.pick()
        axis = int(self.random.integers(value.ndim))
        rows = self.random.integers(0, value.shape[axis], value.shape[axis]).tolist()
        self.add("Gather", [name, self.integers(*rows)], value.take(rows, axis), axis=axis)

    def joined(self) -> None:
        """Two values along an axis, or nothing where they do not fit."""
        (name, value), (other, beside) = self.pick(), self.pick()
        axis = int(self.random.integers(value.ndim))
        rest = [np.delete(v.shape, axis).tolist() for v in (value, beside) if axis < v.ndim]
        if value.ndim == beside.ndim and rest[0] == rest[1]:
            self.add("Concat", [name, other], np.concatenate([value, beside], axis), axis=axis)

    def function(self) -> None:
        """Of each element."""
        name, value = self.pick()
        op, made = self.choose((("Neg", -value), ("Abs", abs(value)), ("Relu", value.clip(0))))
        self.add(op, [name], made)

    def both(self) -> None:
        """Of two values that broadcast, or nothing where they do not."""
        (name, value), (other, beside) = self.pick(), self.pick()
        op, combine = self.choose((("Add", np.add), ("Sub", np.subtract), ("Max", np.maximum)))
        if all(a == b or 1 in (a, b) for a, b in _pairs(value, beside)):
            self.add(op, [name, other], combine(value, beside))

    def summed(self) -> None:
        name, value = self.pick()
        axis = int(self.random.integers(value.ndim))
        total = value.sum(axis, keepdims=True)
        self.add("ReduceSum", [name, self.integers(axis)], total, keepdims=1)

    def multiplied(self) -> None:
        """By a small matrix of whole numbers."""
        name, value = self.pick()
        if value.ndim > 1:
            shape = value.shape[-1], int(self.random.integers(1, 6))
            matrix = self.random.integers(-2, 3, shape).astype(np.float32)
            self.add("MatMul", [name, self.constant(matrix)], value @ matrix)


def _pairs(value: Array, beside: Array) -> Iterator[tuple[int, int]]:
    """Sizes of axes that meet where two values broadcast."""
    return zip(value.shape[::-1], beside.shape[::-1], strict=False)


def random_graph(seed: int) -> tuple[onnx.ModelProto, dict[str, Array], dict[str, Array]]:
    """A graph, its inputs and its outputs."""
    graph = Graph(random := np.random.default_rng(seed))
    feeds = {}
    for number in range(int(random.integers(1, 3))):
        shape = random.integers(1, 7, random.integers(1, 4))
        feeds[f"x{number}"] = random.integers(-9, 10, shape).astype(np.float32)
    graph.values |= feeds
    kinds: list[Callable[[], None]] = [graph.windows, graph.rows, graph.function, graph.both] * 2
    kinds += [graph.turned, graph.reshaped, graph.padded, graph.repeated, graph.chosen]
    kinds += [graph.joined, graph.summed, graph.multiplied]
    for _ in range(int(random.integers(4, 15))):
        graph.choose(kinds)()
    if not graph.nodes:
        graph.function()
    made = [name for name in graph.values if name not in feeds]
    names = {made[-1], *(graph.choose(made) for _ in range(int(random.integers(0, 3))))}
    results = {name: graph.values[name] for name in sorted(names)}

    def described(values: dict[str, Array]) -> list[onnx.ValueInfoProto]:
        float32 = TensorProto.FLOAT
        return [helper.make_tensor_value_info(k, float32, v.shape) for k, v in values.items()]

    content = graph.nodes, f"moves{seed}", described(feeds), described(results), graph.constants
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(*content), opset_imports=opsets, ir_version=9)
    if any(abs(value).max() > LARGEST for value in graph.values.values()):
        results = {}
    return model, feeds, results


def tried(seed: int) -> Outcome:
    """Run one graph, in this process."""
    model, feeds, expected = random_graph(seed)
    if not expected:
        return Outcome("too large")
    try:
        results = InferenceSession(model, cache_dir=None).run(list(expected), feeds)
    except OstinatoError as error:
        return Outcome("exception", str(error))
    for name, got in zip(expected, results, strict=True):
        if not np.array_equal(got, expected[name]):
            return Outcome(
                "differ", f"output {name}: {got.tolist()}, not {expected[name].tolist()}"
            )
    return Outcome(AGREE)


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try graphs from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: random_graph(n)[0], seconds, seed, count, folder)
