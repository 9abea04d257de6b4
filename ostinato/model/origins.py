"""Where the constants of a model that is being compiled come from: weights of its file.

Compiling moves weights, adds some of them up, and looks at very few. As long as it notes which
(`Origins`), its result holds for other weights of the same shapes as well: `stages.checkpoints`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.files import drop_pages
from ostinato.model.graphs import graphs
from ostinato.protobuf.structure import LEAST, Weight

Array = np.ndarray[Any, Any]
# Elements that are compared at once, 4 MB of float32: a model of 300 MB takes 488 MB to load so,
# 795 MB where whole weights are compared (`benchmarks.bench_memory --also`).
_AT_ONCE = 1 << 20
# Elements that are compared before all are.
_SAMPLED = 16
_FLOATS = (
    ir.DataType.FLOAT,
    ir.DataType.FLOAT16,
    ir.DataType.DOUBLE,
    ir.DataType.BFLOAT16,
)


class Made(NamedTuple):
    """An array that a node made of others while the model was compiled.

    attributes: integers, by name. moves: whether the node copies elements.
    """

    op_type: str
    attributes: Mapping[str, Any]
    moves: bool
    operands: tuple[Array | None, ...]


class Origins:
    """Arrays that are weights of a file or made of them, and the weights that decide something.

    weights: those in the file, in its order.
    """

    def __init__(self, weights: Sequence[Weight]) -> None:
        self.weights = tuple(weights)
        named = Counter(weight.name for weight in weights)
        self._names = {name for name, count in named.items() if name and count == 1}
        # The arrays under observation, and what each is: the number of a weight, or made of others.
        self.arrays: list[Array] = []
        self.sources: list[int | Made] = []
        # Where arrays lie in memory, with their positions in these lists.
        self._places: list[tuple[int, int, int]] = []
        # The weights whose elements decide something.
        self.looked_at: frozenset[int] = frozenset()
        # Arrays of equal bytes that the result does not tell apart.
        self.equal: list[tuple[Array, Array]] = []

    def attach(self, model: ir.Model) -> None:
        """Take the constants that are weights of the file under observation."""
        known: dict[_Sample, list[int]] = {}
        for number, weight in enumerate(self.weights):
            known.setdefault(_sample(weight.array()), []).append(number)
        for graph in graphs(model):
            for value in graph.initializers.values():
                if not value.is_graph_input():
                    name = value.name or ""
                    value.const_value = self._as_weight(value.const_value, name, known)
            for node in graph:
                given = node.attributes.get("value") if node.op_type == "Constant" else None
                if given is not None and given.type == ir.AttributeType.TENSOR:
                    observed = self._as_weight(given.as_tensor(), "", known)
                    if isinstance(observed, Observed):
                        node.attributes["value"] = ir.AttrTensor("value", observed)

    def _as_weight(
        self, tensor: ir.TensorProtocol | None, name: str, known: Mapping[_Sample, Sequence[int]]
    ) -> ir.TensorProtocol | None:
        """Return the tensor as a weight of the file, if it is one. name: what it is called."""
        if tensor is None or tensor.dtype not in _FLOATS or tensor.size < LEAST:
            return tensor
        try:
            array = np.asarray(tensor.numpy(), order="C")
        except Exception:  # whoever reads it says what is wrong with it
            return tensor
        alike = known.get(_sample(array), ())
        found = [n for n in alike if _are_equal(array, self.weights[n].array())]
        if len(found) != 1 or _is_uniform(array):
            # Which one of equal weights a constant is only its name can tell.
            found = [n for n in found if name == self.weights[n].name and name in self._names]
        return self._observe(array, found[0], tensor.name) if found else tensor

    def made(self, made: Made, result: Array) -> Observed:
        """The result of a node as a tensor under observation."""
        if self.locate(result) is not None:
            return Observed(result, self, None)
        return self._observe(np.asarray(result, order="C"), made, None)

    def _observe(self, array: Array, source: int | Made, name: str | None) -> Observed:
        array = array.view()
        array.flags.writeable = False
        begin = array.__array_interface__["data"][0]
        insort(self._places, (begin, begin + array.nbytes, len(self.arrays)))
        self.arrays.append(array)
        self.sources.append(source)
        return Observed(array, self, name)

    def locate(self, array: Array) -> tuple[int, int] | None:
        """The array whose memory this one shows, and the element at which it begins."""
        begin = array.__array_interface__["data"][0]
        at = bisect_right(self._places, (begin, 1 << 64, 0)) - 1
        if at < 0 or begin >= self._places[at][1]:
            return None
        first, _, position = self._places[at]
        return position, (begin - first) // array.itemsize

    def fixed(self) -> list[int]:
        """The numbers of the weights for which alone the result holds."""
        followed = {source for source in self.sources if isinstance(source, int)}
        return sorted(set(range(len(self.weights))) - followed | self.looked_at)

    def read(self, array: Array) -> None:
        """Note that the elements of an array decide something, or go where nobody follows."""
        pending = [array]
        while pending:
            found = self.locate(pending.pop())
            if found is None:
                continue
            source = self.sources[found[0]]
            if isinstance(source, int):
                self.looked_at |= {source}
            else:
                pending.extend(operand for operand in source.operands if operand is not None)


# The type of a weight, its elements, and the bytes of a few of them.
_Sample: TypeAlias = tuple[np.dtype[Any], int, bytes]


def _sample(array: Array) -> _Sample:
    """Return what tells most weights apart."""
    flat = array.reshape(-1)
    return array.dtype, array.size, flat[:: array.size // _SAMPLED + 1].tobytes()


def _are_equal(first: Array, second: Array) -> bool:
    """Whether arrays have the same bits; of mapped files little is in memory at once."""
    bits = f"u{first.itemsize}"
    one, other = first.reshape(-1).view(bits), second.reshape(-1).view(bits)
    for start in range(0, one.size, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        if not np.array_equal(one[some], other[some]):
            return False
        if one.size > _AT_ONCE:
            drop_pages()
    return True


def _is_uniform(array: Array) -> bool:
    """Whether all elements are equal: reading a model may make such a constant as well."""
    first = array.flat[0]
    return bool(array.flat[-1] == first and (array == first).all())


class Observed(ir.Tensor[Array]):
    """A tensor that notes who looks at its elements; `unread` are these for whoever does not."""

    def __init__(self, array: Array, origins: Origins, name: str | None) -> None:
        super().__init__(array, name=name)
        self.unread, self.origins = array, origins

    def numpy(self) -> Array:
        """The elements, which the caller may look at."""
        self.origins.read(self.unread)
        return self.unread

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.numpy(), dtype)

    @property
    def raw(self) -> Array:
        """As `numpy`."""
        return self.numpy()
