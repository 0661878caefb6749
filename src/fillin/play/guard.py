"""What stands before every request: who may ask, how much they may send, and what the browser is told to forbid.

The server listens on 127.0.0.1 alone. That keeps other machines out, not other pages in the same browser: they are
told apart by Host (a name that resolves to this machine is none of ours) and by Origin.
"""

import asyncio
import json
from time import monotonic

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fillin.play import limits

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
_SAFE = ("GET", "HEAD")


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, port: int | None = None):
        self.app, self.hosts = app, _names(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        guarded = _with_headers(send)
        refused = self.refuse(scope["method"], scope["path"], Headers(scope=scope))
        if refused is not None:
            await answer(guarded, *refused)
            return
        try:
            await self.app(scope, _bounded(receive, _most(scope["path"])), guarded)
        except asyncio.CancelledError:  # by the server, at its end: to let it through would print a traceback
            await answer(guarded, 503, "the server has ended; start it again")

    def refuse(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason, or None where all is well."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 403, f"Host {host[:100]!r} is not this server; open http://{self.hosts[0]}"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{name}" for name in self.hosts}:
            return 403, f"Origin {origin[:100]!r} may not ask; only the page of this server may"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "another page may not ask; only the page of this server may"
        if method in _SAFE:
            return None
        kinds = UPLOADS.get(path, ("application/json",))
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind not in kinds:
            return 415, f"Content-Type {kind[:100]!r} is not what is read here; send {' or '.join(kinds)}"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15:
            return 400, "Content-Length is no number; leave it to the client"
        if int(length) > _most(path):
            return 413, f"the body has more than {_most(path) // limits.MEGABYTE} MB; send less"
        return None


def _names(port: int | None) -> tuple[str, ...]:
    return _HOSTS if port is None else tuple(f"{host}:{port}" for host in _HOSTS)


def _most(path: str) -> int:
    return limits.UPLOAD if path in UPLOADS else limits.BODY


def _bounded(receive: Receive, most: int) -> Receive:
    """Also of a body that comes in chunks, without its length; and one that does not come is not waited for."""
    seen, whole, end = 0, False, monotonic() + limits.SENDING

    async def counted() -> Message:
        nonlocal seen, whole
        try:
            message = await asyncio.wait_for(receive(), None if whole else max(0.0, end - monotonic()))
        except TimeoutError:
            late = f"the body did not come within {limits.SENDING:g} s; send it again"
            raise HTTPException(408, late, {"Connection": "close"}) from None
        if message["type"] == "http.request":
            seen, whole = seen + len(message.get("body", b"")), not message.get("more_body", False)
            if seen > most:
                raise HTTPException(413, f"the body has more than {most // limits.MEGABYTE} MB; send less")
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending


async def answer(send: Send, status: int, detail: str) -> None:
    """A refusal as every other error is answered."""
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
