"""The shape of a data set in a few figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.data.interactions import Interactions


def describe(data: Interactions) -> dict[str, Any]:
    """Sizes and the spread of counts, items per user and users per item."""
    counts = data.counts
    spreads = {
        "count": counts.data,
        "items_per_user": np.diff(counts.indptr),
        "users_per_item": np.bincount(counts.indices, minlength=data.n_items),
    }
    n_cells = data.n_users * data.n_items
    return {
        "n_users": data.n_users,
        "n_items": data.n_items,
        "n_pairs": data.n_pairs,
        "density": data.n_pairs / n_cells if n_cells else 0.0,
        "share_of_counts_above_1": float((counts.data > 1).mean()) if counts.nnz else 0.0,
    } | {
        f"{name}_{label}": float(value)
        for name, values in spreads.items()
        if values.size
        for label, value in zip(
            ("min", "median", "mean", "p99", "max"),
            (
                values.min(),
                np.median(values),
                values.mean(),
                np.percentile(values, 99),
                values.max(),
            ),
            strict=True,
        )
    }
