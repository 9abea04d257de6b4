"""Rows that a program stores one after another are put together at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.writer import Writer
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, static_dims

# Slice and Unsqueeze take their axes as inputs since this version.
_OPSET = 13
# Fewer stores cost little.
_LEAST_STORES = 8
_STORES = frozenset(("ScatterElements", "ScatterND"))


def stores_to_concat(model: ir.Model) -> int:
    """Replace chains of ScatterElements or ScatterND by Concat; returns how many chains.

    Matches at least 8 nodes, each of which stores one whole row at a constant place of an axis into
    the result of the one before, which nobody else reads: `out[:, t] = ...` written out. Makes a
    Concat, along that axis, of the updates that were stored last into each row, and of Slices of
    what the chain began with for rows without one. Valid because that is what the last node makes.
    """
    if opset_of(model) < _OPSET:
        return 0
    replaced = 0
    for graph in graphs(model):
        for node in list(graph):
            chain = _chain(node)
            if len(chain) >= _LEAST_STORES:
                _join(model, chain)
                replaced += 1
    return replaced


# A store, and the places that it fills by the axis along which they are one row.
_Store = tuple[ir.Node, dict[int, int]]


def _chain(last: ir.Node) -> list[_Store]:
    """The stores that make the result of `last`, which no store reads on, in order."""
    if last.op_type not in _STORES or _next(last.outputs[0]) is not None:
        return []
    chain: list[_Store] = []
    node: ir.Node | None = last
    while node is not None:
        rows = _rows(node)
        if chain:
            rows = {axis: row for axis, row in rows.items() if axis in chain[-1][1]}
        if not rows:
            break
        chain.append((node, rows))
        source = node.inputs[0]
        maker = None if source is None else source.producer()
        node = maker if maker is not None and _next(maker.outputs[0]) is node else None
    return chain[::-1]


def _next(value: ir.Value) -> ir.Node | None:
    """The store that alone reads a value, to store more into it."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    (use,) = uses
    is_store = use.node.op_type in _STORES and not use.node.domain and use.idx == 0
    return use.node if is_store and use.node.graph is value.graph else None


def _rows(node: ir.Node) -> dict[int, int]:
    """The axes along which a store fills exactly one row, and the row."""
    if node.op_type not in _STORES or node.domain:
        return {}
    dims, indices = _whole_dims(node.inputs[0]), constant_array(node.inputs[1])
    reduction = node.attributes.get_string("reduction", "none")
    if not dims or indices is None or not indices.size or reduction != "none":
        return {}
    if node.op_type == "ScatterND":
        return _rows_of_tuples(dims, indices)
    axis = node.attributes.get_int("axis", 0) % len(dims)
    row = int(indices.reshape(-1)[0])
    is_row = indices.shape == (*dims[:axis], 1, *dims[axis + 1 :]) and np.all(indices == row)
    return {axis: row % dims[axis]} if is_row and -dims[axis] <= row < dims[axis] else {}


def _whole_dims(value: ir.Value | None) -> tuple[int, ...]:
    """The sizes of a value, none where one is only known when the model runs."""
    dims = static_dims(value) or ()
    known = tuple(size for size in dims if size is not None)
    return known if len(known) == len(dims) else ()


def _rows_of_tuples(dims: tuple[int, ...], indices: np.ndarray) -> dict[int, int]:
    """The same for ScatterND, whose `indices[..., k]` are places along axis `k`."""
    rank = indices.shape[-1]
    sizes = np.array(dims[:rank])
    if np.any(indices < -sizes) or np.any(indices >= sizes):
        return {}
    places = np.moveaxis(indices % sizes, -1, 0)
    found = {}
    for axis in range(rank):
        others = [k for k in range(rank) if k != axis]
        bare = tuple(dims[k] for k in others)
        whole = (*bare[:axis], 1, *bare[axis:])
        row = int(places[axis].reshape(-1)[0])
        if places.shape[1:] not in (bare, whole) or np.any(places[axis] != row):
            continue
        grid = np.indices(bare)
        if all(np.array_equal(places[k].reshape(bare), grid[i]) for i, k in enumerate(others)):
            found[axis] = row
    return found


def _join(model: ir.Model, chain: list[_Store]) -> None:
    base, last = chain[0][0].inputs[0], chain[-1][0]
    dims = _whole_dims(base)
    assert base is not None
    # The first store, which was found last, has the axes that all of them have.
    axis, old = min(chain[0][1]), last.outputs[0]
    names, opset = Names(model), opset_of(model)
    dtype = base.dtype or ir.DataType.FLOAT
    writer = Writer(model.graph, names, opset, dtype, f"{last.name or old.name}/joined")
    stored: dict[int, ir.Node] = {found[axis]: node for node, found in chain}
    parts: list[ir.Value] = []
    begin = 0
    for row in sorted(stored):
        if begin < row:
            parts.append(writer.slice(base, axis, begin, row, "before"))
        parts.append(_update(writer, stored[row], axis))
        begin = row + 1
    if begin < dims[axis]:
        parts.append(writer.slice(base, axis, begin, dims[axis], "after"))
    result = writer.op("Concat", parts, "rows", {"axis": axis}, dtype)
    result.shape = ir.Shape(dims)
    last.prepend(writer.nodes)
    replace_value(old, result)
    for node, _ in reversed(chain):
        discard(node)


def _update(writer: Writer, store: ir.Node, axis: int) -> ir.Value:
    """The rows that a store writes, with the axis of rows."""
    update, indices = store.inputs[2], constant_array(store.inputs[1])
    assert update is not None and indices is not None
    if store.op_type == "ScatterND" and indices.ndim == indices.shape[-1]:
        return writer.op("Unsqueeze", [update, np.array([axis])], "row", dtype=update.dtype)
    return update
