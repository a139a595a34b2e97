"""A data set in a few figures: `describe` for people, `fingerprint` to recognise it again."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import Interactions

_CHUNK = 1 << 20  # numbers converted at a time, to save memory


def describe(data: Interactions) -> dict[str, Any]:
    """Sizes, and the spread of counts, items per user and users per item."""
    counts = data.counts
    spreads = {
        "count": counts.data,
        "items_per_user": np.diff(counts.indptr),
        "users_per_item": np.bincount(counts.indices, minlength=data.n_items),
    }
    n_cells = data.n_users * data.n_items
    figures = _sizes(data) | {
        "density": data.n_pairs / n_cells if n_cells else 0.0,
        "share_of_counts_above_1": float((counts.data > 1).mean()) if counts.nnz else 0.0,
    }
    for name, values in spreads.items():
        if values.size:
            low, median, p99, high = np.percentile(values, [0, 50, 99, 100])
            spread = {"min": low, "median": median, "mean": values.mean(), "p99": p99, "max": high}
            figures |= {f"{name}_{label}": float(value) for label, value in spread.items()}
    return figures


def fingerprint(data: Interactions) -> dict[str, Any]:
    """Sizes and a checksum that identify a data set.

    The checksum covers the counts in their order and the ids with their types (7 and "7" differ),
    but not item names, which do not affect a model. It is the same on every machine and in every
    version.
    """
    digest = hashlib.sha256(f"{data.n_users} {data.n_items} {data.n_pairs}\n".encode())
    counts = data.counts
    for numbers, form in ((counts.indptr, "<i8"), (counts.indices, "<i8"), (counts.data, "<f8")):
        for start in range(0, len(numbers), _CHUNK):
            digest.update(numbers[start : start + _CHUNK].astype(form).tobytes())
    for ids in (data.user_ids, data.item_ids):
        for start in range(0, len(ids), _CHUNK):
            digest.update(_written(ids[start : start + _CHUNK]))
    total = float(counts.data.sum())
    return _sizes(data) | {"sum_of_counts": total, "sha256": digest.hexdigest()}


def _sizes(data: Interactions) -> dict[str, Any]:
    return {"n_users": data.n_users, "n_items": data.n_items, "n_pairs": data.n_pairs}


def _written(ids: NDArray[Any]) -> bytes:
    """One id per line: `repr` distinguishes types and contains no line break."""
    if ids.dtype.kind in "mM":
        values = [f"{ids.dtype.name} {value}" for value in ids.astype(np.int64).tolist()]
    else:
        values = [f"{type(value).__name__} {value!r}" for value in ids.tolist()]
    return "".join(f"{value}\n" for value in values).encode("utf-8", "surrogatepass")
