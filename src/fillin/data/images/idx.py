"""IDX, the format of MNIST: two zero bytes, the type, the number of dimensions, each of them, then the values."""

import gzip
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from fillin.errors import InputError

_BYTES = 8  # the type of unsigned bytes
_MOST = 4 << 30  # bytes that a file may unfold to


def read_idx(path: Path) -> UInt8[ndarray, "..."]:
    """The array in a file, gzipped or not; it is never more than its header says."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] != _BYTES or not 1 <= head[3] <= 4:
                raise InputError(f"{path} is no IDX file of bytes (its first four bytes are {head.hex(' ')})")
            shape = tuple(np.frombuffer(file.read(4 * head[3]), ">u4").astype(int).tolist())
            size = int(np.prod(shape, dtype=object))
            if len(shape) != head[3] or size > _MOST:
                raise InputError(
                    f"{path}: its header is cut short, or tells of {size:,} bytes; at most {_MOST:,} are read"
                )
            data = file.read(size)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if len(data) < size:
        raise InputError(f"{path} ends after {len(data):,} of {size:,} values; fetch it again")
    return np.frombuffer(data, np.uint8).reshape(shape)
