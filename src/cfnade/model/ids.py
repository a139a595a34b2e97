"""Item ids of any common type as JSON and back, unchanged."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.errors import ArtifactError

# Ids are kept with their type, so that 7 comes back as 7 and "007" as "007".
_TO_TEXT: dict[str, tuple[type, Callable[[Any], Any], Callable[[str], Any]]] = {
    "str": (str, str, str),
    "bool": (bool, bool, bool),
    "int": (int, int, int),
    "float": (float, float, float),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
}


def encode_ids(ids: NDArray[Any]) -> dict[str, Any]:
    """Ids as JSON can hold them, with the type of each that is not the first's.

    Raises:
        ArtifactError: If an id is of a type that cannot be kept.
    """
    if ids.dtype.kind in "mM":
        text = np.datetime_as_string(ids) if ids.dtype.kind == "M" else ids.astype(np.int64)
        return {"dtype": ids.dtype.str, "types": None, "ids": text.tolist()}
    values = [v.item() if isinstance(v, np.generic) else v for v in ids.tolist()]
    types = [_type_name(value) for value in values]
    return {
        "dtype": ids.dtype.str if ids.dtype.kind in "iufbU" else "object",
        "types": sorted(set(types)) if len(set(types)) <= 1 else types,
        "ids": [_TO_TEXT[name][1](value) for name, value in zip(types, values, strict=True)],
    }


def decode_ids(encoded: Mapping[str, Any]) -> NDArray[Any]:
    """What `encode_ids` took."""
    types, values, dtype = encoded["types"], encoded["ids"], encoded["dtype"]
    if types is None:
        return np.array(values, dtype=np.dtype(dtype))
    if len(types) < len(values):
        types = list(types) * len(values)
    decoded = [_TO_TEXT[name][2](value) for name, value in zip(types, values, strict=True)]
    if dtype != "object":
        return np.array(decoded, dtype=np.dtype(dtype))
    ids = np.empty(len(decoded), dtype=object)
    ids[:] = decoded
    return ids


def _type_name(value: Any) -> str:
    for name, (kind, _, _) in _TO_TEXT.items():
        if type(value) is kind:
            return name
    raise ArtifactError(
        f"item ids of type {type(value).__name__} cannot be saved; use text or numbers as ids"
    )
