"""`fillin play`: a page in the browser on which a neural process can be seen at work, and the JSON API behind it.

`serve()` starts it; `fillin.play.app.create_app()` is the ASGI application alone. The page is in `page/`: HTML, CSS and
modules of JavaScript as the browser reads them, with nothing from outside.
"""

from fillin.play.server import serve

__all__ = ["serve"]
