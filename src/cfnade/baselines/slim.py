"""SLIM (Ning and Karypis 2011): a sparse, non-negative linear item-item model, by `irspack`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.support import checked_histories, library, plain_csr
from cfnade.beyond.direct import likes_of
from cfnade.checks import check_above_zero
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.threads import available_threads


@dataclass(eq=False)
class SLIM:
    """Predicts each item from the user's other items: `scores = x B`, x binary, B sparse.

    B minimises `1/2 |X - X B|^2 + l2 / 2 |B|^2 + l1 |B|_1` with a zero diagonal and no entry
    below 0, by coordinate descent, column by column. An empty history scores 0 for every item.

    Args:
        l1: L1 penalty, above 0: the larger, the fewer neighbours an item has.
        l2: L2 penalty, above 0.
        max_passes: Passes over the items of a column at most.
        tolerance: A column is done when no entry moves by more.
        n_threads: For `irspack`; None uses all available ones.

    Attributes:
        item_weights_: B, sparse, (n_items, n_items).
    """

    l1: float = 1.0
    l2: float = 100.0
    max_passes: int = 50
    tolerance: float = 1e-4
    n_threads: int | None = None
    item_weights_: Any = field(init=False, repr=False)

    def fit(self, counts: CountMatrix) -> SLIM:
        """Solve for B from sparse counts, (n_users, n_items); a count above 0 is a like."""
        check_above_zero(l1=self.l1, l2=self.l2, max_passes=self.max_passes)
        counts = as_count_matrix(counts)
        both = self.l1 + self.l2
        slim = library("irspack.recommenders", "the SLIM baseline").SLIMRecommender(
            plain_csr(counts, 1.0, np.float64),
            alpha=both / counts.shape[0],  # irspack's penalties are per user
            l1_ratio=self.l1 / both,
            n_iter=self.max_passes,
            tol=self.tolerance,
            n_threads=self.n_threads or available_threads(),
        )
        slim.learn()
        self.item_weights_ = slim.W.tocsr().astype(np.float32)
        return self

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        histories = checked_histories(histories, self.item_weights_.shape[0])
        return np.asarray((likes_of(histories) @ self.item_weights_).toarray())
