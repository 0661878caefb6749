"""Checks of every request (host, origin, type, size, time to arrive), and the security headers of responses.

Listening on 127.0.0.1 keeps other machines out. Checks of Host and Origin keep out other pages of the same browser,
even under a foreign name that resolves to this machine.
"""

import asyncio
from time import monotonic
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fillin.play.limits import MEGABYTE, Limits

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
UPLOADS = {"/api/images/read": ("image/png", "image/jpeg"), "/api/tables": ("text/csv",)}
_HOSTS = ("127.0.0.1", "localhost")
_SAFE_METHODS = ("GET", "HEAD")
_Protocol: Any = AutoHTTPProtocol  # httptools if installed, else h11; its `cycle` is the last request


class Guard:
    """ASGI middleware that checks requests and limits their bodies."""

    def __init__(self, app: ASGIApp, port: int | None = None, limits: Limits = Limits()):  # noqa: B008 (frozen)
        self.app, self.limits = app, limits
        self.hosts = _HOSTS if port is None else tuple(f"{host}:{port}" for host in _HOSTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        error = self.check(scope["method"], scope["path"], Headers(scope=scope))
        if error is None:
            try:
                body = self._limit_body(receive, self.max_bytes(scope["path"]))
                await self.app(scope, body, send_with_headers)
                return
            except asyncio.CancelledError:  # by the server at shutdown; raised further it would print a traceback
                error = 503, "the server is stopping; start it again"
        status, detail = error
        await JSONResponse({"detail": detail}, status)(scope, receive, send_with_headers)

    def check(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """Return the status and message of an error, or None if the request is allowed."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 403, f"Host {host[:100]!r} is not this server; open http://{self.hosts[0]}"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{name}" for name in self.hosts}:
            return 403, f"requests from Origin {origin[:100]!r} are refused; only the page of this server may send them"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "requests from other pages are refused; only the page of this server may send them"
        if method in _SAFE_METHODS:
            return None
        accepted = UPLOADS.get(path, ("application/json",))
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and content_type not in accepted:
            return 415, f"Content-Type {content_type[:100]!r} is not accepted here; send {' or '.join(accepted)}"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15:
            return 400, "Content-Length is not a number; leave it to the client"
        if int(length) > self.max_bytes(path):
            return 413, _too_large(self.max_bytes(path))
        return None

    def max_bytes(self, path: str) -> int:
        """Largest body that is accepted at a path."""
        return self.limits.upload_bytes if path in UPLOADS else self.limits.body_bytes

    def _limit_body(self, receive: Receive, max_bytes: int) -> Receive:
        """Limit the size and the time of a body as it arrives: one sent in chunks has no Content-Length."""
        received, complete, end = 0, False, monotonic() + self.limits.body_seconds

        async def receive_within_limits() -> Message:
            nonlocal received, complete
            try:
                message = await asyncio.wait_for(receive(), None if complete else max(0.0, end - monotonic()))
            except TimeoutError:
                detail = f"the body did not arrive within {self.limits.body_seconds:g} s; send it again"
                raise HTTPException(408, detail, {"Connection": "close"}) from None
            if message["type"] == "http.request":
                received, complete = received + len(message.get("body", b"")), not message.get("more_body", False)
                if received > max_bytes:
                    raise HTTPException(413, _too_large(max_bytes))
            return message

        return receive_within_limits


def _too_large(max_bytes: int) -> str:
    return f"the body is larger than {max_bytes // MEGABYTE} MB; send less"


class HeaderTimeoutProtocol(_Protocol):
    """HTTP protocol that checks each connection twice per `header_seconds`, and closes it if it is idle at two checks
    in a row without a request in between. uvicorn itself waits forever for the rest of a header."""

    def __init__(self, *args, header_seconds: float, **options):
        super().__init__(*args, **options)
        self._header_seconds = header_seconds
        self._idle_after: tuple | None = None  # the last request at the previous check, if that was answered

    def connection_made(self, transport: asyncio.Transport) -> None:
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
