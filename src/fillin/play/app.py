"""The ASGI application: the four tools, the page, and how every error is answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import fillin
from fillin.errors import FillinError
from fillin.play import curves, images, span, tables
from fillin.play.guard import Guard
from fillin.play.job_queue import Busy, Lanes
from fillin.play.schema import Problem
from fillin.play.table_cache import Memory

_TOOLS = curves, images, tables, span
_ABOUT = "What the page of `fillin play` asks: curves, images, tables and windows. Everything stays on this machine."
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is no JSON."},
    403: {"model": Problem, "description": "Host or Origin is not this server."},
    408: {"model": Problem, "description": "The body did not come in time."},
    413: {"model": Problem, "description": "The body is too large."},
    415: {"model": Problem, "description": "The body is of a kind that is not read here."},
    422: {"model": Problem, "description": "Something is wrong with what was sent: what, and what to do."},
    503: {"model": Problem, "description": "Too many requests are waiting; Retry-After says when to try again."},
}

_KNOWN = {
    400: "the body is no JSON that can be read; /openapi.json has what is read here",
    404: "there is nothing here; the page is at /",
}


def create_app(port: int | None = None) -> Guard:
    """The whole application, guarded. With a port, requests must name it: those to any other host are refused."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.lanes.close()

    app = FastAPI(
        title="fillin play", version=fillin.__version__, description=_ABOUT, docs_url=None, redoc_url=None,
        lifespan=life, responses=_PROBLEMS,
    )  # fmt: skip
    app.state.lanes, app.state.tables = Lanes(), Memory()
    for tool in _TOOLS:
        app.include_router(tool.router)
    app.add_exception_handler(FillinError, _mistaken)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(Busy, _busy)
    app.mount("/", StaticFiles(directory=str(files("fillin.play") / "page"), html=True))
    return Guard(app, port)


async def _mistaken(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": getattr(error, "shell", str(error))}, 422)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """The first mistake as one sentence: where it is, and what is wanted. What was sent is not repeated: it may be no
    number that JSON can hold."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return JSONResponse({"detail": _KNOWN[400]}, 400)
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))[:100]
    said = first["msg"].removeprefix("Value error, ")
    said = said[:1].lower() + said[1:]
    return JSONResponse({"detail": f"{where or 'the body'}: {said[:300]}; /openapi.json has what is read here"}, 422)


async def _plain(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = _KNOWN.get(error.status_code, str(error.detail))
    return JSONResponse({"detail": said}, error.status_code, headers=error.headers)


async def _busy(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, headers={"Retry-After": "1"})
