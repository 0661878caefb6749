"""`fillin play`: a web page on which neural processes run interactively, and its JSON API.

`serve()` starts the server; `fillin.play.app.create_app()` builds the ASGI application alone. `page/` has the HTML, CSS
and JavaScript modules exactly as the browser loads them; nothing comes from other servers.
"""

from fillin.play.server import serve

__all__ = ["serve"]
