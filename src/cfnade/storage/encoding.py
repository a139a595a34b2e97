"""Arrays and item ids as the files of a saved model hold them: written, mapped and checked.

- Arrays are views on the memory map of a safetensors file, so that workers share its pages. The
  safetensors package copies; so its header is read here: eight bytes of length, JSON of names,
  types, shapes and offsets, then the numbers.
- Weights may take 16 bits each (docs/decisions/0030); they are float32 again once loaded.
- Item ids of any common type become JSON and come back unchanged.
"""

from __future__ import annotations

import base64
import decimal
import math
import mmap
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Literal, TypeAlias, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import check_choice
from cfnade.data.interactions import as_objects
from cfnade.errors import ArtifactError
from cfnade.model.config import ModelConfig
from cfnade.storage.untrusted import MOST_DIGITS, parse_json

_TYPES = ("F16", "F32", "F64", "I16", "I64", "U8", "U16", "U32")  # no model has others
_DTYPES = {name: f"<{name[0].lower()}{int(name[1:]) // 8}" for name in _TYPES}
_MOST_HEADER_BYTES = 1 << 20
_LENGTH_BYTES = 8


def map_tensors(file: mmap.mmap | bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file by name, as read-only views.

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
    for name, entry in header.items():
        _check_entry(name, entry)
    expected = 0
    for start, end in sorted(entry["data_offsets"] for entry in header.values()):
        if start != expected:
            raise ArtifactError("the arrays in the file overlap or leave gaps")
        expected = end
    if data_start + expected != len(file):
        raise ArtifactError(
            f"the arrays end at byte {data_start + expected}, the file at byte {len(file)}"
        )
    return {
        name: np.ndarray(
            entry["shape"], _DTYPES[entry["dtype"]], file, data_start + entry["data_offsets"][0]
        )
        for name, entry in header.items()
    }


def _check_entry(name: str, entry: Any) -> None:
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ArtifactError(f"{name!r:.40} is of a type that no model has: {dtype!r:.40}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(shape) > 2 or len(offsets) != 2:
        raise ArtifactError(f"{name!r:.40} has no proper shape or place")
    if offsets[1] - offsets[0] != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize:
        raise ArtifactError(f"{name!r:.40} has shape {shape} but {offsets[1] - offsets[0]} bytes")


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 48 for v in values)


# Weights ------------------------------------------------------------------------------------------

WeightType: TypeAlias = Literal["float32", "float16", "int16"]
"""How matrices of weights are stored; vectors are always float32."""

_MOST = np.float32(32767)  # of int16


def pack_weights(weights: Mapping[str, NDArray[Any]], dtype: WeightType) -> dict[str, NDArray[Any]]:
    """Weights as they are stored; with int16, `.scale` has a factor for each row of a matrix."""
    check_choice("dtype", dtype, get_args(WeightType))
    packed: dict[str, NDArray[Any]] = {}
    for name, weight in weights.items():
        if name == "neighbours":
            packed[name] = narrow(weight)
        elif weight.ndim < 2 or dtype == "float32":
            packed[name] = weight
        elif dtype == "float16":
            with np.errstate(over="ignore"):  # `wrong_weights` finds it
                packed[name] = weight.astype(np.float16)
        else:
            largest = np.abs(weight).max(axis=1, keepdims=True, initial=0.0)
            scale = np.maximum(largest / _MOST, np.finfo(np.float32).tiny)  # (n_rows, 1)
            packed[name] = np.rint(weight / scale).clip(-_MOST, _MOST).astype(np.int16)
            packed[f"{name}.scale"] = scale
    return packed


def unpack_weights(packed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Undo `pack_weights`; what is not as expected is left for `wrong_weights` to find."""
    weights = dict(packed)
    for name, weight in packed.items():
        if weight.ndim == 2 and weight.dtype == np.float16:
            weights[name] = weight.astype(np.float32)
        elif weight.ndim == 2 and weight.dtype == np.int16 and f"{name}.scale" in weights:
            scale = weights.pop(f"{name}.scale")
            if scale.dtype == np.float32 and scale.shape == (len(weight), 1):
                with np.errstate(all="ignore"):
                    weights[name] = weight * scale
    return weights


def narrow(numbers: NDArray[np.integer]) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them, little-endian."""
    types = [np.min_scalar_type(int(end(initial=0))) for end in (numbers.min, numbers.max)]
    return numbers.astype(np.promote_types(*types).newbyteorder("<"))


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

    `look_inside` also checks that every number is finite, which reads all of them.
    """
    # Counted without `weight_shapes`: a forged number of layers could make that list huge.
    of_readout = {"trend": (config.n_items,), "repeat_bias": (config.n_items,)}
    of_readout |= {"repeat_weight": (1,), "mean_hidden": (config.n_hidden,)}
    added = {name: shape for name, shape in of_readout.items() if name in weights}
    n_expected = 5 + 2 * (config.n_layers - 1) + (2 if config.n_neighbours else 0) + len(added)
    if len(weights) != n_expected:
        return f"expected {n_expected} weights, found {len(weights)}"
    for name, shape in (weight_shapes(config) | added).items():
        if name not in weights:
            return f"the weight {name} is missing"
        weight = weights[name]
        is_index, kind = name == "neighbours", weight.dtype
        if weight.shape != shape or not (kind.kind in "iu" if is_index else kind == np.float32):
            expected = "whole numbers" if is_index else "float32"
            return f"{name} must be {expected} of shape {shape}, found {kind} of {weight.shape}"
        if is_index and not ((weight >= 0) & (weight < config.n_items)).all():
            return f"{name} names items that do not exist"
        parts = np.array_split(weight.reshape(-1), 1 + weight.size // (1 << 20))  # saves memory
        if look_inside and not all(np.isfinite(part).all() for part in parts):
            return f"{name} holds NaN or infinite numbers"
    return None


# Item ids -----------------------------------------------------------------------------------------

_MOST_DIGITS = 1000  # of a decimal, and of its exponent's value


def _read_decimal(text: str) -> decimal.Decimal:
    """A decimal of a usual size: some operations take time that grows with its value."""
    number = decimal.Decimal(text[: _MOST_DIGITS + 1])
    if len(text) > _MOST_DIGITS or not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        reason = f"{text!r:.40} is no number of at most {_MOST_DIGITS} digits"
        raise ArtifactError(f"the item ids are damaged: {reason}")
    return number


def _checked_int(number: int) -> int:
    """A whole number that `parse_json` reads again."""
    if abs(number) >= 10**MOST_DIGITS:
        raise ArtifactError(f"an item id has more than {MOST_DIGITS} digits; use text as ids")
    return number


# Ids keep their type: 7 comes back as 7 and "007" as "007". For each type: the Python type, how to
# write it, the type of the written value, how to read it.
_TO_TEXT: dict[str, tuple[type, Callable[[Any], Any], type, Callable[[Any], Any]]] = {
    "str": (str, str, str, str),
    "bool": (bool, bool, bool, bool),
    "int": (int, _checked_int, int, int),
    "float": (float, float, float, float),
    "bytes": (bytes, bytes.hex, str, bytes.fromhex),
    "uuid": (uuid.UUID, str, str, uuid.UUID),
    "decimal": (decimal.Decimal, lambda d: str(_read_decimal(str(d))), str, _read_decimal),
    "datetime": (datetime, datetime.isoformat, str, datetime.fromisoformat),
    "date": (date, date.isoformat, str, date.fromisoformat),
}

_NUMBERS = re.compile(r"[<>|](b1|[iu][1248]|f[248])")
_WHOLE = re.compile(r"<[iu][248]|\|[iu]1")
_TIMES = re.compile(r"[<>][mM]8(\[\d{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_MOST_TEXT_BYTES = 1 << 30  # of an array of fixed width; larger ones hold objects
_MOST_EQUAL_HASHES = 1000


def encode_ids(ids: NDArray[Any]) -> dict[str, Any]:
    """Encode distinct ids, (n_items,), as JSON, with their types."""
    check_distinct(ids)
    if ids.dtype.kind in "mM":
        text = np.datetime_as_string(ids) if ids.dtype.kind == "M" else ids.astype(np.int64)
        return {"dtype": ids.dtype.str, "types": None, "ids": text.tolist()}
    values = [v.item() if isinstance(v, np.generic) else v for v in ids.tolist()]
    types = [_type_name(value) for value in values]
    if ids.dtype.kind == "U":
        dtype = "str" if ids.nbytes <= _MOST_TEXT_BYTES else "object"
    else:
        dtype = ids.dtype.str if _NUMBERS.fullmatch(ids.dtype.str) else "object"
    return {
        "dtype": dtype,
        "types": sorted(set(types)) if len(set(types)) <= 1 else types,
        "ids": [_TO_TEXT[name][1](value) for name, value in zip(types, values, strict=True)],
    }


def pack_ids(ids: NDArray[Any]) -> dict[str, Any]:
    """Like `encode_ids`, with whole numbers as base64 of a small array of the type `packed`."""
    encoded = encode_ids(ids)
    small = narrow(ids) if ids.dtype.kind in "iu" else ids
    if small.dtype.kind not in "iu":
        return encoded
    text = base64.b64encode(small.tobytes()).decode()
    return {**encoded, "ids": text, "packed": small.dtype.str}


def decode_ids(encoded: Mapping[str, Any]) -> NDArray[Any]:
    """Decode what `encode_ids` or `pack_ids` made; anything else raises `ArtifactError`."""
    try:
        ids = _decode(encoded)
    except ArtifactError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ArtifactError(f"the item ids are damaged: {type(error).__name__} {error}") from error
    check_distinct(ids)
    return ids


def check_distinct(ids: NDArray[Any]) -> None:
    """Refuse ids that are not hashable and distinct."""
    values = ids.tolist()
    try:
        # Thousands of equal hashes are an attack: a dictionary of such ids would take hours.
        are_distinct = (
            len({hash(value) for value in values}) >= len(values) - _MOST_EQUAL_HASHES
            and len(set(values)) == len(values)
            and all(value == value for value in values)  # NaN is not
            and not (ids.dtype.kind in "mM" and np.isnat(ids).any())
        )
    except (TypeError, ArithmeticError):
        raise ArtifactError("item ids must be hashable; use text or numbers as ids") from None
    if not are_distinct:
        raise ArtifactError("item ids must be distinct: one of them occurs twice, or is NaN")


def _decode(encoded: Mapping[str, Any]) -> NDArray[Any]:
    types, values, dtype = encoded["types"], encoded["ids"], encoded["dtype"]
    if isinstance(values, str) and _WHOLE.fullmatch(encoded["packed"]):
        packed = base64.b64decode(values, validate=True)
        values = np.frombuffer(packed, encoded["packed"]).tolist()
    if not isinstance(values, list) or not isinstance(dtype, str):
        raise ArtifactError("the item ids are damaged: no list of ids, or no type")
    if types is None:
        if not _TIMES.fullmatch(dtype):
            raise ArtifactError(f"the item ids are damaged: {dtype!r:.40} is not a type of ids")
        kind = str if dtype[1] == "M" else int
        return np.array([_checked(v, kind) for v in values], dtype=np.dtype(dtype))
    if not isinstance(types, list) or not (len(types) in (len(values), 1) or not values):
        raise ArtifactError("the item ids are damaged: not as many types as ids")
    if len(types) < len(values):
        types = types * len(values)
    decoded = []
    for name, value in zip(types, values, strict=False):
        _, _, as_written, read = _TO_TEXT[name]
        decoded.append(read(_checked(value, as_written)))
    if dtype == "object":
        return as_objects(decoded)
    if dtype == "str":
        width = max((len(_checked(v, str)) for v in decoded), default=1)
        if 4 * width * len(decoded) > _MOST_TEXT_BYTES:
            raise ArtifactError("the item ids are damaged: too long for this kind of array")
        return np.array(decoded, dtype=f"<U{max(width, 1)}")
    if not _NUMBERS.fullmatch(dtype):
        raise ArtifactError(f"the item ids are damaged: {dtype!r:.40} is not a type of ids")
    kinds = {"b": "bool", "i": "int", "u": "int", "f": "float"}
    if set(types) - {kinds[dtype[1]]}:  # converting others, such as decimals, may take hours
        raise ArtifactError(f"the item ids are damaged: {types[0]!r:.40} does not fit {dtype}")
    ids = np.array(decoded, dtype=object).astype(dtype)
    if ids.tolist() != decoded:
        raise ArtifactError(f"the item ids are damaged: they do not fit into {dtype}")
    return ids


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ArtifactError(f"the item ids are damaged: {value!r:.40} should be a {kind.__name__}")
    return value


def _type_name(value: Any) -> str:
    for name, (kind, *_) in _TO_TEXT.items():
        if type(value) is kind:
            return name
    raise ArtifactError(
        f"item ids of type {type(value).__name__} cannot be saved; use text or numbers as ids"
    )
