"""The kernel's shared library: found, chosen by what the processor can do, and described to ctypes (native/span.h)."""

import os
import warnings
from contextlib import suppress
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_int32, c_int64, c_void_p
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch

from fillin.errors import InputError

# torch's own word for the processor, and the lanes that it can fill. Any other runs the portable build.
_INTERFACE = 2  # FILLIN_INTERFACE of native/span.h
_LANES = {"AVX512": (16, 8, 4), "AVX2": (8, 4)}


class Rows(Structure):
    _fields_ = (("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64))


class Table(Structure):
    _fields_ = (
        ("values", c_void_p), ("dims", c_int32), ("radial", c_int32), ("exact", c_int32), ("size", c_int32 * 3),
        ("low", c_float * 3), ("inverse_step", c_float * 3),
    )  # fmt: skip


class Problem(Structure):
    _fields_ = (
        *((n, c_int32) for n in ("batch", "heads", "queries", "keys", "width", "value_width", "dim_x", "threads")),
        *((name, Rows) for name in ("q", "k", "v", "out")),
        *((name, c_void_p) for name in ("lse", "xq", "xk", "order_q", "order_k", "keep")),
        ("scale", c_float),
        *((name, c_int32) for name in ("causal", "window", "cut", "shape", "full")),
        ("threshold", c_float), ("inverse", c_void_p), ("bias", Table), ("g", Rows), ("features", Table),
        ("features_width", c_int32),
    )  # fmt: skip


class Gradients(Structure):
    _fields_ = (
        ("d_out", Rows), ("d_lse", c_void_p), *((name, Rows) for name in ("d_q", "d_k", "d_v", "d_g")),
        *((name, c_void_p) for name in ("d_inverse", "d_bias", "d_features")),
    )  # fmt: skip


def variants() -> dict[int, Path]:
    """The builds of the kernel that this processor can run, by lanes, widest first (FILLIN_NATIVE: another folder)."""
    from fillin.attention import kernel as native

    lanes = _LANES.get(torch.backends.cpu.get_cpu_capability(), (4,))
    folders = [Path(folder) for folder in native.__path__]  # beside this file, or where an editable install put them
    with suppress(PackageNotFoundError):
        folders.append(Path(str(distribution("fillin").locate_file("fillin/attention/native"))))
    if named := os.environ.get("FILLIN_NATIVE"):
        folders = [Path(named)]
    paths = [(n, folder / f"span{n}.so") for n in lanes for folder in folders]
    return {n: path for n, path in paths if path.exists()}


@cache
def library() -> CDLL | None:
    """The widest build there is (FILLIN_LANES=4, 8 or 16 asks for another; 0 for none), or None. Says so once."""
    found, asked = variants(), os.environ.get("FILLIN_LANES")
    if asked == "0":
        return None
    if asked is not None and (not asked.isdigit() or int(asked) not in found):
        raise InputError(
            f"FILLIN_LANES={asked}: here there is {', '.join(map(str, found)) or 'no build'}; or 0 for none"
        )
    if not found:
        warnings.warn(
            "fillin was installed without its native kernel (there was no C++ compiler): attention over many places "
            "is slower. Install a compiler and reinstall fillin.",
            stacklevel=2,
        )
        return None
    return load(found[int(asked)] if asked else next(iter(found.values())))


def load(path: Path) -> CDLL:
    loaded = CDLL(str(path))
    loaded.fillin_order.argtypes = [c_void_p, c_int32, c_int32, c_int32, c_int32, c_void_p]
    loaded.fillin_forward.argtypes = [POINTER(Problem)]
    loaded.fillin_backward.argtypes = [POINTER(Problem), POINTER(Gradients)]
    sizes = [loaded.fillin_sizes(which) for which in range(3)]
    if sizes != [len(bytes(Problem())), len(bytes(Gradients())), _INTERFACE]:
        raise ImportError(f"{path.name} was built for another version of fillin; reinstall it")
    return loaded


def available() -> bool:
    return library() is not None


def lanes() -> int:
    """Of the build that runs; of none, one."""
    kernel = library()
    return 1 if kernel is None else kernel.fillin_lanes()


# as torch.compiler.assume_constant_result does, which would import the whole compiler first: half of fillin.load
available._dynamo_marked_constant = True  # type: ignore[attr-defined]


def call(name: str, *arguments) -> None:
    """Run a function of the kernel; its structures are passed by reference."""
    kernel = library()
    if kernel is None:
        raise InputError("backend 'native' is not there: fillin was installed without a C++ compiler; use 'streamed'")
    passed = [byref(a) if isinstance(a, Structure) else a for a in arguments]
    if getattr(kernel, f"fillin_{name}")(*passed):
        raise MemoryError(f"attend: the native kernel ran out of memory in {name}")
