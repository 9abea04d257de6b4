"""Tell the user, once for each model, that a part of it is interpreted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ostinato.caller import warn
from ostinato.stages.report import NotNative, described, listed

_LOGGER = logging.getLogger("ostinato")
# `warnings` warns once in a process, whatever models it loads.
_warned = False


class Notice:
    """Logs the first call to the logger "ostinato", for the model called `name`.

    The first notice of a process is a warning of the module `warnings` as well.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._given = False

    def __call__(self, entries: Sequence[NotNative]) -> None:
        """Say that these nodes are interpreted; do nothing if there are none."""
        global _warned
        if not entries or self._given:
            return
        self._given = True
        count = "1 node runs" if len(entries) == 1 else f"{len(entries)} nodes run"
        _LOGGER.warning(
            "%s: %s on reference kernels, which are slow: %s. The session's report lists all; "
            "fallback=False refuses them",
            self._name,
            count,
            listed([described(entry) for entry in entries]),
        )
        if not _warned:
            _warned = True
            warn(
                f"{self._name} is not all native code: {count} on reference kernels; see "
                'session.report()["fallback"] and the logger "ostinato", which names each model',
                RuntimeWarning,
            )
