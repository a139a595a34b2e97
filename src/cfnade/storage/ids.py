"""Item ids of any common type as JSON and back, unchanged."""

from __future__ import annotations

import decimal
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import as_objects
from cfnade.errors import ArtifactError

# Ids keep their type: 7 comes back as 7 and "007" as "007". For each type: the Python type, how to
# write it, the type of the written value, how to read it.
_TO_TEXT: dict[str, tuple[type, Callable[[Any], Any], type, Callable[[Any], Any]]] = {
    "str": (str, str, str, str),
    "bool": (bool, bool, bool, bool),
    "int": (int, int, int, int),
    "float": (float, float, float, float),
    "bytes": (bytes, bytes.hex, str, bytes.fromhex),
    "uuid": (uuid.UUID, str, str, uuid.UUID),
    "decimal": (decimal.Decimal, str, str, decimal.Decimal),
    "datetime": (datetime, datetime.isoformat, str, datetime.fromisoformat),
    "date": (date, date.isoformat, str, date.fromisoformat),
}

_NUMBERS = re.compile(r"[<>|](b1|[iu][1248]|f[248])")
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


def decode_ids(encoded: Mapping[str, Any]) -> NDArray[Any]:
    """Decode what `encode_ids` made; anything else raises `ArtifactError`."""
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
