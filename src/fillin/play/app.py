"""ASGI application and its server: the four tools, the static page, and the responses to errors."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import fillin
from fillin.errors import FillinError
from fillin.play import curves, images, span, tables
from fillin.play.guard import Guard, HeaderTimeoutProtocol
from fillin.play.job_queue import JobQueues, QueueBusy
from fillin.play.limits import Limits

_TOOLS = curves, images, tables, span
_SHUTDOWN_SECONDS = 1  # for responses that are being sent
_DESCRIPTION = "API of the page of `fillin play`: curves, images, tables and attention spans, computed on this machine."


class ErrorResponse(BaseModel):
    """Cause of an error, its location in the request, and a remedy."""

    detail: str


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "The body is not valid JSON.",
        403: "Host or Origin is not this server.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The Content-Type is not accepted.",
        422: "The request is invalid, or its computation was stopped at the time limit.",
        503: "Too many requests are waiting; Retry-After has the seconds to wait.",
    }.items()
}
_DETAILS = {
    400: "the body is not valid JSON; see /openapi.json for the schema",
    404: "this path does not exist; the page is at /",
}


def create_app(port: int | None = None, limits: Limits = Limits()) -> Guard:  # noqa: B008 (frozen)
    """Return the guarded application. With a port, requests to any other host or port are refused."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.queues.close()

    app = FastAPI(
        title="fillin play", version=fillin.__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None,
        lifespan=lifespan, responses=_ERRORS,
    )  # fmt: skip
    app.state.queues, app.state.table_cache = JobQueues(limits, curves.warm_up), tables.TableCache(limits.cached_tables)
    for tool in _TOOLS:
        app.include_router(tool.router)
    for kind in (FillinError, RequestValidationError, HTTPException, QueueBusy):
        app.add_exception_handler(kind, _respond_to_error)
    app.mount("/", StaticFiles(directory=str(files("fillin.play") / "page"), html=True))
    return Guard(app, port, limits)


def create_server(listener: socket.socket, limits: Limits = Limits()) -> uvicorn.Server:  # noqa: B008 (frozen)
    """Return the server of the application for a listening socket."""
    # an open page keeps its connection; closing it at shutdown is no error
    logging.getLogger("uvicorn.error").addFilter(lambda record: "graceful shutdown" not in str(record.msg))
    return uvicorn.Server(
        uvicorn.Config(
            create_app(listener.getsockname()[1], limits), log_level="warning", access_log=False, lifespan="on",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS, server_header=False, limit_concurrency=128,
            timeout_keep_alive=limits.keep_alive_seconds, ws="none",
            http=partial(HeaderTimeoutProtocol, header_seconds=limits.header_seconds),  # type: ignore[arg-type]
        )
    )  # fmt: skip


async def _respond_to_error(request: Request, error: Exception) -> JSONResponse:
    """Report the cause. Input is not repeated: it may be a number JSON cannot hold."""
    headers = None
    if isinstance(error, FillinError):
        status, detail = 422, error.shell
    elif isinstance(error, QueueBusy):
        status, detail, headers = 503, str(error), {"Retry-After": "1"}
    elif isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
        detail = _DETAILS.get(status, str(error.detail))
    else:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))[:100] or "the body"
        message = first["msg"].removeprefix("Value error, ")[:300]
        status, detail = 422, f"{location}: {message[:1].lower()}{message[1:]}; see /openapi.json for the schema"
        if first["type"] == "json_invalid":
            status, detail = 400, _DETAILS[400]
    return JSONResponse({"detail": detail}, status, headers=headers)
