"""Ratings with planted tastes, and settings of a small model for them."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array


def planted_ratings(seed=0, n_users=60, n_items=40, share=0.5):
    """Stars of two tastes: half of the users love half of the items; about half are rated."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((n_users, n_items))
    stars = np.where(rows % 2 == columns % 2, 4, 2) + rng.integers(-1, 2, size=rows.shape)
    return csr_array(stars * (rng.random(rows.shape) < share))


SMALL = {
    "n_hidden": 16,
    "max_epochs": 50,
    "batch_size": 16,
    "learning_rate": 0.02,
    "validation_share": 0.05,
}
