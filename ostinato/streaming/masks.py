"""Masks of attention: values that follow from the length of the sequence alone.

Exporters compute them in many ways, from Trilu, Range and comparisons, or slice a large constant.
So they are not recognised by their nodes: they are computed for one length, and looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.helper
import onnx.reference
import onnx_ir as ir

from ostinato.model.assemble import assemble
from ostinato.model.graphs import subgraphs
from ostinato.model.values import constant_array
from ostinato.streaming.facts import Fact, Fixed, Kind, Stream, kind_of

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
                source = node.inputs[0]
                assert source is not None
                shape = self._shape(str(source.name), frames, facts)
                if shape is None:
                    return None, []
                start = node.attributes.get_int("start", 0)
                end = node.attributes.get_int("end", len(shape))
                part = np.array(shape[start:end], np.int64)
                feeds.append(onnx.numpy_helper.from_array(part, str(node.outputs[0].name)))
                continue
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
        if isinstance(fact, Stream):
            shape[fact.axis] = int(frames * fact.rate)
        return shape


def reach_of(mask: np.ndarray, limit: int) -> int | None:
    """Count the frames that a row of a causal mask sees, itself included; at most `limit`.

    mask: `[.., rows, columns]`, true or 0 where a row sees a column, false or below -10000
    elsewhere. None for anything but a band that ends at the diagonal.
    """
    if mask.ndim < 2 or mask.size > _LARGEST or mask.shape[-1] != mask.shape[-2]:
        return None
    table = mask.reshape(-1, *mask.shape[-2:])
    if not (table == table[:1]).all():
        return None
    seen = table[0] if table.dtype == bool else table[0] == 0
    if table.dtype != bool and not (table[0][~seen] <= NEVER).all():
        return None
    count = len(seen)
    reach = int(seen[-1].sum())
    back = np.arange(count)[:, None] - np.arange(count)
    if not np.array_equal(seen, (back >= 0) & (back < reach)):
        return None
    return min(reach, limit) if reach < count else limit
