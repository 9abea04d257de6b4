"""uvicorn's HTTP protocol with limits for clients that send too slowly, or headers without end.

httptools has none: a client could fill the memory with header fields, or hold connections by
requests that it never ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# As in h11, uvicorn's other parser.
_MOST_HEADER = 64 << 10


class LimitedProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """A connection. patience: seconds for a whole request; nginx gives as many by default."""

    patience = 60.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._header_bytes = 0
        self._is_header = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_header:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_header and self._header_bytes > _MOST_HEADER:
            self.send_400_response(f"Header fields are longer than {_MOST_HEADER} bytes.")
            self._header_bytes = 0

    def on_message_begin(self) -> None:
        self._start_timer()
        self._is_header, self._header_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_header = False
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # The bytes that follow are no request of HTTP.
            self._stop_timer()

    def on_message_complete(self) -> None:
        self._stop_timer()
        super().on_message_complete()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.patience, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
