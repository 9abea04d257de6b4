"""Calls on inputs of which some have other shapes each time: nothing is planned for a shape.

The call of a plan checks for certain shapes, and making one takes many times what a small model
takes. Here one call serves all shapes: it checks only the inputs that keep theirs.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.codegen.artifact import Artifact
from ostinato.locks import new_lock
from ostinato.native.memory import aligned_empty, data_address, require_memory, total_memory
from ostinato.native.workspace import Workspace
from ostinato.sizes.dims import MEMORY

if TYPE_CHECKING:
    from ostinato.native.function import Key, NativeFunction

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# Bytes of intermediate values up to which a plan may cost more than the call itself: it takes some
# 40 us, in which a core writes about this much to memory (`benchmarks.roofline`: 20 GB/s).
_SMALL = 1 << 20
# Shapes that are remembered as those that came once.
_MOST_SEEN = 256
# Those that stay, then those of the inputs that change.
Sizes = tuple[int, ...]


class ChangingCall:
    """Calls of `native`, which `can_change`, by one thread at a time.

    shapes: of the inputs, None for those that change. most: bytes of intermediate values with
        which it runs nothing; any number by default.
    """

    def __init__(
        self, native: NativeFunction, shapes: Sequence[Shape | None], most: float = math.inf
    ) -> None:
        artifact = native.artifact
        self._native, self._told, self._most = native, _Told(artifact, shapes), most
        self._specs = [
            None if shape is None else (dtype, shape)
            for dtype, shape in zip(native.input_dtypes, shapes, strict=True)
        ]
        ends = accumulate((len(argument.shape) for argument in artifact.outputs), initial=1)
        parts = [slice(*pair) for pair in pairwise(ends)]
        self._outputs = [*zip(parts, native.output_dtypes, strict=True)]
        self._table = np.zeros(1 + sum(len(a.shape) for a in artifact.outputs), np.int64)
        numbers = struct.Struct(f"{len(artifact.symbols) + 1}q")
        self._pack, self._packed = numbers.pack_into, bytearray(numbers.size)
        self._symbols = np.frombuffer(self._packed, np.int64)
        self._addresses = data_address(self._symbols), data_address(self._table)
        self._bytes = 0
        self._reserve(0)

    def _reserve(self, size: int) -> None:
        """Make room for intermediate values; twice as much, as the next call may need more."""
        self._arena = aligned_empty(2 * size)
        callee = self._native.callee(self._symbols, self._arena, Workspace())
        self._call = self._native.trampoline.caller(
            callee, self._specs, [None] * len(self._outputs)
        )

    def sizes(self, arrays: Sequence[Array]) -> Sizes | None:
        """The sizes in inputs that change, of their ranks; None where these do not fit together."""
        return self._told.sizes(arrays)

    def __call__(self, inputs: Sequence[Any], sizes: Sizes) -> list[Array] | None:
        """The results, which are fresh. None where a run with all checks has to say what is wrong.

        inputs: those that change are arrays of these `sizes`, as compiled code reads them.
        """
        native = self._native
        try:
            self._pack(self._packed, 0, *self._told.symbols(inputs, sizes))
        except (AttributeError, IndexError, TypeError, struct.error):
            return None
        if native.layout(*self._addresses):
            return None
        dims = self._table.tolist()
        if dims[0] > self._most:
            return None
        empty = native.recycled.maker(self._bytes)
        try:
            outputs = [empty(tuple(dims[part]), dtype) for part, dtype in self._outputs]
        except (MemoryError, ValueError):
            return None
        self._bytes = dims[0] + sum([array.nbytes for array in outputs])
        require_memory(self._bytes, native.all_values)
        if dims[0] > self._arena.nbytes:
            self._reserve(dims[0])
        return native.exact(outputs) if self._call(*inputs, *outputs) is None else None


class NewShapes:
    """Calls of `native` on inputs whose shapes, or values that are sizes, come for the first time.

    A plan is worth making for those that come again.
    """

    def __init__(self, native: NativeFunction) -> None:
        self.native = native
        self._seen: OrderedDict[Key, None] = OrderedDict()
        self._call: ChangingCall | None = None
        self._taken = new_lock()
        ranks = [len(argument.shape) for argument in native.artifact.inputs]
        self._kinds = [*zip(native.input_dtypes, ranks, strict=True)]

    def __call__(self, inputs: Sequence[Any]) -> list[Array] | None:
        """The results, which are fresh; None where a plan, or a run with all checks, is needed."""
        native = self.native
        if native.arena_bytes > _SMALL or not native.can_change:
            return None
        for array, (dtype, rank) in zip(inputs, self._kinds, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != rank:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
        key = tuple([array.shape for array in inputs]), native.values(inputs)
        if not self._taken.acquire(blocking=False):
            return None
        try:
            if key in self._seen:
                return None
            self._seen[key] = None
            if len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
            if self._call is None:
                self._call = ChangingCall(native, [None] * len(inputs), _SMALL)
            sizes = self._call.sizes(inputs)
            return None if sizes is None else self._call(inputs, sizes)
        finally:
            self._taken.release()


class _Told:
    """What is known when sizes are told: some that stay, those of inputs, elements that are sizes.

    Each dimension is a place among them; where one is in several, these have to be equal.
    """

    def __init__(self, artifact: Artifact, shapes: Sequence[Shape | None]) -> None:
        pairs = [*zip(artifact.inputs, shapes, strict=True)]
        literals = {dim for a, _ in pairs for dim in a.shape if isinstance(dim, int)}
        kept = [(a.shape, shape) for a, shape in pairs if shape is not None]
        # Symbols that the compiled function defines begin with the first one.
        self._stay = (0, total_memory(), *literals, *chain.from_iterable(s for _, s in kept))
        dims = ["", MEMORY, *literals, *chain.from_iterable(dims for dims, _ in kept)]
        dims += chain.from_iterable(a.shape for a, shape in pairs if shape is None)
        elements = chain.from_iterable(names for _, names in artifact.values)
        places: dict[str | int, int] = {}
        for place, dim in enumerate([*dims, *elements]):
            places.setdefault(dim, place)
        self._equal = itemgetter(*(places[dim] for dim in dims))
        # One more than there are: `itemgetter` gives a tuple of several.
        self._symbols = itemgetter(*(places.get(name, 0) for name in artifact.symbols), 0)
        self._values = [place for place, _ in artifact.values]

    def sizes(self, arrays: Sequence[Array]) -> Sizes | None:
        sizes = (*self._stay, *chain.from_iterable([array.shape for array in arrays]))
        return sizes if self._equal(sizes) == sizes else None

    def symbols(self, inputs: Sequence[Array], sizes: Sizes) -> tuple[int, ...]:
        for place in self._values:
            sizes += tuple(inputs[place].reshape(-1).tolist())
        found: tuple[int, ...] = self._symbols(sizes)
        return found
