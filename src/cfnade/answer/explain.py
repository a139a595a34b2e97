"""Why an item is recommended: what each entry of the history does for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cfnade.answer.leave_one_out import leave_one_out
from cfnade.data.catalogue import Catalogue
from cfnade.model.inference import NumpyNetwork, sigmoid


@dataclass(frozen=True)
class Effect:
    """What one entry of a history does for an item: with it, less without it."""

    item: Any
    """Id of the entry."""

    is_liked: bool
    """False for an entry that was given as disliked."""

    logit: float
    """Difference of the item's logit; above 0 if the entry speaks for the item."""

    probability: float
    """Difference of its probability."""


@dataclass(frozen=True)
class Explanation:
    """An item's score for a history, and the effect of leaving out each entry of it."""

    item: Any
    """Id of the item explained."""

    logit: float
    """Its score given the whole history."""

    probability: float
    """The sigmoid of that: what `recommend` gives."""

    effects: tuple[Effect, ...]
    """One for each entry of the history, the largest first, whatever the sign."""

    def because(self, n: int = 3) -> tuple[Effect, ...]:
        """The likes that speak most for the item, at most n: "because you watched"."""
        return tuple(e for e in self.effects if e.is_liked and e.logit > 0)[:n]


def explain(
    network: NumpyNetwork,
    catalogue: Catalogue,
    ratings: csr_array,
    column: int,
    disliked: csr_array | None = None,
) -> Explanation:
    """Explain one item for one history.

    Args:
        network: The trained network.
        catalogue: Of its items.
        ratings: Relative ratings of the history, sparse, (1, n_items).
        column: Of the item to explain.
        disliked: Confidences of disliked items, sparse, (1, n_items).

    Returns:
        The explanation; exact, not an approximation.
    """
    found = leave_one_out(network, ratings, column, disliked)
    columns = ratings.indices if disliked is None else np.append(ratings.indices, disliked.indices)
    without = np.append(found.without_liked, found.without_disliked)  # (n_entries,)
    logit = np.float32(found.logit)
    probability = sigmoid(np.asarray(logit))
    of_logit, of_probability = logit - without, probability - sigmoid(without)
    is_liked = np.arange(columns.size) < ratings.nnz
    ids = catalogue.ids[columns].tolist()
    effects = tuple(
        Effect(ids[e], bool(is_liked[e]), float(of_logit[e]), float(of_probability[e]))
        for e in np.argsort(-np.abs(of_logit), kind="stable")
    )
    item = catalogue.ids[[column]].tolist()[0]
    return Explanation(item, float(logit), float(probability), effects)
