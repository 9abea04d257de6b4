"""Masks of attention: values that follow from the length of the sequence alone.

Exporters compute them in many ways, from Trilu, Range and comparisons, or slice a large constant.
So they are not recognised by their nodes: they are computed for one length, and looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.helper
import onnx.reference
import onnx_ir as ir

from ostinato.model.assemble import assemble
from ostinato.model.graphs import subgraphs
from ostinato.model.values import constant_array
from ostinato.streaming.facts import Fact, Fixed, Kind, Stream, Table, kind_of

# Added to a score, this leaves nothing of it behind exp in float16 and wider types.
NEVER = -1e4
# A mask of more elements is not computed to look at it.
_LARGEST = 1 << 26

Sizes = Mapping[str, "tuple[int | str | None, ...] | None"]


class Lengths:
    """Computes values of the given model that depend on its inputs by their shapes alone.

    model: as it was before the conversion. sizes: of its values by name.
    """

    def __init__(self, model: ir.Model, sizes: Sizes) -> None:
        self._model, self._sizes = model, dict(sizes)
        self._makers = {str(v.name): node for node in model.graph for v in node.outputs}
        self._constants = model.graph.initializers
        self._known: dict[str, bool] = {}

    def decides(self, name: str) -> bool:
        """Whether the value `name` depends on shapes and constants alone."""
        pending = [name]
        while pending:
            current = pending[-1]
            if current in self._known:
                pending.pop()
                continue
            node = self._makers.get(current)
            if node is None or any(subgraphs(node)) or node.domain:
                self._known[current] = current in self._constants
                continue
            sources = [] if node.op_type == "Shape" else [str(v.name) for v in node.inputs if v]
            missing = [source for source in sources if source not in self._known]
            if missing:
                pending += missing
            else:
                self._known[current] = all(self._known[source] for source in sources)
        return self._known[name]

    def maker(self, name: str) -> ir.Node | None:
        """The node of the given model that makes the value `name`."""
        return self._makers.get(name)

    def constant(self, name: str) -> np.ndarray | None:
        """The elements of a constant of the given model."""
        return constant_array(self._constants.get(name))

    def compute(self, name: str, frames: int, facts: Mapping[str, Fact]) -> np.ndarray | None:
        """The value `name` of a sequence of `frames` frames; None where that cannot be told."""
        nodes, feeds = self._needed(name, frames, facts)
        if nodes is None:
            return None
        output = onnx.helper.make_value_info(name, onnx.TypeProto())
        graph = onnx.helper.make_graph(nodes, "mask", [], [output], feeds)
        model = assemble(graph, self._model.opset_imports.items())
        try:
            (value,) = onnx.reference.ReferenceEvaluator(model).run(None, {})
        except Exception:  # whatever a reference kernel raises: the mask is not understood
            return None
        return np.asarray(value)

    def _needed(
        self, name: str, frames: int, facts: Mapping[str, Fact]
    ) -> tuple[list[onnx.NodeProto] | None, list[onnx.TensorProto]]:
        """The nodes that compute `name`, in order, and the constants and shapes they start from."""
        wanted, feeds = {name}, list[onnx.TensorProto]()
        nodes: list[onnx.NodeProto] = []
        for node in reversed(self._model.graph):
            if not any(str(output.name) in wanted for output in node.outputs):
                continue
            if node.op_type == "Shape":
                source = str(node.inputs[0].name)  # type: ignore[union-attr]
                shape = self._shape(source, frames, facts)
                if shape is not None:
                    start = node.attributes.get_int("start", 0)
                    end = node.attributes.get_int("end", len(shape))
                    part = np.array(shape[start:end], np.int64)
                    feeds.append(onnx.numpy_helper.from_array(part, str(node.outputs[0].name)))
                    continue
                if not self.decides(source):
                    return None, []
            wanted |= {str(value.name) for value in node.inputs if value is not None}
            nodes.insert(0, ir.serde.serialize_node(node))
        for constant in wanted & set(self._constants):
            array = constant_array(self._constants[constant])
            assert array is not None
            feeds.append(onnx.numpy_helper.from_array(array, constant))
        return nodes, feeds

    def _shape(self, name: str, frames: int, facts: Mapping[str, Fact]) -> list[int] | None:
        dims, fact = self._sizes.get(name), facts.get(name)
        if dims is None or kind_of(fact or Fixed()) is Kind.LENGTH:
            return None
        # A mask is the same for all rows of a batch, so any number of them will do.
        shape = [size if isinstance(size, int) else 2 for size in dims]
        if isinstance(fact, (Stream, Table)):
            if fact.extra is None:
                return None
            size = int(frames * fact.rate) + fact.extra
            axes = slice(-2, None) if isinstance(fact, Table) else slice(fact.axis, fact.axis + 1)
            shape[axes] = [size] * len(shape[axes])
        return shape


@dataclass(frozen=True)
class Band:
    """A causal mask: which columns each row sees.

    Row i sees those from `i - back[i % chunk]` to the end of its chunk of `chunk` frames; with
    chunks of one frame that is the row's own frame.
    exact: whether it sees all of these, or only some of them, its own one included.
    """

    chunk: int
    back: tuple[int, ...]
    exact: bool = True


def seen_by_rows(table: np.ndarray) -> np.ndarray | None:
    """The columns that rows see, `[heads, rows, columns]`: where it is true, or more than `NEVER`.

    None for a table that is no square, or too large to look at.
    """
    if table.ndim < 2 or not 0 < table.size <= _LARGEST or table.shape[-1] != table.shape[-2]:
        return None
    seen = table if table.dtype == bool else table > NEVER
    return seen.reshape(-1, *table.shape[-2:])


def _by_any_head(seen: np.ndarray) -> np.ndarray:
    union: np.ndarray = np.logical_or.reduce(seen, axis=0)
    return union


def frames_ahead(seen: np.ndarray) -> int:
    """How many frames ahead a row sees, at most, of those behind the first."""
    count = seen.shape[-1]
    last = count - 1 - _by_any_head(seen)[:, ::-1].argmax(1)
    return int((last - np.arange(count)).max())


def band_of(seen: np.ndarray, limit: int) -> Band | None:
    """The band of a mask that is causal, whose rows see `limit` frames at most; else None.

    seen: for at least `limit + 1` frames, and one chunk more where rows look ahead.
    """
    whole = _by_any_head(seen)
    count = len(whole)
    rows, chunk = np.arange(count), frames_ahead(seen) + 1
    if chunk >= count or not whole[rows, rows].all():
        return None
    first = whole.argmax(1)
    ends = rows - rows % chunk + chunk - 1
    back = tuple(_reach(rows[p::chunk], first[p::chunk], limit) for p in range(chunk))
    columns, reach = rows[None], np.array(back)[rows % chunk]
    inside = (columns <= ends[:, None]) & (columns >= (rows - reach)[:, None])
    if (seen & (columns >= (rows - limit + 1)[:, None]) == inside).all():
        return Band(chunk, back)
    return Band(1, (limit - 1,), exact=False) if chunk == 1 else None


def _reach(rows: np.ndarray, first: np.ndarray, limit: int) -> int:
    """How far back rows look that begin at the columns `first`; the last one tells."""
    cut = first > 0
    return min(int((rows - first)[cut][-1]), limit - 1) if cut.any() else limit - 1
