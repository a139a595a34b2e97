"""What a trained network answers: recommendations, reasons, what is alike."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.explain import Explanation, explain
from cfnade.answer.filters import Candidates, Items, ItemSets, item_sets
from cfnade.answer.probability import Calibrator
from cfnade.answer.similar import ItemSimilarity, similar_histories
from cfnade.answer.top import Ranked, top_items
from cfnade.data.catalogue import Catalogue, History, Unknown
from cfnade.data.interactions import CountMatrix
from cfnade.errors import DataError
from cfnade.model.inference import NetworkScorer, sigmoid
from cfnade.model.inputs import full_dislike
from cfnade.scorer import BLOCK_BYTES, blocks


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of one user."""

    counts: CountMatrix
    """Of the liked items, (1, n_items)."""

    disliked: CountMatrix | None = None
    """Confidences of the disliked ones, none of which is liked, (1, n_items)."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Puts a network and its catalogue together; `ImplicitCFNADE` describes the arguments."""

    scorer: NetworkScorer
    """The network and each item's count distribution."""

    catalogue: Catalogue
    """Ids and names of the items."""

    def evidence(self, history: History, disliked: Any, unknown: Unknown) -> Evidence:
        """Read a history and dislikes by item id.

        Raises:
            DataError: If they cannot be read, or an item is in both.
        """
        counts = self.catalogue.history(history, unknown=unknown)
        if disliked is None:
            return Evidence(counts)
        weight = full_dislike(self.scorer.network.config)
        dislikes = self.catalogue.dislikes(disliked, weight=weight, unknown=unknown)
        both = np.intersect1d(counts.indices, dislikes.indices)
        if both.size:
            item = self.catalogue.ids[both].tolist()[0]
            raise DataError(f"item {item!r} is both in the history and disliked; decide which")
        return Evidence(counts, dislikes)

    def candidates(
        self,
        n_users: int,
        items: Items | None,
        filter_items: Items | None,
        unknown: Unknown,
        left_out: tuple[CountMatrix | None, ...] = (),
    ) -> Candidates:
        """Read filters; `left_out` are rows of items to leave out besides, (n_users, n_items)."""

        def read(name: str, asked: Items) -> ItemSets:
            return item_sets(asked, self.catalogue, n_users, name=name, unknown=unknown)

        never = [ItemSets.of_rows(rows) for rows in left_out if rows is not None]
        if filter_items is not None:
            never.append(read("filter_items", filter_items))
        return Candidates(None if items is None else read("items", items), never)

    def recommend(
        self,
        histories: CountMatrix,
        n: int,
        candidates: Candidates,
        disliked: CountMatrix | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> list[Ranked]:
        """The best candidates of each user with their probabilities, a block at a time.

        Args:
            histories: Counts, (n_users, n_items).
            n: Items for each at most.
            candidates: To choose from.
            disliked: Confidences, (1, n_items), where there is one user.
            block_bytes: Scores to hold at once.

        Returns:
            One answer for each user.
        """
        found = []
        for rows in blocks(histories.shape[0], histories.shape[1], block_bytes):
            ratings = self.scorer.relative_rating.transform(histories[rows])
            logits = self.scorer.network.logits(ratings, disliked)
            candidates.rule_out(logits, rows)
            for scores, top in zip(logits, top_items(logits, n), strict=True):
                found.append((self.catalogue.ids[top], sigmoid(scores[top])))
        return found

    def probability(
        self, counts: CountMatrix, calibrator: Calibrator, columns: NDArray[np.int64] | None
    ) -> NDArray[np.float64]:
        """Calibrated probabilities of some items or all, given a history, (1, n_items)."""
        scores = self.scorer.scores(counts)[0]
        found = calibrator.probability(scores, counts.nnz)
        found[counts.indices] = np.nan
        return found if columns is None else found[columns]

    def explain(self, evidence: Evidence, item: Hashable) -> Explanation:
        """What each entry of the evidence does for an item."""
        (column,) = self.catalogue.columns([item])
        ratings = self.scorer.relative_rating.transform(evidence.counts)
        return explain(self.scorer.network, self.catalogue, ratings, column, evidence.disliked)

    @cached_property
    def _item_similarity(self) -> ItemSimilarity:
        network = self.scorer.network  # linear units have a scale of their own
        return ItemSimilarity(network.weights["output_weight"][:, : network.config.n_own])

    def similar_items(
        self, columns: NDArray[np.int64], n: int, candidates: Candidates
    ) -> list[Ranked]:
        """The candidates most like each of some items, (n_asked,), a block of these at a time."""
        found = []
        for rows in blocks(len(columns), len(self.catalogue)):
            similarities = self._item_similarity.of(columns[rows])
            candidates.rule_out(similarities, rows)
            for scores, top in zip(similarities, top_items(similarities, n), strict=True):
                found.append((self.catalogue.ids[top], scores[top]))
        return found

    def similar_users(self, asked: CountMatrix, among: CountMatrix, n: int) -> list[Ranked]:
        """The rows of `among` whose hidden layers are most like those of each one asked about."""

        def hidden(histories: CountMatrix) -> NDArray[np.float32]:
            ratings = self.scorer.relative_rating.transform(histories)
            return self.scorer.network.hidden(ratings)[:, : self.scorer.network.config.n_own]

        return similar_histories(hidden, asked, among, n)
