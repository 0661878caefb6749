"""ASGI application: the four tools, the static page, and the responses to errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import fillin
from fillin.errors import FillinError
from fillin.play import curves, images, span, tables
from fillin.play.guard import Guard
from fillin.play.job_queue import JobQueues, QueueBusy
from fillin.play.limits import Limits

_TOOLS = curves, images, tables, span
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
    app.state.queues, app.state.table_cache = JobQueues(limits), tables.TableCache(limits.cached_tables)
    for tool in _TOOLS:
        app.include_router(tool.router)
    app.add_exception_handler(FillinError, _respond_to_fillin_error)
    app.add_exception_handler(RequestValidationError, _respond_to_invalid_request)
    app.add_exception_handler(HTTPException, _respond_to_http_error)
    app.add_exception_handler(QueueBusy, _respond_to_busy_queue)
    app.mount("/", StaticFiles(directory=str(files("fillin.play") / "page"), html=True))
    return Guard(app, port, limits)


async def _respond_to_fillin_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FillinError)
    return JSONResponse({"detail": error.shell}, 422)


async def _respond_to_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Report the first error with its location. The input is not repeated: it may be a number JSON cannot hold."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return JSONResponse({"detail": _DETAILS[400]}, 400)
    location = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))[:100] or "the body"
    message = first["msg"].removeprefix("Value error, ")[:300]
    detail = f"{location}: {message[:1].lower()}{message[1:]}; see /openapi.json for the schema"
    return JSONResponse({"detail": detail}, 422)


async def _respond_to_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = _DETAILS.get(error.status_code, str(error.detail))
    return JSONResponse({"detail": detail}, error.status_code, headers=error.headers)


async def _respond_to_busy_queue(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, headers={"Retry-After": "1"})
