"""`fillin play`: a web page on which neural processes run interactively, and its JSON API.

`serve()` starts the server; `fillin.play.app.create_app()` builds the ASGI application alone. `page/` has the HTML, CSS
and JavaScript modules exactly as the browser loads them; nothing comes from other servers.
"""

import socket
import threading
import webbrowser
from contextlib import closing
from time import sleep
from typing import Any

from fillin.errors import InputError, argument
from fillin.runtime import require

__all__ = ["serve"]
HOST = "127.0.0.1"


def serve(port: int | None = None, browser: bool = True, echo: Any = print) -> None:
    """Serve the page until Ctrl-C, on a free port if none is given."""
    for module in ("fastapi", "uvicorn", "PIL", "sklearn", "pandas"):
        require(module)
    from fillin.play.app import create_server
    from fillin.play.curves import CURVE_MODELS, check_weights
    from fillin.play.images import WEIGHTS

    check_weights([*WEIGHTS.values(), *(model.weights for model in CURVE_MODELS.values() if model.weights)])
    with closing(listen(port)) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        server = create_server(listener)
        echo(f"fillin play: {address} (Ctrl-C stops it)")

        def open_browser() -> None:
            while not server.started and not server.should_exit:
                sleep(0.05)
            webbrowser.open(address)

        if browser:
            threading.Thread(target=open_browser, daemon=True).start()
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
