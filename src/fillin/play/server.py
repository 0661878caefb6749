"""Server of `fillin play`: a port of this machine, a browser that opens it, and a clean shutdown."""

import logging
import socket
import threading
from contextlib import closing
from time import sleep
from typing import TYPE_CHECKING, Any

from fillin.errors import InputError, argument
from fillin.runtime import require

if TYPE_CHECKING:
    import uvicorn

    from fillin.play.limits import Limits

HOST = "127.0.0.1"
_SHUTDOWN_SECONDS = 1  # for responses that are being sent


def serve(port: int | None = None, browser: bool = True, echo: Any = print) -> None:
    """Serve the page until Ctrl-C, on a free port if none is given."""
    for module in ("fastapi", "uvicorn", "PIL", "sklearn", "pandas"):
        require(module)
    from fillin.play.images import WEIGHTS
    from fillin.play.models import CURVE_MODELS, check_weights

    check_weights([*WEIGHTS.values(), *(model.weights for model in CURVE_MODELS.values() if model.weights)])
    with closing(listen(port)) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        server = create_server(listener)
        echo(f"fillin play: {address} (Ctrl-C stops it)")
        if browser:
            threading.Thread(target=_open_browser, args=(server, address), daemon=True).start()
        server.run(sockets=[listener])


def listen(port: int | None) -> socket.socket:
    """Return a socket that listens on this machine alone."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            "{port} {number} cannot be used ({reason}); choose another port, or omit the option for a free one",
            port=argument("port"), number=port, reason=getattr(error, "strerror", None) or error,
        ) from error  # fmt: skip
    return listener


def create_server(listener: socket.socket, limits: "Limits | None" = None) -> "uvicorn.Server":
    """Return the server of the application for a listening socket."""
    import uvicorn

    from fillin.play.app import create_app
    from fillin.play.limits import Limits
    from fillin.play.slow_client import http_protocol

    limits = limits or Limits()
    # an open page keeps its connection; closing it at shutdown is no error
    logging.getLogger("uvicorn.error").addFilter(_is_no_shutdown_message)
    return uvicorn.Server(
        uvicorn.Config(
            create_app(listener.getsockname()[1], limits), log_level="warning", access_log=False, lifespan="on",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS, server_header=False, limit_concurrency=128,
            timeout_keep_alive=limits.keep_alive_seconds, ws="none", http=http_protocol(limits),
        )
    )  # fmt: skip


def _is_no_shutdown_message(record: logging.LogRecord) -> bool:
    return "graceful shutdown" not in str(record.msg)


def _open_browser(server: "uvicorn.Server", address: str) -> None:
    import webbrowser

    while not server.started and not server.should_exit:
        sleep(0.05)
    webbrowser.open(address)
