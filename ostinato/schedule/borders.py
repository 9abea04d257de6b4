"""Split a kernel that reads a padded value into its inside, and kernels that fill the border.

y[i] = x[i - 1] if 1 <= i < n + 1 else 0        y[0] = 0, y[n + 1] = 0
                                          =>    y[i + 1] = x[i]
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Axis, Const, Expr, Extent, Index, Op
from ostinato.program.kernel import Kernel, map_loads
from ostinato.schedule.index_maps import Affine, Map, replace_axes, replaced_axes, substitute_stores
from ostinato.sizes.bounds import is_never_negative
from ostinato.sizes.dims import Size

# For each axis the first index inside, and the first one behind the inside.
Box = dict[Axis, tuple[Size, Size]]


def padded_parts(kernel: Kernel) -> tuple[Kernel, tuple[Kernel, ...]] | None:
    """Split a kernel into that of the inside and those of the border; None where nothing is padded.

    Along the border, the constant takes the place of the padded value in all that is computed of
    it.
    """
    if kernel.reductions or kernel.ordered or kernel.guard is not None or len(kernel.stores) != 1:
        return None
    (store,) = kernel.stores
    masked = [load for load in kernel.loads() if load.mask is not None]
    if store.partial or not masked or any(load.index for load in kernel.loads()):
        return None
    box: Box = {axis: (0, axis.extent) for axis in kernel.axes}
    mask = masked[0].mask
    if mask is None or not narrow(box, mask):
        return None
    if any(load.mask is not mask or not isinstance(load.other, Const) for load in masked):
        return None
    for axis, (low, high) in box.items():
        if not all(map(is_never_negative, (low, high - low, axis.extent - high))):
            return None
    plain = map_loads(kernel, lambda x: x.mask and replace(x, mask=None, other=None))
    around = map_loads(kernel, lambda x: x.mask and x.other)
    inner = {axis: _part(axis, low, high - low) for axis, (low, high) in box.items()}
    return replace_axes(plain, inner), tuple(_border(around, box))


def narrow(box: Box, mask: Expr) -> bool:
    """Narrow the box to where the mask is true; False if that is no box."""
    if isinstance(mask, Op) and mask.name == "and":
        return all(narrow(box, part) for part in mask.args)
    if not isinstance(mask, Op) or mask.name not in ("ge", "lt"):
        return False
    index, bound = mask.args
    if not isinstance(index, Index) or not isinstance(bound, Extent | Const):
        return False
    size: Size = bound.size if isinstance(bound, Extent) else int(bound.value)
    low, high = box[index.axis]
    box[index.axis] = (size, high) if mask.name == "ge" else (low, size)
    return True


def _border(kernel: Kernel, box: Box) -> list[Kernel]:
    """Kernels for both sides of each axis; along the axes before, they cover the inside only."""
    (store,) = kernel.stores
    found: list[Kernel] = []
    images: dict[Axis, Affine] = {}
    for number, (axis, (low, high)) in enumerate(box.items()):
        thickness = low, axis.extent - high
        before, after = _part(axis, 0, low), _part(axis, high, thickness[1])
        sides = [s for s, extent in zip((before, after), thickness, strict=True) if extent != 0]
        # Sides of the same thickness are two stores of one kernel.
        together = [sides] if before.terms == after.terms else [[side] for side in sides]
        for part, group in enumerate(together if sides else ()):
            maps: list[Map] = [{**images, axis: side} for side in group]
            stores = tuple(s for m in maps for s in substitute_stores([store], m))
            name = f"{kernel.name}.border{number}.{part}"
            axes = replaced_axes(kernel.axes, maps[0])
            found.append(replace(kernel, name=name, axes=axes, stores=stores))
        images[axis] = _part(axis, low, high - low)
    return found


def _part(axis: Axis, start: Size, extent: Size) -> Affine:
    """A part of an axis; a single index is a constant, as accesses have no axes of extent 1."""
    return Affine(start, () if extent == 1 else ((Axis(axis.name, extent), 1),))
