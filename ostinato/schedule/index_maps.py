"""Index maps, which express an axis as a sum of others, and their substitution in kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ostinato.program.expr import (
    Access,
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    Op,
    Reduced,
    cast,
    constant,
    op,
    reached,
    rewriter,
    sized,
)
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.records import dataclass
from ostinato.sizes.dims import Dim, Size, exact_quotient, is_nonnegative


@dataclass(frozen=True)
class Affine:
    """`offset + sum(axis * factor)`."""

    offset: Size
    terms: tuple[tuple[Axis, Size], ...]


Map = Mapping[Axis, Affine]

# Positions along axes of known extents are compared in this type: a register holds as many as of
# float32.
_NARROW = "int32"
# The operations by which positions are computed.
LINEAR = frozenset(("add", "sub", "mul"))


def substitute_access(access: Access, axes: Map) -> Access:
    """The same address in terms of the replaced axes."""
    offset = access.offset
    strides: dict[Axis, Size] = {}
    for axis, stride in access.terms:
        image = axes.get(axis)
        if image is None:
            strides[axis] = strides.get(axis, 0) + stride
            continue
        offset = offset + image.offset * stride
        for inner, factor in image.terms:
            strides[inner] = strides.get(inner, 0) + factor * stride
    return Access(access.buffer, offset, tuple((a, s) for a, s in strides.items() if s != 0))


def as_expr(image: Affine) -> Expr:
    """The value of an index map, as int64."""
    total: Expr | None = None
    for axis, factor in image.terms:
        term: Expr = Index(axis)
        if factor != 1:
            term = term * sized(factor)
        total = term if total is None else total + term
    if total is None:
        return sized(image.offset)
    return total if image.offset == 0 else total + sized(image.offset)


def narrowed(position: Expr) -> Expr:
    """A position as a narrower integer: low bits of sums and products depend on low bits alone."""
    if isinstance(position, Op) and position.name in LINEAR:
        return op(position.name, *map(narrowed, position.args))
    if isinstance(position, Extent) and isinstance(position.size, int):
        return constant(position.size, _NARROW)
    if isinstance(position, Const):
        return constant(position.value, _NARROW)
    return cast(position, _NARROW)


def substitution(axes: Map) -> Callable[[Expr], Expr]:
    """Return a function that puts the images of axes into expressions."""

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            access = substitute_access(node.access, axes)
            return Load(access, node.dtype, node.mask, node.other, node.index)
        if isinstance(node, Index) and node.axis in axes:
            return as_expr(axes[node.axis])
        if isinstance(node, Cast) and isinstance(node.value, Op) and node.dtype == _NARROW:
            # The operands of a narrow position are as narrow.
            return narrowed(node.value) if _is_position(node.value) else None
        return None

    return rewriter(leaf)


def _is_position(value: Expr) -> bool:
    """Whether an int64 value is made of indices and sizes alone."""
    if isinstance(value, Op) and value.name in LINEAR:
        return all(map(_is_position, value.args))
    return isinstance(value, Index | Extent | Const) and value.dtype == "int64"


def substitute(expr: Expr, axes: Map) -> Expr:
    """The expression in terms of the replaced axes."""
    return substitution(axes)(expr)


def substitute_reduce(reduce: Reduce, axes: Map) -> Reduce:
    """The reduction in terms of the replaced axes (its own axes excepted)."""
    return reduce.map(substitution(axes))


def substitute_stores(stores: Iterable[Store], axes: Map) -> tuple[Store, ...]:
    """The stores in terms of the replaced axes."""
    return _substituted_stores(stores, axes, substitution(axes))


def _substituted_stores(
    stores: Iterable[Store], axes: Map, change: Callable[[Expr], Expr]
) -> tuple[Store, ...]:
    moved = [(store.map(change), substitute_access(store.access, axes)) for store in stores]
    return tuple([Store(access, s.value, s.mask, s.index) for s, access in moved])


def substitute_kernel(kernel: Kernel, axes: Map) -> Kernel:
    """The kernel with its reductions and stores in terms of the replaced axes."""
    change = substitution(axes)
    reductions = tuple([reduce.map(change) for reduce in kernel.reductions])
    stores = _substituted_stores(kernel.stores, axes, change)
    return replace(kernel, reductions=reductions, stores=stores)


def replaced_axes(axes: Iterable[Axis], images: Map) -> tuple[Axis, ...]:
    """The axes, with those of its image in place of each axis that has one."""
    found: list[Axis] = []
    for axis in axes:
        found += [a for a, _ in images[axis].terms] if axis in images else [axis]
    return tuple(found)


def replace_axes(kernel: Kernel, images: Map) -> Kernel:
    """The kernel with the axes of their images in place of some of its own."""
    return replace(substitute_kernel(kernel, images), axes=replaced_axes(kernel.axes, images))


def turned_round(kernel: Kernel, axis: Axis) -> Kernel:
    """Reverse the kernel along one of its axes."""
    image: Map = {axis: Affine(axis.extent - 1, ((axis, -1),))}
    return substitute_kernel(kernel, image)


def shifter(by: int) -> Callable[[Expr], Expr]:
    """Return a function that adds `by` to the numbers of the reductions in expressions."""

    def leaf(node: Expr) -> Expr | None:
        return Reduced(node.position + by, node.dtype) if isinstance(node, Reduced) else None

    return rewriter(leaf) if by else lambda expr: expr


def split_axis(kernel: Kernel, axis: Axis, block: Axis, lane: Axis, guard: Expr | None) -> Kernel:
    """Split an axis of the kernel: `axis` = `block * lane.extent + lane`."""
    image: Map = {axis: Affine(0, ((block, lane.extent), (lane, 1)))}
    return replace(replace_axes(kernel, image), guard=guard)


def split_sum(kernel: Kernel, axis: Axis, length: int) -> Kernel:
    """Cut an axis of the kernel's sums into pieces of `length`, which divides its extent."""
    assert isinstance(axis.extent, int) and axis.extent % length == 0
    outer, inner = Axis(f"{axis.name}o", axis.extent // length), Axis(f"{axis.name}i", length)
    image = {axis: Affine(0, ((outer, length), (inner, 1)))}

    def reduction(reduce: Reduce) -> Reduce:
        if axis not in reduce.axes:
            return reduce
        axes = tuple(a for old in reduce.axes for a in ((outer, inner) if old == axis else (old,)))
        return replace(substitute_reduce(reduce, image), axes=axes)

    return replace(kernel, reductions=tuple(reduction(r) for r in kernel.reductions))


def solve(written: Access, axes: tuple[Axis, ...], read: Access) -> dict[Axis, Affine] | None:
    """Solve for the point of a kernel's `axes` at which `written` is the address `read`.

    None where strides cannot tell it. `written` must be a dense (or at least injective) store.
    """
    own = [(axis, stride) for axis, stride in written.terms if axis in axes]
    outer = {axis: stride for axis, stride in written.terms if axis not in axes}
    if {a for a, _ in own} != set(axes):
        return None
    left: list[tuple[Axis, Size]] = []
    for axis, stride in read.terms:
        rest = stride - outer.pop(axis, 0)
        if rest != 0:
            left.append((axis, rest))
    if outer:
        return None
    distance = read.offset - written.offset
    images: dict[Axis, Affine] = {}
    for axis, stride in sorted(own, key=lambda item: _stride_order(item[1]), reverse=True):
        quotients = [(a, s, exact_quotient(s, stride)) for a, s in left]
        taken = tuple((a, q) for a, _, q in quotients if q is not None)
        left = [(a, s) for a, s, q in quotients if q is None]
        step, distance = _split_distance(distance, stride)
        image = Affine(step, taken)
        if not _in_range(image, axis.extent):
            return None
        images[axis] = image
    return images if not left and distance == 0 else None


def place_of(written: Access, offset: Size) -> dict[Axis, Size]:
    """The point of a dense store whose address is `offset`: a number for each of its axes."""
    distance, place = offset - written.offset, {}
    for axis, stride in sorted(written.terms, key=lambda t: _stride_order(t[1]), reverse=True):
        place[axis], distance = _split_distance(distance, stride)
    assert distance == 0
    return place


def is_one_to_one(images: Map) -> bool:
    """Whether the images meet each point of their axes exactly once, as the axes in them run.

    No axis is in two of them, and those of one are digits: the factor of each is the number of
    values of all that are below it.
    """
    inner = [axis for image in images.values() for axis, _ in image.terms]
    if len(inner) != len(set(inner)):
        return False
    for axis, image in images.items():
        count: Size = 1
        sizes = [(f if is_nonnegative(f) else -f, a.extent) for a, f in image.terms]
        for factor, extent in sorted(sizes, key=lambda size: _stride_order(size[0])):
            if factor != count and extent != 1:
                return False
            count = count * extent
        if count != axis.extent:
            return False
    return True


def _stride_order(stride: Size) -> tuple[int, int]:
    """Larger strides first; symbolic ones by degree, which is how nested dense axes are ordered."""
    if isinstance(stride, int):
        return 0, stride
    return max(len(m) for m, _ in stride.terms), max(c for _, c in stride.terms)


def _split_distance(distance: Size, stride: Size) -> tuple[Size, Size]:
    """Divide the distance by the stride; quotient and remainder."""
    exact = exact_quotient(distance, stride)
    if exact is not None:
        return exact, 0
    if isinstance(distance, int) and isinstance(stride, int):
        return distance // stride, distance % stride
    if isinstance(distance, Dim) and isinstance(stride, Dim):
        constant_part = next((c for m, c in distance.terms if not m), 0)
        exact = exact_quotient(distance - constant_part, stride)
        if exact is not None:
            return exact, constant_part
    return 0, distance


def _in_range(image: Affine, extent: Size) -> bool:
    ends = reached(image.offset, image.terms)
    return ends is not None and is_nonnegative(ends[0]) and is_nonnegative(extent - 1 - ends[1])
