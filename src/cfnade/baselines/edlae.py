"""EDLAE (Steck 2020): EASE that is told not to trust an item's own presence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines._checks import check_above_zero, check_dense_memory, check_share
from cfnade.baselines._histories import checked_histories
from cfnade.beyond.closed_form import item_item_weights, likes_of
from cfnade.data.interactions import CountMatrix, as_count_matrix


class EDLAE:
    """Predicts each item from a history with a part of it hidden: `scores = x B`, x binary.

    The emphasised denoising linear autoencoder ("Autoencoders that don't overfit towards the
    Identity", NeurIPS 2020) in the limit of full emphasis on what is hidden:
    `P = inv(X^T X + diag(regularization + n p / (1 - p)))` with n the items' numbers of users and
    p the dropout, `B = -P / diag(P)` by column with a zero diagonal. So the L2 penalty of an
    item grows with how often it is seen; with `dropout=0` it is EASE. An empty history scores 0
    for every item.

    Args:
        regularization: The part of the L2 penalty that is the same for all items.
        dropout: Share of the history that is hidden, below 1.
        max_memory_gb: `fit` refuses a catalogue that needs more: 2 GB are for 22,360 items.

    Attributes:
        item_weights_: B, how much an item of the history (row) speaks for another (column),
            (n_items, n_items).
    """

    item_weights_: NDArray[np.float32]

    def __init__(
        self, regularization: float = 200.0, dropout: float = 0.33, max_memory_gb: float = 2.0
    ) -> None:
        self.regularization = regularization
        self.dropout = dropout
        self.max_memory_gb = max_memory_gb

    def fit(self, counts: CountMatrix) -> EDLAE:
        """Solve for the item-item weights; every count above zero is a like.

        Args:
            counts: Sparse, (n_users, n_items).

        Returns:
            Itself.

        Raises:
            ConfigError: If a setting has no meaning.
            TrainingError: If the catalogue is too large, or the regularization too small to
                invert the matrix.
        """
        check_above_zero("EDLAE", regularization=self.regularization)
        check_share("EDLAE", dropout=self.dropout)
        counts = as_count_matrix(counts)
        check_dense_memory("EDLAE", counts.shape[1], self.max_memory_gb)
        self.item_weights_ = item_item_weights(counts, self.regularization, self.dropout)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.item_weights_.shape[0])
        return np.asarray(likes_of(histories) @ self.item_weights_)
