"""The logger of this interface, by onnxruntime's severities."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

LOGGER = logging.getLogger("ostinato.onnxruntime")
LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Levels of logging by onnxruntime's severities: verbose, info, warning, error, fatal."""


class _Calling(logging.Handler):
    """Hands on records as onnxruntime hands on its messages."""

    def __init__(self, callback: Callable[[int, str, str, str, str], Any]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        severity = sum(level <= record.levelno for level in LEVELS[1:])
        place = f"{record.filename}:{record.lineno} {record.funcName}"
        try:
            self._callback(severity, "ostinato", "", place, record.getMessage())
        except Exception:
            self.handleError(record)


def set_default_logger_severity(severity: int) -> None:
    """Log what is at least so severe: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    LOGGER.setLevel(_level(severity))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Have no effect: there is one level of details."""


def set_default_logger_callback(
    callback: Callable[[int, str, str, str, str], Any] | None, severity: int = 2
) -> None:
    """Hand messages to `callback(severity, category, logid, code_location, message)` alone.

    None gives them back to Python's logging. severity: what messages have at least from now on, as
    in `set_default_logger_severity`; it is checked, but has no effect with None.
    """
    level = _level(severity)
    if callback is not None and not callable(callback):
        raise RuntimeError("callback must be a callable")
    for handler in [each for each in LOGGER.handlers if isinstance(each, _Calling)]:
        LOGGER.removeHandler(handler)
    LOGGER.propagate = callback is None
    if callback is not None:
        LOGGER.addHandler(_Calling(callback))
        LOGGER.setLevel(level)


def _level(severity: int) -> int:
    if not 0 <= severity < len(LEVELS):
        raise RuntimeError(
            "Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"
        )
    return LEVELS[severity]
