"""The size of a checkpoint's weights in a folder: from its index, else from the headers of its
safetensors files. No tensor is read.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

_INDEX = "model.safetensors.index.json"
_MAX_INDEX_BYTES = 64 << 20
# The format's own limit of a header (safetensors: MAX_HEADER_SIZE).
_MAX_HEADER_BYTES = 100_000_000
_MOST = 1 << 50


def find_weights(folder: Path) -> tuple[int, str]:
    """Bytes of all tensors, and where the number comes from; 0 where there are no weights."""
    size = _read_index(folder / _INDEX)
    if size:
        return size, "the index of its files"
    files = [path for path in sorted(folder.glob("*.safetensors")) if path.is_file()]
    sizes = [_read_header(path) for path in files]
    if sizes and all(sizes):
        return sum(sizes), "the headers of its files"
    size = sum(path.stat().st_size for path in files)
    return size, "the size of its files" if size else ""


def _read_index(path: Path) -> int:
    """`metadata.total_size`; 0 where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            data = json.loads(file.read(_MAX_INDEX_BYTES))
        metadata = data.get("metadata") if isinstance(data, dict) else None
        size = metadata.get("total_size") if isinstance(metadata, dict) else None
        if isinstance(size, (int, float)) and 0 < size < _MOST:
            return int(size)
    return 0


def _read_header(path: Path) -> int:
    """The end of the last tensor: eight bytes of length (little endian), then JSON of tensors with
    their `data_offsets`. 0 for what is no such file.
    """
    with suppress(OSError, ValueError, RecursionError, struct.error):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if not 0 < length <= _MAX_HEADER_BYTES:
                return 0
            header: Any = json.loads(file.read(length))
        if not isinstance(header, dict):
            return 0
        ends = [_read_end(tensor) for name, tensor in header.items() if name != "__metadata__"]
        size = max(ends, default=0)
        return size if 0 < size < _MOST else 0
    return 0


def _read_end(tensor: Any) -> int:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int):
        return offsets[1]
    raise ValueError("no offsets")
