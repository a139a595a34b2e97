"""Which data a model was trained on, in a few figures and one checksum."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import Interactions

_CHUNK = 1 << 20  # numbers brought into one form at a time, so that memory stays small


def fingerprint(data: Interactions) -> dict[str, Any]:
    """Tell data sets apart without keeping them.

    The checksum is over the counts in their order, and over user and item ids with their types
    (7 and "7" differ). Item names are left out: they change nothing in a model. The same data
    gives the same fingerprint on every machine and in every version.

    Args:
        data: What a model is fitted on.

    Returns:
        `n_users`, `n_items`, `n_pairs`, `sum_of_counts` and `sha256`.
    """
    digest = hashlib.sha256(f"{data.n_users} {data.n_items} {data.n_pairs}\n".encode())
    for numbers, form in (
        (data.counts.indptr, "<i8"),
        (data.counts.indices, "<i8"),
        (data.counts.data, "<f8"),
    ):
        for start in range(0, len(numbers), _CHUNK):
            digest.update(numbers[start : start + _CHUNK].astype(form).tobytes())
    for ids in (data.user_ids, data.item_ids):
        for start in range(0, len(ids), _CHUNK):
            digest.update(_written(ids[start : start + _CHUNK]))
    return {
        "n_users": data.n_users,
        "n_items": data.n_items,
        "n_pairs": data.n_pairs,
        "sum_of_counts": float(data.counts.data.sum()),
        "sha256": digest.hexdigest(),
    }


def _written(ids: NDArray[Any]) -> bytes:
    """Ids one a line: `repr` tells types apart and has no line break in it."""
    if ids.dtype.kind in "mM":
        values = [f"{ids.dtype.name} {value}" for value in ids.astype(np.int64).tolist()]
    else:
        values = [f"{type(value).__name__} {value!r}" for value in ids.tolist()]
    return "".join(f"{value}\n" for value in values).encode("utf-8", "surrogatepass")
