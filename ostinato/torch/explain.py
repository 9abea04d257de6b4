"""Turn errors of PyTorch's exporter into errors that name the line of the program."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr

import torch

from ostinato.errors import OstinatoError, UnsupportedError

_ROOT = os.path.dirname(torch.__file__)
_WITHOUT_FORM = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what PyTorch logs beside the errors that it raises to itself."""
    levels = {one: one.level for one in map(logging.getLogger, ("torch", "onnx_ir"))}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        # Within a compilation of Dynamo, its guards and symbols are not those of this export.
        with warnings.catch_warnings(), torch._guards.tracing(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn whatever the exporter raises into `UnsupportedError`, with the line it is about.

    The graph so far, which the exporter prints where it fails, is kept back.
    """
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
        print(said.getvalue(), end="", file=sys.stderr)
    except OstinatoError:
        raise
    except Exception as error:
        where = _line_of(error)
        while error.__cause__ is not None and isinstance(error.__cause__, Exception):
            error = error.__cause__
        reason, remedy = _reason(error)
        raise UnsupportedError(
            what,
            "module",
            f"{where or 'export'}: {reason}; torch.compile(module, backend='ostinato') {remedy}",
        ) from error


def _reason(error: Exception) -> tuple[str, str]:
    """What the exporter says is wrong, and what a backend of PyTorch does about it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    operator = _WITHOUT_FORM.match(lines[0])
    if operator is not None:
        reason = f"operator {operator[1]!r} has no form in ONNX"
        return reason, "runs the graph with it in PyTorch"
    return lines[0], "breaks the graph there, torch.cond, torch.while_loop and scan keep it whole"


def _line_of(error: BaseException) -> str:
    """The innermost line outside of PyTorch that an error came from, "" if there is none."""
    return last_line(traceback.extract_tb(error.__traceback__))


def last_line(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost of these frames outside of PyTorch."""
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return _told(own[-1]) if own else ""


def _is_library(file: str) -> bool:
    return file.startswith((_ROOT, os.path.dirname(os.path.dirname(__file__)), "<"))


def _told(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line or ''}".rstrip(": ")
