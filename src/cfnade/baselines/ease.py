"""EASE (Steck 2019) and EDLAE (Steck 2020): linear item-item models in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.support import checked_histories
from cfnade.beyond.closed_form import item_item_weights, likes_of
from cfnade.checks import check_above_zero, check_share
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.errors import TrainingError


@dataclass(eq=False)
class EASE:
    """Predicts each item from the user's other items: `scores = x B`, x binary.

    B minimises `|X - X B|^2 + regularization * |B|^2` with a zero diagonal:
    `P = inv(X^T X + regularization * I)`, `B = -P / diag(P)` by column. An empty history scores 0
    for every item.

    Args:
        regularization: From some tens for sparse data to thousands for dense data.
        max_memory_gb: `fit` refuses a catalogue that needs more; 2 GB hold 22,360 items.

    Attributes:
        item_weights_: B, how much an item of the history (row) speaks for another (column),
            (n_items, n_items).
    """

    regularization: float = 200.0
    max_memory_gb: float = 2.0
    item_weights_: NDArray[np.float32] = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> EASE:
        """Solve for B from sparse counts, (n_users, n_items); a count above 0 is a like.

        Raises:
            ConfigError: If a setting is invalid.
            TrainingError: If the catalogue is too large, or the regularization too small to
                invert the matrix.
        """
        self.item_weights_ = _solve("EASE", counts, self.regularization, 0.0, self.max_memory_gb)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        return _scores(histories, self.item_weights_)


@dataclass(eq=False)
class EDLAE:
    """Predicts each item from a history with a part of it hidden: `scores = x B`, x binary.

    The emphasised denoising linear autoencoder ("Autoencoders that don't overfit towards the
    Identity", NeurIPS 2020) with full emphasis on what is hidden:
    `P = inv(X^T X + diag(regularization + n p / (1 - p)))` with n the items' numbers of users and
    p the dropout, `B = -P / diag(P)` by column with a zero diagonal. So the L2 penalty of an
    item grows with its users; with `dropout=0` it is EASE.

    Args:
        regularization: The part of the L2 penalty that is the same for all items.
        dropout: Share of the history that is hidden, below 1.
        max_memory_gb: As for EASE.

    Attributes:
        item_weights_: B, as for EASE.
    """

    regularization: float = 200.0
    dropout: float = 0.33
    max_memory_gb: float = 2.0
    item_weights_: NDArray[np.float32] = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> EDLAE:
        """Solve for B, as EASE does."""
        self.item_weights_ = _solve(
            "EDLAE", counts, self.regularization, self.dropout, self.max_memory_gb
        )
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        return _scores(histories, self.item_weights_)


def _solve(
    model: str, counts: CountMatrix, regularization: float, dropout: float, max_memory_gb: float
) -> NDArray[np.float32]:
    check_above_zero(regularization=regularization)
    check_share(dropout=dropout)
    counts = as_count_matrix(counts)
    n_items = counts.shape[1]
    needed_gb = 4 * n_items**2 / 1e9  # one float32 array of items by items
    if needed_gb > max_memory_gb:
        raise TrainingError(
            f"{model} needs {needed_gb:.1f} GB for {n_items:,} items, above "
            f"max_memory_gb={max_memory_gb:g}; drop rare items, or raise the limit if the machine "
            "has the memory"
        )
    return item_item_weights(counts, regularization, dropout)


def _scores(histories: CountMatrix, weights: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(likes_of(checked_histories(histories, len(weights))) @ weights)
