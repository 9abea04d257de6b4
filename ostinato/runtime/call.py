"""Bound calls, and the pieces that sessions and streams make calls of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from ostinato.errors import OstinatoError
from ostinato.native.arguments import describe_values
from ostinato.native.function import GuardError, NativeFunction
from ostinato.runtime.uncopied import Uncopied


class BoundCall(Uncopied):
    """A call over fixed arrays: `call()` reads the inputs and writes the outputs, in place.

    It has an arena of its own, so bound calls of one session do not disturb each other, and may run
    in different threads: a call that takes long gives up the GIL. Nobody may write its arrays then.
    inputs, outputs: the arrays by name. Raises `RunError` when a run-time check of the model fails,
    and `StreamError` when another thread is in the same call.
    """

    __slots__ = ("_call", "_failure", "inputs", "outputs")
    _instead = "bind the arrays again"

    def __init__(
        self,
        call: Callable[[], int | None],
        failure: Callable[[int], OstinatoError],
        inputs: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        self._call, self._failure = call, failure
        self.inputs, self.outputs = inputs, outputs

    def __call__(self) -> None:
        """Read the inputs and write the outputs; raises what the class says."""
        code = self._call()
        if code is not None:
            raise self._failure(code)

    def __repr__(self) -> str:
        return f"<BoundCall ({describe_values(self.inputs)}) -> ({describe_values(self.outputs)})>"


def deoptimising(
    call: Callable[[], int | None], native: NativeFunction, general: Callable[[], object]
) -> Callable[[], int | None]:
    """The bound call; `general` runs in its place when one of its guards fails."""

    def guarded() -> int | None:
        code = call()
        if code is None or not isinstance(native.failure(code), GuardError):
            return code
        general()
        return None

    return guarded


def picker(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """The fastest function that gives a dict's values of `names` as a tuple."""
    if len(names) == 1:
        (name,) = names
        return lambda feed: (feed[name],)
    return itemgetter(*names) if names else lambda feed: ()
