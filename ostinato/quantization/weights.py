"""Rounds the weights of a model and writes them in their storage type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ostinato.errors import OptionError
from ostinato.graph.edit import add_constant
from ostinato.graph.writer import Array
from ostinato.model.names import Names
from ostinato.quantization.calibration import Seen
from ostinato.quantization.formats import Format
from ostinato.quantization.rounding import Rounded, round_rows
from ostinato.quantization.sites import Site

# Terms that share a scale where a type has so few levels that rows need several.
_BLOCK_OF_INT4 = 32
WHOLE = -1


@dataclass(frozen=True)
class Stored:
    """Weights as they are stored.

    values: what they stand for, in the type of the model. parts: one for each group of rows; none
    of a float type.
    """

    site: Site
    form: Format
    values: Array
    parts: tuple[Rounded, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of elements and scales."""
        wide = self.site.array.itemsize
        scales = sum(part.scale.size for part in self.parts)
        return -(-self.site.array.size * self.form.bits // 8) + scales * wide

    @property
    def block(self) -> int | None:
        """How many terms share a scale; None for all of a row."""
        if not self.parts or self.parts[0].scale.shape[1] == 1:
            return None
        return self.parts[0].block

    @property
    def whole(self) -> Array:
        """The whole numbers, in the shape of the weights."""
        return self.site.restored(np.stack([part.q for part in self.parts]))

    @property
    def scales(self) -> Array:
        """`[groups, sums, blocks]`, in the type of the model."""
        return np.stack([part.scale for part in self.parts]).astype(self.site.array.dtype)


def block_of(site: Site, form: Format, block: int | None) -> int | None:
    """How many terms of a sum share a scale: `block` where given, else what the type needs.

    None, and a `block` of `WHOLE`, are all of a sum. A convolution has one scale for each output
    channel, a table one for each row that a block does not divide. Raises `OptionError` for a block
    that does not divide the sums.
    """
    if not form.is_integer or site.is_convolution or block == WHOLE:
        return None
    if block is None:
        return _BLOCK_OF_INT4 if form.name == "int4" and site.terms > _BLOCK_OF_INT4 else None
    if site.is_table and site.terms % block:
        return None
    if site.terms % block:
        raise OptionError(
            f"block={block}: node {site.name!r} sums {site.terms} products, which is no multiple "
            "of it; choose a block that divides it, leave it out, or `exclude` the node"
        )
    return block if block < site.terms else None


def fits(site: Site, form: Format) -> bool:
    """Whether a type has a number near each of the weights."""
    return form.is_integer or bool(np.isfinite(_rounded(site, form)).all())


def _rounded(site: Site, form: Format) -> Array:
    with np.errstate(over="ignore"):
        return site.array.astype(form.dtype.numpy()).astype(site.array.dtype)


def store(site: Site, form: Format, block: int | None, seen: Seen | None) -> Stored:
    """Round the weights of a site; `seen` are the statistics of what they are multiplied with."""
    array = site.array
    if not form.is_integer:
        if not fits(site, form):
            raise OptionError(
                f"weights={form.name!r}: weights {site.weight.name!r} of node {site.name!r} reach "
                f"{np.abs(array).max():.3g}, beyond that type; `exclude` the node or choose bf16"
            )
        values = _rounded(site, form)
        return Stored(site, form, values)
    size = block_of(site, form, block)
    parts = []
    for group, rows in enumerate(site.rows(array)):
        moments = None if seen is None else seen.moments_of(group)
        parts.append(round_rows(rows.astype(np.float32), form, size, moments, array.dtype))
    values = site.restored(np.stack([part.values for part in parts])).astype(array.dtype)
    return Stored(site, form, values, tuple(parts))


def write_weights(model: ir.Model, names: Names, stored: Sequence[Stored]) -> None:
    """Let each site read its weights through a DequantizeLinear, or a Cast of a float type.

    The nodes stand in the main graph, before all others. Weights that nothing else reads leave
    the model.
    """
    written: list[tuple[Stored, ir.Value]] = []
    for item in stored:
        value = next((v for other, v in written if _is_same(item, other)), None)
        if value is None:
            value = _dequantized(model, names, item)
            written.append((item, value))
        item.site.read(value)


def drop_unread(model: ir.Model, values: Sequence[ir.Value]) -> None:
    """Remove the initializers among `values` that nothing reads any more."""
    for value in values:
        if not value.uses() and not value.is_graph_output():
            model.graph.initializers.pop(str(value.name), None)


def _is_same(item: Stored, other: Stored) -> bool:
    """Whether two sites read the same weights in the same form, such as tied ones."""
    return (
        item.site.array is other.site.array
        and item.form is other.form
        and np.array_equal(item.values, other.values)
        and item.site.axis == other.site.axis
    )


def _dequantized(model: ir.Model, names: Names, item: Stored) -> ir.Value:
    weight = item.site.weight
    prefix = str(weight.name)
    result = ir.Value(
        name=names.fresh(f"{prefix}_dequantized"),
        type=ir.TensorType(weight.dtype or ir.DataType.FLOAT),
        shape=ir.Shape(item.site.array.shape),
    )
    dtype = item.form.dtype
    if not item.form.is_integer:
        narrow = ir.tensor(item.values.astype(dtype.numpy()))
        data = add_constant(model, names.fresh(f"{prefix}_{item.form.name}"), narrow)
        attributes = [ir.AttrInt64("to", int(weight.dtype or ir.DataType.FLOAT))]
        node = ir.Node("", "Cast", [data], attributes, outputs=[result], name=result.name)
    else:
        whole = ir.tensor(item.whole.astype(dtype.numpy()))
        data = add_constant(model, names.fresh(f"{prefix}_{item.form.name}"), whole)
        scale, layout = granularity(item)
        attributes = [ir.AttrInt64(name, number) for name, number in layout.items()]
        scales = add_constant(model, names.fresh(f"{prefix}_scale"), scale)
        operands = [data, scales]
        node = ir.Node(
            "", "DequantizeLinear", operands, attributes, outputs=[result], name=result.name
        )
    first = next(iter(model.graph), None)
    if first is None:
        model.graph.append(node)
    else:
        model.graph.insert_before(first, node)
    return result


def granularity(item: Stored) -> tuple[Array, dict[str, int]]:
    """Scales as DequantizeLinear takes them: along one axis where that says it all, or blocked."""
    site, channels = item.site, item.site.channel_axis
    if item.block is None and channels is not None:
        return item.scales.reshape(-1), {"axis": channels}
    return site.restored(item.scales), {"axis": site.axis, "block_size": item.block or site.terms}
