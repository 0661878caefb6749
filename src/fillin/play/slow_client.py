"""HTTP protocol of uvicorn with a time limit on receiving the headers of a request."""

from asyncio import Transport
from functools import partial
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fillin.play.limits import Limits

_Protocol: Any = AutoHTTPProtocol  # httptools if installed, else h11; its `cycle` is the last request


class HeaderTimeoutProtocol(_Protocol):
    """Protocol that checks each connection twice per `header_seconds`, and closes one that is idle at two checks in a
    row without a request in between.

    uvicorn itself closes connections that are silent after a response, but waits forever for the rest of a header.
    """

    def __init__(self, *args, header_seconds: float, **options):
        super().__init__(*args, **options)
        self._header_seconds = header_seconds
        self._idle_after: tuple | None = None  # the last request at the previous check, if that was answered

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self.check()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def check(self) -> None:
        """Close the connection if it has been idle since the previous check, else schedule the next check."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._idle_after == (self.cycle,):
            self.transport.close()
            return
        self._idle_after = (self.cycle,) if is_idle else None
        self._timer = self.loop.call_later(self._header_seconds / 2, self.check)


def http_protocol(limits: Limits) -> Any:
    """Protocol factory for `uvicorn.Config(http=…)`."""
    return partial(HeaderTimeoutProtocol, header_seconds=limits.header_seconds)
