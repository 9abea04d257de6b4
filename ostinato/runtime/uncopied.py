"""Refuse to copy or pickle objects that hold native code and memory of this process."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from ostinato.errors import CopyError


class Uncopied:
    """Raise `CopyError` where `copy` or `pickle` would begin; a copy would share memory."""

    __slots__ = ()
    _instead: ClassVar[str]
    """What to do in place of a copy."""

    def __reduce__(self) -> NoReturn:
        raise CopyError(
            f"cannot copy or pickle {type(self).__name__!r} objects, native code and memory of "
            f"this process: {self._instead}"
        )
