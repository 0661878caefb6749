"""Which models complete pictures: those of two-dimensional places that tell one colour or three."""

from typing import TYPE_CHECKING

from fillin.errors import InputError, argument, nearest

if TYPE_CHECKING:
    from fillin.models import Process

DEFAULT = "surface"


def completer(model: "str | Process") -> "Process":
    """The model of that name or folder, or itself; it must read places of two dimensions and tell 1 or 3 colours."""
    from fillin.models import Process, load
    from fillin.pretrained import locate, names

    found = model
    if not isinstance(found, Process):
        if not locate(found).exists():
            like = nearest(found, names()) or DEFAULT
            why = f": there is no model {str(found)!r}; name a run, a folder of fillin.save, or {like!r}"
            raise InputError(argument("model") + why)
        found = load(found)
    if not isinstance(found, Process):
        why = f": {model} is no process: it tells what a picture shows, not what belongs where; train one that does "
        raise InputError(argument("model") + why + "with: fillin train images-te-tnp")
    if found.dim_x not in (2, None) or found.dim_y not in (1, 3):
        why = f": this model has dim_x={found.dim_x}, dim_y={found.dim_y}; pictures need 2 and 1 (grey) or 3 (colour)"
        raise InputError(argument("model") + why + "; train one with: fillin train images-te-tnp")
    return found.eval()


def note(model: "Process", channels: int) -> str | None:
    """What is to be said where a model was made for other colours."""
    from fillin.models.filler import Filler

    if isinstance(model, Filler) or model.dim_y == channels:
        return None
    if channels == 3:
        return "the model knows grey alone: red, green and blue are completed one by one"
    return "the model knows colours: grey is shown to it as three that are equal, and its answers are averaged"
