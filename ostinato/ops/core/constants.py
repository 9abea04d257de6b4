"""Values that compiling computes: numbers and sizes, with memory once a kernel reads them."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from ostinato import limits
from ostinato.errors import ShapeError
from ostinato.model.origins import Made, Origins
from ostinato.ops.core.draft import Draft
from ostinato.ops.core.emitter import Emitter
from ostinato.ops.core.tensor import Tensor, dense, owner, progression_of
from ostinato.program.expr import Access, Extent, cast
from ostinato.program.kernel import Store
from ostinato.program.laid import Contents, view_of
from ostinato.program.transformed import Transformed
from ostinato.records import dataclass
from ostinato.reference.direct import Step
from ostinato.sizes.dims import Dim, product


def _place(array: np.ndarray) -> tuple[object, ...]:
    """A key that is equal for arrays that are the same elements of memory."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype


@dataclass
class Room:
    """The memory of the elements that compiling has computed.

    held: the arrays that are counted, or in the file, by their `id`. taken: bytes of those counted.
    origins: notes whose elements have been looked at.
    """

    held: dict[int, np.ndarray] = field(default_factory=dict)
    taken: int = 0
    origins: Origins | None = None


class Constants:
    """The constants of one program. room: their memory, and that of programs that share it."""

    def __init__(self, draft: Draft, emit: Emitter, room: Room) -> None:
        self._draft, self._emit, self._room = draft, emit, room
        # Arrays with memory, by what they view: they are kept so that nothing else takes its place.
        self._placed: dict[tuple[object, ...], tuple[np.ndarray, str]] = {}
        # The model's constants and their names, by the array that owns the data: a view of them
        # is traced back to the name.
        self._named: dict[int, list[tuple[np.ndarray, str]]] = {}

    def named(self, array: np.ndarray, name: str) -> None:
        """Remember that `array` is called so in the model, which holds its memory."""
        self._named.setdefault(id(owner(array)), []).append((array, name))
        self._room.held[id(owner(array))] = owner(array)

    def known(self, dtype: str, elements: np.ndarray) -> Tensor:
        """A value of numbers or sizes that compiling has computed."""
        self.require_room(elements)
        return Tensor(dtype, elements.shape, None, (), elements)

    def read(self, array: np.ndarray) -> None:
        """Note that elements of an `unread` operand decide something, or are computed with."""
        if self._room.origins is not None:
            self._room.origins.read(array)

    def computed(
        self, op_type: str, *operands: np.ndarray | None, **attributes: int
    ) -> np.ndarray | None:
        """Elements computed from known floats, of other weights as of these.

        op_type: an operator that IEEE 754 rounds correctly. None where an operand is not known, or
        where an option changes the result.
        """
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        result = Step(op_type, attributes, moves=False).run(known)
        origins = self._room.origins
        if result is None:
            for operand in known:
                self.read(operand)
        if result is None or origins is None:
            return result
        return origins.made(Made(op_type, attributes, False, tuple(known)), result).unread

    def placed(self, value: Tensor) -> Tensor:
        """The value with memory behind it."""
        if value.base is not None:
            return value
        known = value.known
        assert known is not None
        if known.dtype == object and any(isinstance(v, Dim) for v in known.flat):
            return replace(self._stored(value, known), progression=progression_of(value))
        key = (*_place(known), value.dtype)
        if key not in self._placed:
            name = self._draft.buffer(value.dtype, known.size, "constant", "c")
            self._draft.constants[name] = self._dense(known, value.dtype)
            buffers = self._draft.buffers
            named = self._named.get(id(owner(known)), ())
            sources = tuple(n for a, n in named if np.may_share_memory(a, known))
            buffers[name] = replace(buffers[name], sources=sources)
            self._placed[key] = known, name
        name = self._placed[key][1]
        return replace(dense(value.dtype, value.shape, name), known=known)

    def transformed(self, made: Transformed) -> Tensor:
        """A constant that is computed once the memory of all constants is there."""
        key = (*_place(made.weights), made.taps, made.together, made.is_transposed)
        if key not in self._placed:
            self._take(made.nbytes, made.shape)
            name = self._draft.buffer(made.dtype.name, made.size, "constant", "c")
            self._draft.constants[name] = made
            self._placed[key] = made.weights, name
        return dense(made.dtype.name, made.shape, self._placed[key][1])

    def _dense(self, known: np.ndarray, dtype: str) -> Contents:
        """The elements one behind the other; of a turned view, copied where they stay."""
        if known.dtype.name != dtype or known.flags.c_contiguous:
            array = np.ascontiguousarray(known, dtype=dtype).reshape(-1)
            self.require_room(array)
            return array
        laid = view_of(known)
        self._take(laid.nbytes, known.shape)
        return laid

    def _stored(self, value: Tensor, known: np.ndarray) -> Tensor:
        """A few sizes, stored by a kernel."""
        buffer = self._draft.buffer(value.dtype, product(value.shape))
        stores = tuple(
            Store(Access(buffer, i, ()), cast(Extent(size), value.dtype))
            for i, size in enumerate(n if isinstance(n, Dim) else int(n) for n in known.flat)
        )
        self._emit.kernel((), stores)
        return dense(value.dtype, value.shape, buffer)

    def require_room(self, known: np.ndarray) -> None:
        """Elements computed while compiling take no more memory in all than there may be."""
        whole, room = owner(known), self._room
        if id(whole) in room.held:
            return
        room.held[id(whole)] = whole
        self._take(whole.nbytes, known.shape)

    def _take(self, nbytes: int, shape: tuple[int, ...]) -> None:
        room = self._room
        room.taken += nbytes
        if room.taken > limits.MOST_CONSTANT_BYTES:
            raise ShapeError(
                f"{self._draft.where}: a constant of shape {list(shape)}, together "
                f"with those before it, takes {room.taken / 2**30:.3g} GiB; at most "
                f"{limits.MOST_CONSTANT_BYTES / 2**30:.3g} GiB are computed while a model is "
                "compiled"
            )
