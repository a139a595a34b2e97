"""Arrays of a safetensors file as views on its memory map: nothing is copied, workers share pages.

The safetensors package reads numpy arrays by copying them, so the header is read here: eight
bytes of length, JSON of names, types, shapes and offsets, then the numbers.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import ArtifactError
from cfnade.files import parse_json

DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
"""The types that a model needs; a file with any other is refused."""

MAX_HEADER_BYTES = 1 << 20
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class TensorEntry:
    """One array of the file, as the header tells it."""

    dtype: str
    """Of the safetensors format, such as `F32`."""

    shape: tuple[int, ...]

    start: int
    """First byte in the file."""

    n_bytes: int


def read_header(file: mmap.mmap | bytes) -> dict[str, TensorEntry]:
    """Names, types, shapes and places of the arrays, all checked against the size of the file.

    Args:
        file: The whole file; only its header is looked at.

    Returns:
        Entries by name. They lie in the file without gap or overlap, to its last byte.

    Raises:
        ArtifactError: If it is no safetensors file, or one that does not fit its own header.
    """
    if len(file) < _LENGTH_BYTES:
        raise ArtifactError("no safetensors header")
    n_header = int.from_bytes(file[:_LENGTH_BYTES], "little")
    if n_header > min(len(file) - _LENGTH_BYTES, MAX_HEADER_BYTES):
        raise ArtifactError(f"a safetensors header of {n_header} bytes is not possible here")
    data_start = _LENGTH_BYTES + n_header
    header = parse_json(file[_LENGTH_BYTES:data_start])
    if not isinstance(header, dict):
        raise ArtifactError("the safetensors header is no object")
    header.pop("__metadata__", None)
    entries = {name: _entry(name, told, data_start) for name, told in header.items()}
    expected = data_start
    for entry in sorted(entries.values(), key=lambda e: (e.start, e.n_bytes)):
        if entry.start != expected:
            raise ArtifactError("the arrays in the file overlap or leave gaps")
        expected += entry.n_bytes
    if expected != len(file):
        raise ArtifactError(f"the arrays end at byte {expected}, the file at byte {len(file)}")
    return entries


def map_tensors(file: mmap.mmap) -> dict[str, NDArray[Any]]:
    """The arrays of a memory-mapped file, read-only views on the map.

    Raises:
        ArtifactError: If it is no safetensors file, or one that does not fit its own header.
    """
    return {
        name: np.frombuffer(
            file, DTYPES[entry.dtype], count=math.prod(entry.shape), offset=entry.start
        ).reshape(entry.shape)
        if entry.n_bytes
        else np.empty(entry.shape, DTYPES[entry.dtype])
        for name, entry in read_header(file).items()
    }


def _entry(name: str, told: Any, data_start: int) -> TensorEntry:
    """Check one entry of the header."""
    fields: dict[str, Any] = told if isinstance(told, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ArtifactError(f"{name} is of a type that no model has: {dtype!r:.40}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(shape) > 2 or len(offsets) != 2:
        raise ArtifactError(f"{name} has no proper shape or place")
    n_bytes = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != n_bytes:
        raise ArtifactError(f"{name} has shape {shape} but {offsets[1] - offsets[0]} bytes")
    return TensorEntry(dtype, tuple(shape), data_start + offsets[0], n_bytes)


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    """Whether it is a list of whole numbers of at least 0 that a file could have."""
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 62 for v in values)
