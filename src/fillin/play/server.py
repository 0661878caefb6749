"""The server: one address on this machine, a browser that opens it, and an end that leaves nothing behind."""

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

HOST = "127.0.0.1"
_GRACE = 1  # seconds that answers under way have at the end


def serve(port: int | None = None, browser: bool = True, say: Any = print) -> None:
    """Serve the page until Ctrl-C. Without a port a free one is taken."""
    for module in ("fastapi", "uvicorn", "PIL", "sklearn", "pandas"):
        require(module)
    from fillin.play.images import WEIGHTS
    from fillin.play.models import CHOICES, check_weights

    check_weights([*WEIGHTS.values(), *(choice.weights for choice in CHOICES.values() if choice.weights)])
    with closing(listen(port)) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        server = server_on(listening)
        say(f"fillin play: {address} (Ctrl-C ends it)")
        if browser:
            threading.Thread(target=_open, args=(server, address), daemon=True).start()
        server.run(sockets=[listening])


def listen(port: int | None) -> socket.socket:
    """A socket of this machine alone, on a free port where none is named; one that is taken is said."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port or 0))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        raise InputError(
            argument("port") + f" {port} cannot be used ({why}); choose another, or leave it out for a free one"
        ) from error
    return listening


def server_on(listening: socket.socket) -> "uvicorn.Server":
    """What answers there."""
    import uvicorn

    from fillin.play.app import create_app
    from fillin.play.slow_client import Hurried

    # an open page keeps its connection: that it is cut at the end is no error
    logging.getLogger("uvicorn.error").addFilter(_is_no_farewell)
    return uvicorn.Server(
        uvicorn.Config(
            create_app(listening.getsockname()[1]), log_level="warning", access_log=False, lifespan="on",
            timeout_graceful_shutdown=_GRACE, server_header=False, limit_concurrency=128, timeout_keep_alive=30,
            ws="none", http=Hurried,
        )
    )  # fmt: skip


def _is_no_farewell(record: logging.LogRecord) -> bool:
    return "graceful shutdown" not in str(record.msg)


def _open(server: "uvicorn.Server", address: str) -> None:
    import webbrowser

    while not server.started and not server.should_exit:
        sleep(0.05)
    webbrowser.open(address)
