"""HTTP as uvicorn speaks it, to clients that do not dawdle: a request whose headers do not come is not waited for."""

from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fillin.play import limits

_Usual: Any = AutoHTTPProtocol  # httptools where it is installed, else h11: its `cycle` is the last request


class Hurried(_Usual):
    """Closes a connection on which, for `limits.SENDING` seconds, no request has begun and none is under way.

    uvicorn itself closes one that is silent after an answer, but waits without end for the rest of half a header.
    """

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._timer = self.loop.call_later(limits.SENDING, self._look, self.cycle)

    def _look(self, before: Any) -> None:
        now = self.cycle
        if now is before and (now is None or now.response_complete):
            self.transport.close()
        else:
            self._watch()
