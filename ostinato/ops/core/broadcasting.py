"""NumPy's broadcasting, of sizes that only a run tells: what is 1 then is repeated."""

from __future__ import annotations

from dataclasses import replace

from ostinato.guards import Guards
from ostinato.ops.core.limits import Limits
from ostinato.ops.core.requirements import Requirements
from ostinato.ops.core.run_sizes import RunSizes
from ostinato.ops.core.tensor import Tensor
from ostinato.sizes.conditions import choose, is_different, is_equal
from ostinato.sizes.dims import Dim, Size, computed, maximum
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import largest


class Broadcasting:
    """Broadcasting of the sizes of one program, of which some may turn out to be 1.

    Where two sizes that differ as expressions meet, one that is 1 is repeated. A specialised
    program has a guard that they are equal, which costs nothing while it runs. The general one
    chooses when a call is planned: the stride of what is repeated becomes 0. So does any program
    where sizes depend on values, which are never likely. What meets a size that grows from step to
    step can be as long in a single one only, so that it is likely to be 1. So is what is 1 at most.

    guarded: for which sizes the program may be specialised.
    """

    def __init__(
        self, require: Requirements, limits: Limits, sizes: RunSizes, guarded: Guards
    ) -> None:
        self._require, self._limits = require, limits
        self._sizes, self._guarded = sizes, guarded
        # The sizes along which others, that may be 1, are repeated.
        self._wide = set[Size]()
        # The sizes that guards say are 1.
        self._ones = set[Size]()
        # Those of them that are a choice between sizes, with these sizes.
        self._choices: dict[Size, set[Size]] = {}

    def shape(self, *shapes: Shape) -> Shape:
        """The shape that all of these broadcast to. Raises `ShapeError`."""
        rank = max((len(shape) for shape in shapes), default=0)
        result: list[Size] = [1] * rank
        for shape in shapes:
            for i, extent in enumerate(shape, rank - len(shape)):
                what = f"axis {i} of operands to broadcast"
                result[i] = self.size(result[i], extent, what)
        return tuple(result)

    def size(self, left: Size, right: Size, what: str) -> Size:
        """The extent that two broadcast to. Raises `ShapeError`, `what` being the place."""
        if right in (left, 1):
            return left
        if left == 1:
            return right
        if _is_never_one(left) and _is_never_one(right):
            self._require.equal(left, right, what)
            return left
        if self._require.is_required(left, right):
            return left
        for narrow, wide in ((left, right), (right, left)):
            if self._guard_one(narrow, wide, what):
                return wide
        is_one = is_different(left, 1) * is_different(right, 1)
        self._agree(is_one * is_different(left, right), left, right, what)
        # The result is the same expression in whatever order the sizes are combined.
        left, right = sorted((left, right), key=lambda size: (isinstance(size, Dim), str(size)))
        if self._guard_equal(left, right, what):
            return left
        result = self._wider(left, right, what)
        self._wide.add(result)
        return result

    def _wider(self, left: Size, right: Size, what: str) -> Size:
        """The one of two sizes that is not 1."""
        for wide, narrow in ((left, right), (right, left)):
            if _is_never_one(wide) or narrow in self._choices.get(wide, ()):
                return wide
        chosen = choose(is_equal(left, 1), right, left)
        bound = maximum(self._limits.upper(left), self._limits.upper(right))
        result = self._sizes.named(self._sizes.defined(chosen, what, bound=bound))
        sources = {left, right, *self._choices.get(left, ()), *self._choices.get(right, ())}
        self._choices.setdefault(result, set()).update(sources)
        return result

    def fit(self, narrow: Shape, wide: Shape) -> None:
        """The first shape is repeated to be the second one. Raises `ShapeError`."""
        lead = len(wide) - len(narrow)
        self._require.that(lead, f"{narrow} does not fit into {wide}")
        for axis, (extent, wanted) in enumerate(zip(narrow, wide[lead:], strict=True), lead):
            self.fit_size(extent, wanted, f"axis {axis} of an operand to broadcast")

    def fit_size(self, narrow: Size, wide: Size, what: str) -> None:
        """An extent is repeated to be another one. Raises `ShapeError`, `what` being the place."""
        if narrow in (wide, 1):
            return
        if wide == 1 or _is_never_one(narrow):
            self._require.equal(narrow, wide, what)
            return
        if self._guard_one(narrow, wide, what):
            return
        differ = is_different(narrow, 1) * is_different(narrow, wide)
        self._agree(differ, narrow, wide, what)
        if not self._guard_equal(narrow, wide, what):
            self._wide.add(wide)

    def following(self, tensor: Tensor, shape: Shape) -> Tensor:
        """The tensor, made to stand still where an extent of 1 is repeated to have this shape."""
        strides, progression = list(tensor.strides), tensor.progression
        for i, (extent, wanted) in enumerate(zip(tensor.shape, shape, strict=True)):
            if extent in self._ones and extent != wanted:
                strides[i], progression = 0, None
            elif extent not in (1, wanted) and wanted in self._wide:
                moves = self._sizes.named(is_different(extent, 1), bound=1)
                strides[i] = strides[i] * moves
                given = is_equal(extent, wanted)
                progression = progression and replace(progression, given=progression.given * given)
        return replace(tensor, strides=tuple(strides), progression=progression)

    def _agree(self, differ: Size, left: Size, right: Size, what: str) -> None:
        self._require.compared.append((left, right))
        self._require.that(-differ, f"{what}: {left} and {right} differ")

    def _guard_one(self, narrow: Size, wide: Size, what: str) -> bool:
        """Guard that the first size is 1, where that is likely; whether it is."""
        if computed(narrow) or not (computed(wide) or largest(narrow) == 1):
            return False
        if not self._guarded or self._require.is_data_dependent(narrow, wide):
            return False
        self._require.compared.append((narrow, wide))
        self._require.guard(is_equal(narrow, 1), f"{what}: {narrow} is not 1, nor always {wide}")
        self._ones.add(narrow)
        return True

    def _guard_equal(self, left: Size, right: Size, what: str) -> bool:
        if not self._guarded or self._require.is_data_dependent(left, right):
            return False
        if computed(left, right) or is_different(left, right) == 1:
            return False
        self._require.guard(is_equal(left, right), f"{what}: one of {left} and {right} is 1")
        return True


def _is_never_one(size: Size) -> bool:
    return is_different(size, 1) == 1
