"""Answers queries to a trained network in batches, with one forward pass per batch.

`ImplicitCFNADE`, the service, the command line and Spark all ask here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.dials import Dials, read_dials
from cfnade.answer.explain import Describe, EffectTable, Explanation, as_numbers, effects
from cfnade.answer.filters import Items, ItemSets, Ranked, item_sets, rule_out, top_items
from cfnade.answer.probability import Calibrator
from cfnade.answer.quick import QuickNetwork
from cfnade.answer.rerank import Reranking
from cfnade.answer.shortlist import Added, Shortlist
from cfnade.answer.similar import ItemSimilarity, similar_histories
from cfnade.beyond.history_reader import HistoryReader
from cfnade.data.catalogue import Catalogue, History, Unknown
from cfnade.data.interactions import CountMatrix
from cfnade.data.pairs import keys_of, pair_keys, rows_of
from cfnade.data.ratings import likes_alone
from cfnade.errors import DataError
from cfnade.model.inference import NetworkScorer, full_dislike, with_values
from cfnade.scorer import blocks

N_BINS = 48
"""Bins of the histogram of scores."""


def _empty() -> Any:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Query:
    """One history and what is wanted for it; items are columns, each at most once in a field."""

    liked: NDArray[np.integer] = field(default_factory=_empty)
    """The history, ascending."""
    counts: NDArray[np.floating] = field(default_factory=_empty)
    """Of the liked items, above 0."""
    disliked: NDArray[np.integer] = field(default_factory=_empty)
    """Items known to be disliked, ascending, none of them liked; never recommended."""
    confidences: NDArray[np.floating] = field(default_factory=_empty)
    """Of the disliked items, at least 1."""
    n: int = 10
    """Most items to recommend."""
    only: NDArray[np.integer] | None = None
    """Items to choose from; None for all."""
    exclude: NDArray[np.integer] = field(default_factory=_empty)
    """Items never to recommend."""
    include_seen: bool = False
    """Recommend liked items as well."""
    explain: bool = False
    """Compute the effect of each entry on each recommendation."""
    spread: bool = False
    """Compute the histogram of scores."""
    reranking: Reranking | None = None
    """What the dials change; None for nothing."""


class AnswerTable(NamedTuple):
    """Recommendations for many histories: one after the other, best items first."""

    row: NDArray[np.int64]
    """Of the history, (n,) like the others."""
    column: NDArray[np.int64]
    """Of the item."""
    score: NDArray[np.float32]
    """What ranks it: a logit, with popularity and boosts if dials add them."""
    probability: NDArray[np.float64]
    """Calibrated; NaN without a calibrator and for items in the history."""

    @classmethod
    def joined(cls, parts: Iterable[AnswerTable]) -> AnswerTable:
        """Several tables, one after the other."""
        types = (np.int64, np.int64, np.float32, np.float64)
        columns: Any = zip((np.empty(0, kind) for kind in types), *parts, strict=True)
        return cls(*map(np.concatenate, columns))

    @property
    def rank(self) -> NDArray[np.int64]:
        """The item's place in its row, from 1."""
        return np.arange(1, self.row.size + 1) - np.searchsorted(self.row, self.row)


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """Recommendations for one query, best first."""

    columns: NDArray[np.int64]
    """The items, (at most n,)."""
    scores: NDArray[np.float32]
    """What ranks them: logits, with popularity and boosts if dials add them, (at most n,)."""
    probabilities: NDArray[np.float64]
    """Calibrated, (at most n,); NaN without a calibrator and for items in the history."""
    effects: EffectTable | None = None
    """Of each entry of the history on each item, if asked for."""
    spread: dict[str, Any] | None = None
    """Histogram of the scores for JSON, if asked for."""

    @property
    def table(self) -> AnswerTable:
        """The same as a table of one history."""
        row = np.zeros(self.columns.size, dtype=np.int64)
        return AnswerTable(row, self.columns, self.scores, self.probabilities)

    def to_json(self, describe: Describe) -> dict[str, Any]:
        """As docs/json.md describes it."""
        values = zip(as_numbers(self.scores), as_numbers(self.probabilities), strict=True)
        found = [
            {**describe(column), "score": score, "probability": probability}
            for column, (score, probability) in zip(self.columns.tolist(), values, strict=True)
        ]
        if self.effects is not None:
            for place, reasons in enumerate(self.effects.reasons()):
                because = [self.effects.effect(entry, place, describe) for entry in reasons]
                found[place]["because"] = because
        answer: dict[str, Any] = {"recommendations": found}
        if self.spread is not None:
            answer["spread"] = self.spread
        return answer


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers queries with a network, its catalogue and its calibrator."""

    scorer: NetworkScorer
    catalogue: Catalogue
    calibrator: Calibrator | None = None
    reader: HistoryReader = field(default_factory=HistoryReader)
    """How it reads the times and kinds of the events of a history."""

    @property
    def full_dislike(self) -> float:
        """Confidence of a dislike that weighs as much as the strongest like."""
        return full_dislike(self.scorer.network.config)

    def dislike_weight(self, n: int) -> float:
        """Usual confidence of each of n disliked items.

        A model that was trained with dislikes takes each in full. For another one, all of them
        together weigh as much as one: many would do harm (docs/decisions/0039).
        """
        if self._knows_dislikes:
            return self.full_dislike
        return max(self.full_dislike / max(n, 1), 1.0)

    # Queries by item id; `ImplicitCFNADE` describes the arguments --------------------------------

    def query(
        self,
        history: History,
        n: int = 10,
        *,
        disliked: Any = None,
        explain: bool = False,
        filter_already_liked_items: bool = True,
        filter_items: Items | None = None,
        items: Items | None = None,
        dials: Dials | None = None,
        unknown: Unknown = "raise",
    ) -> Query:
        """Read one query.

        Raises:
            DataError: If it cannot be read, or an item is both liked and disliked.
            ConfigError: If the dials contradict each other.
        """
        owned = self.owned(history)
        row = self.history(history, unknown=unknown)
        likes = likes_alone(row)
        only, never = self.filters(1, items, filter_items, unknown)
        exclude = never.of(0)
        if owned is not None and filter_already_liked_items:
            exclude = np.union1d(exclude, self.catalogue.columns(owned, unknown=unknown))
        query = Query(
            likes.indices,
            likes.data,
            n=n,
            only=None if only is None else only.of(0),
            exclude=exclude,
            include_seen=not filter_already_liked_items or owned is not None,
            explain=explain,
            reranking=self.reranking(dials, n, unknown),
        )
        if disliked is None and likes is row:
            return query
        confidences = dict.fromkeys(row.indices[row.data < 0].tolist(), self.full_dislike)
        if disliked is not None:
            row = self.catalogue.dislikes(disliked, weight=self.dislike_weight, unknown=unknown)
            both = np.intersect1d(query.liked, row.indices)
            if both.size:
                item = self.catalogue.ids[both].tolist()[0]
                raise DataError(f"item {item!r} is both in the history and disliked; decide which")
            confidences |= zip(row.indices.tolist(), row.data.tolist(), strict=True)
        columns = np.array(sorted(confidences), dtype=np.int64)
        found = np.array([confidences[column] for column in columns.tolist()])
        return replace(query, disliked=columns, confidences=found)

    def history(self, history: History, *, unknown: Unknown = "raise") -> CountMatrix:
        """A history by item id, perhaps with times and kinds, as a row of counts, (1, n_items).

        Counts below 0 are dislikes: of a sparse row, or of events whose weights sum up to that.
        """
        counts: Any = self.reader.counts(history)
        if counts is history or not isinstance(counts, Mapping):
            return self.catalogue.history(counts, unknown=unknown)
        liked = {item: count for item, count in counts.items() if count >= 0}
        row = self.catalogue.history(liked, unknown=unknown)
        negative = [item for item, count in counts.items() if count < 0]
        if not negative:
            return row
        return csr_array(row - self.catalogue.history(negative, unknown=unknown))

    def owned(self, history: Any) -> list[Hashable] | None:
        """Items of a history with the event to predict: the only ones that are not candidates.

        None if the model has no such event, or cannot score the items of a history.
        """
        return self.reader.owned(history) if self.scores_history else None

    @property
    def scores_history(self) -> bool:
        """Whether scores of items that are in the history mean something."""
        return "repeat_bias" in self.scorer.network.weights

    def filters(
        self, n_users: int, items: Items | None, filter_items: Items | None, unknown: Unknown
    ) -> tuple[ItemSets | None, ItemSets]:
        """Read `items` (None for all) and `filter_items`, by id or as masks."""
        read = partial(item_sets, catalogue=self.catalogue, n_users=n_users, unknown=unknown)
        only = None if items is None else read(items, name="items")
        return only, read([] if filter_items is None else filter_items, name="filter_items")

    def reranking(self, dials: Dials | None, n: int, unknown: Unknown) -> Reranking | None:
        """Read dials for lists of at most n items; None if they change nothing."""
        n_watchers = self.scorer.relative_rating.n_watchers
        return read_dials(dials, n, self.catalogue, n_watchers, unknown)

    # Answers -------------------------------------------------------------------------------------

    def recommend(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries in one pass of the network; no answer depends on the other queries."""
        if not queries:
            return []
        ratings, disliked = self._inputs(queries)
        network = self.scorer.network
        hidden, added = network.hidden(ratings, disliked), network.direct(ratings)
        _rule_out(queries, ratings, added)
        if any(query.include_seen for query in queries):
            counts = np.concatenate([query.counts for query in queries])
            self.score_repeats(ratings, counts, hidden, added)
        shifts = self.dislike_shifts(ratings, disliked)
        found = self._found(queries, ratings, hidden, added, shifts)
        ends = np.searchsorted(found.row, np.arange(len(queries) + 1)).tolist()
        answers = []
        for row, (start, end) in enumerate(pairwise(ends)):
            query, part = queries[row], slice(start, min(end, start + queries[row].n))
            columns = found.column[part]
            table = self.effects(query, columns, shifts[row]) if query.explain else None
            spread = self._histogram(query, hidden[[row]], added[[row]]) if query.spread else None
            scores, probabilities = found.score[part], found.probability[part]
            answers.append(Answer(columns, scores, probabilities, table, spread))
        return answers

    def _found(
        self,
        queries: Sequence[Query],
        ratings: csr_array,
        hidden: NDArray[np.float32],
        added: NDArray[np.float32],
        shifts: NDArray[np.float64],
    ) -> AnswerTable:
        """The lists of all queries; those without dials in one pass, longer than some ask for."""
        include_seen = any(query.include_seen for query in queries)
        dialled = [row for row, query in enumerate(queries) if query.reranking is not None]
        if not dialled:
            most = max(query.n for query in queries)
            return self.best(
                ratings,
                hidden,
                added.__getitem__,
                most,
                include_seen=include_seen,
                shifts=shifts,
            )
        plain = [row for row, query in enumerate(queries) if query.reranking is None]
        parts = []
        for rows in [*([row] for row in dialled), *([plain] if plain else [])]:
            found = self.best(
                ratings[rows],
                hidden[rows],
                added[rows].__getitem__,
                max(queries[row].n for row in rows),
                include_seen=include_seen,
                reranking=queries[rows[0]].reranking,
                shifts=shifts[rows],
            )
            parts.append(found._replace(row=np.array(rows)[found.row]))
        row, *others = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(row, kind="stable")
        return AnswerTable(row[order], *(values[order] for values in others))

    def best(
        self,
        ratings: csr_array,
        hidden: NDArray[np.float32],
        added: Added,
        n: int,
        *,
        include_seen: bool,
        reranking: Reranking | None = None,
        quick: QuickNetwork | None = None,
        shifts: NDArray[np.float64] | None = None,
    ) -> AnswerTable:
        """The best items of many histories.

        Args:
            ratings: Relative ratings of the likes, (n_users, n_items).
            hidden: Hidden layers, (n_users, n_hidden).
            added: What the direct path adds for some users; minus infinity for items that may not
                be recommended.
            n: Most items for each history.
            include_seen: Whether an item of a history may be recommended.
            reranking: What dials change in all of the lists.
            quick: As for `Shortlist.best`.
            shifts: What dislikes add to the log odds of probabilities, (n_users,).
        """
        if reranking is None:
            row, column, score = self._shortlist.best(hidden, added, n, quick)
            own_score = score
        else:
            (row, column, score), own_score = reranking.best(
                self._shortlist,
                self._item_similarity.between,
                hidden,
                added(slice(0, len(hidden))),
                n,
            )
        if self.calibrator is None:
            return AnswerTable(row, column, score, np.full(row.size, np.nan))
        shift = 0.0 if shifts is None else shifts[row]
        probability = self.calibrator.probability(own_score, np.diff(ratings.indptr)[row], shift)
        if include_seen:
            found = pair_keys(row, column, ratings.shape[1])
            probability[np.isin(found, keys_of(ratings))] = np.nan
        return AnswerTable(row, column, score, probability)

    def score_repeats(
        self,
        ratings: csr_array,
        counts: NDArray[np.floating],
        hidden: NDArray[np.float32],
        added: NDArray[np.float32],
    ) -> None:
        """Give the items of histories the scores of repeats, if there is a model of them.

        Args:
            ratings: Relative ratings, (n_users, n_items).
            counts: Of the same pairs, (n_pairs,).
            hidden: Hidden layers, (n_users, n_hidden).
            added: As for `best`; changed so that it adds up to those scores.
        """
        repeats = self.scorer.repeat_scores(with_values(ratings, counts))
        if repeats is None:
            return
        rows, columns, network = rows_of(ratings), ratings.indices, self.scorer.network
        own = np.einsum("ij,ij->i", network.weights["output_weight"][columns], hidden[rows])
        is_allowed = added[rows, columns] > -np.inf
        added[rows, columns] = np.where(
            is_allowed, repeats - own - network.bias[columns], np.float32(-np.inf)
        )

    def effects(
        self, query: Query, columns: NDArray[np.int64], shift: float | None = None
    ) -> EffectTable:
        """What each entry of a history does for some items, (n_asked,).

        `shift` is what its dislikes add to the log odds, if that is known already.
        """
        ratings, disliked = self._inputs([query])
        return effects(
            self.scorer.network,
            self.calibrator,
            ratings,
            columns,
            disliked,
            self.catalogue.features,
            query.counts,
            self.dislike_shift(query) if shift is None else float(shift),
        )

    def explain(self, query: Query, item: Hashable) -> Explanation:
        """What each entry of a history does for one item, by id."""
        (column,) = self.catalogue.columns([item])
        found = self.effects(query, np.array([column]))
        return found.explanation(0, column, self.catalogue.ids)

    def probability(self, query: Query) -> NDArray[np.float64]:
        """Calibrated probabilities of all items; NaN for those in the history, (n_items,)."""
        assert self.calibrator is not None
        scores = self.scorer.network.logits(*self._inputs([query]))[0]
        found = self.calibrator.probability(scores, query.liked.size, self.dislike_shift(query))
        found[query.liked] = np.nan
        return found

    def dislike_shift(self, query: Query) -> float:
        """What the dislikes of a query add to the log odds; see `dislike_shifts`."""
        return float(self.dislike_shifts(*self._inputs([query]))[0]) if query.disliked.size else 0.0

    def dislike_shifts(
        self, ratings: csr_array, disliked: csr_array | None = None
    ) -> NDArray[np.float64]:
        """What dislikes add to the log odds of the probabilities of each history, (n_users,).

        Nothing if the model was trained with dislikes: its calibrator has seen them. The arguments
        are those of `NumpyNetwork.hidden`.
        """
        shifts = np.zeros(ratings.shape[0])
        if self.calibrator is None or self._knows_dislikes:
            return shifts
        likes, network = likes_alone(ratings), self.scorer.network
        n_likes, n_disliked = np.diff(likes.indptr), np.diff(ratings.indptr)
        n_disliked = n_disliked - n_likes + (0 if disliked is None else np.diff(disliked.indptr))
        for row in np.flatnonzero(n_disliked):
            own, further = ratings[[row]], None if disliked is None else disliked[[row]]
            others = np.ones(len(self.catalogue), dtype=bool)
            others[own.indices] = False
            if further is not None:
                others[further.indices] = False
            logits = network.logits(own, further)[0, others]
            without = network.logits(likes[[row]])[0, others]
            shifts[row] = self.calibrator.shift_for(logits, without, int(n_likes[row]))
        return shifts

    @property
    def _knows_dislikes(self) -> bool:
        """Whether the model was trained with dislikes."""
        return min((self.reader.weights or {"": 0.0}).values()) < 0

    def similar_items(
        self, columns: NDArray[np.int64], n: int, only: ItemSets | None, never: ItemSets
    ) -> list[Ranked]:
        """Columns and similarities of the items most like each of some items, (n_asked,)."""
        found = []
        for rows in blocks(len(columns), len(self.catalogue)):
            similarities = self._item_similarity.of(columns[rows])
            for row, scores in enumerate(similarities, start=rows.start):
                rule_out(scores, None if only is None else only.of(row), never.of(row))
            best = top_items(similarities, n)
            found += [(top, row[top]) for row, top in zip(similarities, best, strict=True)]
        return found

    def similar_users(self, asked: CountMatrix, among: CountMatrix, n: int) -> list[Ranked]:
        """The rows of `among` whose hidden layers are most like those of each row of `asked`."""
        return similar_histories(self.scorer.hidden, asked, among, n)

    @cached_property
    def _item_similarity(self) -> ItemSimilarity:
        features = self.catalogue.features
        matrix = None if features is None else features.matrix
        return ItemSimilarity(self.scorer.network.weights["output_weight"], matrix)

    @cached_property
    def quick(self) -> QuickNetwork:
        """For blocks of histories; needs torch."""
        return QuickNetwork(self.scorer.network)

    @cached_property
    def _shortlist(self) -> Shortlist:
        return Shortlist(self.scorer.network)

    def _histogram(
        self, query: Query, hidden: NDArray[np.float32], added: NDArray[np.float32]
    ) -> dict[str, Any]:
        """Scores of all items that may be recommended, of one history.

        `hidden` is (1, n_hidden); `added`, (1, n_items), is as for `best`.
        """
        network = self.scorer.network
        scores = network.output(hidden) + network.bias + added
        if query.reranking is not None and query.reranking.shift is not None:
            scores += query.reranking.shift
        allowed = scores[scores > -np.inf]
        if not allowed.size:
            return {"low": None, "high": None, "counts": []}
        counts, edges = np.histogram(allowed, bins=N_BINS)
        low, high = as_numbers(edges[[0, -1]])
        return {"low": low, "high": high, "counts": counts.tolist()}

    def _inputs(self, queries: Sequence[Query]) -> tuple[csr_array, csr_array | None]:
        """Relative ratings, and confidences of dislikes if there are any, (n_queries, n_items)."""
        shape = (len(queries), len(self.catalogue))
        liked = np.concatenate([query.liked for query in queries])
        ends = np.cumsum([0, *(query.liked.size for query in queries)])
        counts = np.concatenate([query.counts for query in queries])
        rating = self.scorer.relative_rating.of_pairs(liked, counts)
        ratings = csr_array((rating, liked, ends), shape=shape)
        if not any(query.disliked.size for query in queries):
            return ratings, None
        disliked = np.concatenate([query.disliked for query in queries])
        ends = np.cumsum([0, *(query.disliked.size for query in queries)])
        confidences = np.concatenate([query.confidences for query in queries])
        return ratings, csr_array((confidences, disliked, ends), shape=shape)


def _rule_out(queries: Sequence[Query], ratings: csr_array, scores: NDArray[np.floating]) -> None:
    """Set scores, (n_queries, n_items), to minus infinity where a query does not allow an item."""
    row, columns = rows_of(ratings), ratings.indices
    is_left_out = ~np.array([query.include_seen for query in queries])[row]
    scores[row[is_left_out], columns[is_left_out]] = -np.inf
    for own, query in zip(scores, queries, strict=True):
        if query.only is not None or query.exclude.size or query.disliked.size:
            rule_out(own, query.only, query.exclude, query.disliked)
