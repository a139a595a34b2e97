"""Arrays of a safetensors file as views on its memory map, and the weights that a network needs.

The safetensors package copies numpy arrays. To share pages between workers, the header is read
here: eight bytes of length, JSON of names, types, shapes and offsets, then the numbers.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import ArtifactError
from cfnade.files import parse_json
from cfnade.model.config import ModelConfig

_DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}  # no model has arrays of other types
_MOST_HEADER_BYTES = 1 << 20
_LENGTH_BYTES = 8


class TensorEntry(NamedTuple):
    """One array of the file, from the header."""

    dtype: str  # in the safetensors format, such as `F32`
    shape: tuple[int, ...]
    start: int  # first byte in the file
    n_bytes: int


def read_header(file: mmap.mmap | bytes) -> dict[str, TensorEntry]:
    """Read and check the header alone: entries by name.

    Raises:
        ArtifactError: If the arrays do not fill the file without gap or overlap.
    """
    if len(file) < _LENGTH_BYTES:
        raise ArtifactError("no safetensors header")
    n_header = int.from_bytes(file[:_LENGTH_BYTES], "little")
    if n_header > min(len(file) - _LENGTH_BYTES, _MOST_HEADER_BYTES):
        raise ArtifactError(f"a safetensors header of {n_header} bytes is not possible here")
    data_start = _LENGTH_BYTES + n_header
    header = parse_json(file[_LENGTH_BYTES:data_start])
    if not isinstance(header, dict):
        raise ArtifactError("the safetensors header is no object")
    header.pop("__metadata__", None)
    entries = {name: _entry(name, entry, data_start) for name, entry in header.items()}
    expected = data_start
    for entry in sorted(entries.values(), key=lambda e: (e.start, e.n_bytes)):
        if entry.start != expected:
            raise ArtifactError("the arrays in the file overlap or leave gaps")
        expected += entry.n_bytes
    if expected != len(file):
        raise ArtifactError(f"the arrays end at byte {expected}, the file at byte {len(file)}")
    return entries


def map_tensors(file: mmap.mmap) -> dict[str, NDArray[Any]]:
    """The arrays of a memory-mapped file, as read-only views."""
    return {
        name: np.ndarray(entry.shape, _DTYPES[entry.dtype], file, entry.start)
        for name, entry in read_header(file).items()
    }


def _entry(name: str, entry: Any, data_start: int) -> TensorEntry:
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ArtifactError(f"{name} is of a type that no model has: {dtype!r:.40}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(shape) > 2 or len(offsets) != 2:
        raise ArtifactError(f"{name} has no proper shape or place")
    n_bytes = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != n_bytes:
        raise ArtifactError(f"{name} has shape {shape} but {offsets[1] - offsets[0]} bytes")
    return TensorEntry(dtype, tuple(shape), data_start + offsets[0], n_bytes)


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 48 for v in values)


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of each weight of a network by name."""
    n_items, n_hidden = config.n_items, config.n_hidden
    shapes: dict[str, tuple[int, ...]] = {
        "like_weight": (n_items, n_hidden),
        "dislike_weight": (n_items, n_hidden),
        "hidden_bias": (n_hidden,),
        "output_weight": (n_items, n_hidden),
        "output_bias": (n_items,),
    }
    for layer in range(config.n_layers - 1):
        shapes[f"deep_weight.{layer}"] = (n_hidden, n_hidden)
        shapes[f"deep_bias.{layer}"] = (n_hidden,)
    if config.n_neighbours:
        shapes["neighbours"] = (n_items, config.n_neighbours)
        shapes["neighbour_weight"] = (n_items, config.n_neighbours)
    return shapes


def wrong_weights(
    config: ModelConfig, weights: Mapping[str, NDArray[Any]], *, look_inside: bool = True
) -> str | None:
    """What is wrong with the weights of a network, in words; None if they are right.

    To `look_inside` is to check that every number is finite, which reads all of them.
    """
    # Counted without `weight_shapes`: a forged number of layers could make that list huge.
    n_expected = 5 + 2 * (config.n_layers - 1) + (2 if config.n_neighbours else 0)
    if len(weights) != n_expected:
        return f"expected {n_expected} weights, found {len(weights)}"
    for name, shape in weight_shapes(config).items():
        if name not in weights:
            return f"the weight {name} is missing"
        weight = weights[name]
        dtype = np.dtype(np.int64 if name == "neighbours" else np.float32)
        if weight.shape != shape or weight.dtype != dtype:
            return (
                f"{name} must be {dtype} of shape {shape}, "
                f"found {weight.dtype} of shape {weight.shape}"
            )
        if name == "neighbours" and not ((weight >= 0) & (weight < config.n_items)).all():
            return f"{name} names items that do not exist"
        if look_inside and not _is_finite(weight):
            return f"{name} holds NaN or infinite numbers"
    return None


def _is_finite(weight: NDArray[Any], n_at_once: int = 1 << 20) -> bool:
    """Whether all numbers are finite; in parts, to save memory."""
    flat = weight.reshape(-1)
    return all(
        bool(np.isfinite(flat[start : start + n_at_once]).all())
        for start in range(0, flat.size, n_at_once)
    )
