"""Every neural process, one registry: `create(name, dim_x, dim_y, size)`."""

from fillin.models.base import LatentProcess, Process
from fillin.models.files import load, save
from fillin.models.registry import REGISTRY, SIZES, Entry, create, names, options_of

__all__ = ["REGISTRY", "SIZES", "Entry", "LatentProcess", "Process", "create", "load", "names", "options_of", "save"]
