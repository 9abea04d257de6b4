"""Exceptions of Ostinato. Messages say where, what was expected, what was found, what to do.

All errors derive from `OstinatoError`; those that a caller would also catch as a built-in
exception (`ValueError`, `FileNotFoundError`, ...) derive from that too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class OstinatoError(Exception):
    """Base class of every error raised on purpose by this package."""


class ModelError(OstinatoError, ValueError):
    """The file or proto is no valid ONNX model (unreadable, truncated, cyclic, missing values)."""


class MissingModelError(ModelError, FileNotFoundError):
    """No file exists at the path of a model."""


class UnsupportedError(OstinatoError, NotImplementedError):
    """A valid model uses something this package refuses rather than get wrong.

    The message names the node, its op, and the attribute, input or type that is refused. Where it
    is the model as a whole, `op` is empty, and `node` what errors call the model.
    unknown: the values that would have to be known while compiling for it not to be refused.
    others: what is said of further nodes that are refused.
    """

    def __init__(
        self,
        node: str,
        op: str,
        reason: str,
        unknown: tuple[str, ...] = (),
        others: tuple[str, ...] = (),
    ) -> None:
        subject = f"node {node!r} ({op})" if op else node
        super().__init__("; ".join((f"{subject}: {reason}", *others)))
        self.node, self.op, self.reason, self.unknown = node, op, reason, unknown


class ShapeError(OstinatoError, ValueError):
    """Shapes contradict each other, in the model or between run-time dimensions."""


class InputError(OstinatoError, ValueError):
    """`run` or `bind` was given a missing, unknown or ill-typed input or output."""


class OptionError(OstinatoError, ValueError):
    """An option has a value that does not exist or is not available on this machine."""


class RunError(OstinatoError, RuntimeError):
    """A node failed while running: an index out of range, a fallback kernel that raised.

    has_stored: whether memory of the caller's may have been written by then.
    """

    has_stored = True


class CopyError(OstinatoError, TypeError):
    """A session, stream, pool, bound call or trainer was to be copied or pickled."""


class StreamError(OstinatoError, RuntimeError):
    """A stream, pool or call cannot do this now: it is closed, full, or busy in another thread."""


class PoolError(RunError):
    """Some streams of a pool failed in a step that the others completed.

    errors: the error of each stream that failed; its state is what it was before the step.
    results: the outputs of the others, as the step would have returned them.
    """

    def __init__(
        self, errors: Mapping[int, OstinatoError], results: Mapping[int, list[Any]]
    ) -> None:
        listed = "; ".join(f"stream {handle}: {error}" for handle, error in errors.items())
        super().__init__(f"{len(errors)} of {len(errors) + len(results)} streams failed: {listed}")
        self.errors, self.results = errors, results


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Whatever goes wrong inside is an error of ours that says `where`.

    What a rule did not expect in a file is a mistake in the file or in the rule. Raises
    `ModelError` in place of exceptions that are not `OstinatoError`.
    """
    try:
        yield
    except OstinatoError:
        raise
    except MemoryError as error:
        raise ModelError(f"{where}: there is not enough memory to compile it") from error
    except Exception as error:
        raise ModelError(
            f"{where}: it cannot be compiled ({type(error).__name__}: {error}). Either the model "
            "contradicts itself here, or this package is wrong: if another runtime runs the model, "
            "please report it together with the file"
        ) from error
