"""HTTP as uvicorn speaks it, to clients that do not dawdle: a request whose headers do not come is not waited for."""

from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fillin.play import limits

_Usual: Any = AutoHTTPProtocol  # httptools where it is installed, else h11: its `cycle` is the last request


class Hurried(_Usual):
    """Closes a connection that was quiet at one look and, `limits.SENDING` seconds later, at the next, with no request
    between them: headers that do not come are waited for twice as long at most.

    uvicorn itself closes one that is silent after an answer, but waits without end for the rest of half a header.
    """

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._timer = self.loop.call_later(limits.SENDING, self._look, self.cycle, self._quiet)

    @property
    def _quiet(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self, before: Any, was_quiet: bool) -> None:
        if was_quiet and self._quiet and self.cycle is before:
            self.transport.close()
        else:
            self._watch()
