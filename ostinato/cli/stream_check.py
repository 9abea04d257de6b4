"""Whether a converted model, step by step, gives what the whole model gives at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from ostinato.runtime.session import InferenceSession
    from ostinato.streaming import Conversion

Arrays: TypeAlias = "dict[str, np.ndarray]"
Run: TypeAlias = "Callable[[Arrays], Arrays]"


@dataclass(frozen=True)
class Difference:
    """Difference of an output.

    fixed: the steps are those of a model that takes this chunk alone.
    frames: compared; wrong: elements with other bits.
    """

    output: str
    chunk: int
    fixed: bool
    frames: int
    wrong: int
    max_abs: float

    @property
    def sentence(self) -> str:
        """Describe the difference."""
        return (
            f"output {self.output!r}, chunks of {self.chunk}: {self.wrong} elements differ, "
            f"by up to {self.max_abs:.3g}"
        )


def runner(session: InferenceSession) -> Run:
    """A function from inputs to outputs, both by name."""
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def step_by_step(
    run: Run, conversion: Conversion, feeds: Mapping[str, np.ndarray], chunk: int
) -> Iterator[Arrays]:
    """The outputs of each step over `feeds`; a last chunk may be shorter."""
    sizes = _run_time_sizes(conversion, feeds)
    state = conversion.initial_values(sizes)
    name, axis = next(iter(conversion.time.items()))
    total = feeds[name].shape[axis] // conversion.multiple * conversion.multiple
    for start in range(0, total, chunk):
        part = {
            name: _cut(array, conversion.time[name], start, min(start + chunk, total))
            if name in conversion.time
            else array
            for name, array in feeds.items()
        }
        outputs = run(part | state)
        state = {i: outputs.pop(o) for i, o in conversion.states.items()}
        yield outputs


def compare(
    whole: Mapping[str, np.ndarray],
    parts: Sequence[Arrays],
    conversion: Conversion,
    chunk: int,
) -> list[Difference]:
    """The outputs that have a time axis, after their delays, against those of the whole model."""
    import numpy as np

    found = []
    for name, timing in conversion.outputs.items():
        expected = whole[name]
        if timing.axis is None:
            got = parts[-1][name]
        else:
            joined = np.concatenate([part[name] for part in parts], timing.axis)
            got = _cut(joined, timing.axis, timing.delay, None)
            frames = min(got.shape[timing.axis], expected.shape[timing.axis])
            got, expected = (_cut(a, timing.axis, 0, frames) for a in (got, expected))
        error = _difference(timing.axis, got, expected)
        found.append(Difference(name, chunk, conversion.chunk is not None, *error))
    return found


def _difference(axis: int | None, got: np.ndarray, expected: np.ndarray) -> tuple[int, int, float]:
    """Frames compared, elements with other bits, and the largest difference."""
    import numpy as np

    frames = 0 if axis is None else got.shape[axis]
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return frames, max(got.size, 1), float("inf")
    same = (got == expected) | ((got != got) & (expected != expected))
    if same.all():
        return frames, 0, 0.0
    with np.errstate(invalid="ignore"):
        error = np.abs(got[~same].astype(np.float64) - expected[~same].astype(np.float64))
    return frames, int((~same).sum()), float(error.max())


def _cut(array: np.ndarray, axis: int, start: int, end: int | None) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(start, end),)]


def _run_time_sizes(conversion: Conversion, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Sizes by name, as the shapes of the inputs give them."""
    sizes = {}
    for value in conversion.model.graph.input:
        if value.name in feeds:
            for size, actual in zip(
                value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=False
            ):
                if size.dim_param:
                    sizes[size.dim_param] = actual
    return sizes
