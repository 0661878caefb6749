"""Locate, select and declare the shared library of the kernel (native/span.h) to ctypes."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ctypes import CDLL, POINTER, Structure, byref, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch

from fillin.errors import InputError

_INTERFACE = 8  # FILLIN_INTERFACE of native/span.h
_LANES = {"AVX512": (16, 8, 4), "AVX2": (8, 4)}  # by torch's name of the instruction set; others run the portable build


class FillinRows(Structure):
    """Mirror of `FillinRows` in native/span.h; so are the structures below."""

    _fields_ = (("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64))


class FillinTable(Structure):
    _fields_ = (
        ("values", c_void_p), ("dims", c_int32), ("radial", c_int32), ("exact", c_int32), ("size", c_int32 * 3),
        ("low", c_float * 3), ("inverse_step", c_float * 3),
    )  # fmt: skip


MAX_FORMS = 4  # FILLIN_MAX_FORMS


class FillinForm(Structure):
    _fields_ = (("kind", c_int32), ("dims", c_int32), ("log_scale", c_void_p), ("amplitude", c_void_p))


class FillinProblem(Structure):
    _fields_ = (
        *((n, c_int32) for n in ("batch", "heads", "queries", "keys", "width", "value_width", "dim_x", "threads")),
        *((name, FillinRows) for name in ("q", "k", "v", "out")),
        *((name, c_void_p) for name in ("lse", "xq", "xk", "order_q", "order_k", "keep", "pairs")),
        *((name, c_int64) for name in ("pairs_batch", "pairs_head", "pairs_row")),
        ("scale", c_float),
        *((name, c_int32) for name in ("causal", "window", "cut", "shape", "full")),
        ("threshold", c_float), ("inverse", c_void_p), ("forms", c_int32), ("form", FillinForm * MAX_FORMS),
        ("bias", FillinTable), ("g", FillinRows),
        ("features", FillinTable), ("features_width", c_int32),
    )  # fmt: skip


class FillinGradients(Structure):
    _fields_ = (
        ("d_out", FillinRows), ("d_lse", c_void_p), *((name, FillinRows) for name in ("d_q", "d_k", "d_v", "d_g")),
        *((name, c_void_p) for name in ("d_inverse", "d_bias", "d_features", "d_xq", "d_xk")),
        ("d_log_scale", c_void_p * MAX_FORMS), ("d_amplitude", c_void_p * MAX_FORMS),
    )  # fmt: skip


class FillinProcesses(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("columns", "kernels", "rows", "queries", "threads")),
        *((name, c_void_p) for name in ("distance", "wave", "trend", "y", "error", "line", "there", "theta", "fixed")),
        *((name, c_double) for name in ("level", "freedom", "jitter")), ("out", c_void_p),
    )  # fmt: skip


def find_builds() -> dict[int, Path]:
    """Builds of the kernel that this processor can run, by lanes, widest first. FILLIN_NATIVE names another folder."""
    from fillin.attention import kernel

    lanes = _LANES.get(torch.backends.cpu.get_cpu_capability(), (4,))
    folders = [Path(folder) for folder in kernel.__path__]  # beside this file, or where an editable install put them
    with suppress(PackageNotFoundError):
        folders.append(Path(str(distribution("fillin").locate_file("fillin/attention/kernel"))))
    if folder := os.environ.get("FILLIN_NATIVE"):
        folders = [Path(folder)]
    paths = [(n, folder / f"span{n}.so") for n in lanes for folder in folders]
    return {n: path for n, path in paths if path.exists()}


_requested: ContextVar[CDLL | None] = ContextVar("requested", default=None)


@contextmanager
def use_build(lanes: int | None) -> Iterator[None]:
    """Run the build of that number of lanes inside the block, or the one that is selected anyway (None)."""
    builds = find_builds()
    if lanes is not None and lanes not in builds:
        raise InputError(f"no build of {lanes} lanes runs on this processor")
    token = _requested.set(None if lanes is None else open_library(builds[lanes]))
    try:
        yield
    finally:
        _requested.reset(token)


def load_library() -> CDLL | None:
    """Load the build of `use_build`, or the selected one."""
    return _requested.get() or load_selected()


@cache
def load_selected() -> CDLL | None:
    """Load the widest build, or warn once and return None. FILLIN_LANES=4, 8 or 16 selects a build, 0 disables it."""
    builds, requested = find_builds(), os.environ.get("FILLIN_LANES")
    if requested == "0":
        return None
    if requested is not None and (not requested.isdigit() or int(requested) not in builds):
        available = ", ".join(map(str, builds)) or "none"
        raise InputError(f"FILLIN_LANES={requested} is not available; the builds here are: {available} (0 disables)")
    if not builds:
        warnings.warn(
            "fillin was installed without its native kernel (there was no C++ compiler): attention over many locations "
            "is slower. Install a compiler and reinstall fillin.",
            stacklevel=2,
        )
        return None
    return open_library(builds[int(requested)] if requested else next(iter(builds.values())))


def open_library(path: Path) -> CDLL:
    """Open one build, declare its functions, and check that its structures have our layout."""
    library = CDLL(str(path))
    library.fillin_order.argtypes = [c_void_p, c_int32, c_int32, c_int32, c_int32, c_void_p]
    library.fillin_forward.argtypes = [POINTER(FillinProblem)]
    library.fillin_backward.argtypes = [POINTER(FillinProblem), POINTER(FillinGradients)]
    library.fillin_evidence.argtypes = [POINTER(FillinProcesses)]
    library.fillin_predict.argtypes = [POINTER(FillinProcesses)]
    library.fillin_correlate.argtypes = [POINTER(FillinProcesses)]
    sizes = [library.fillin_sizes(which) for which in range(3)]
    if sizes != [len(bytes(FillinProblem())), len(bytes(FillinGradients())), _INTERFACE]:
        raise ImportError(f"{path.name} was built for another version of fillin; reinstall it")
    return library


def is_available() -> bool:
    """Return whether the kernel is installed."""
    return load_library() is not None


# as torch.compiler.assume_constant_result does, which would import the whole compiler: half the time of fillin.load
is_available._dynamo_marked_constant = True  # type: ignore[attr-defined]


def lanes() -> int:
    """Number of floats in a vector of the build that runs; 1 without a kernel."""
    library = load_library()
    return 1 if library is None else library.fillin_lanes()


def call(name: str, *arguments) -> None:
    """Call a function of the kernel; structures are passed by reference."""
    library = load_library()
    if library is None:
        raise InputError(
            "backend 'native' is not available: fillin was installed without a C++ compiler; use 'streamed'"
        )
    passed = [byref(a) if isinstance(a, Structure) else a for a in arguments]
    if getattr(library, f"fillin_{name}")(*passed):
        raise MemoryError(f"the native kernel ran out of memory in {name}")
