"""Answers many requests in one pass of the network: its weights are read once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.filters import Candidates, ItemSets
from cfnade.answer.leave_one_out import logits_without_each
from cfnade.answer.top import top_items
from cfnade.model.inference import sigmoid
from cfnade.model.inputs import full_dislike
from cfnade.serve.loaded import LoadedModel
from cfnade.serve.wire import Evidence, ExplainRequest, RecommendRequest, SimilarRequest

N_BINS = 48
"""Of the histogram of scores."""

N_REASONS = 3
"""Items that a recommendation names as its reasons at most."""

MOST_EFFORT = 1 << 16
"""Of one pass, in the measure of `effort`: some ten milliseconds at the paper's scale."""

_DECIMALS = 7  # what float32 has


@dataclass(frozen=True, eq=False)
class _Known:
    """A request's evidence in columns, each in the order of columns."""

    liked: NDArray[np.int64]
    counts: NDArray[np.float64]
    disliked: NDArray[np.int64]
    confidences: NDArray[np.float64]
    unknown: list[str]


def effort(asked: RecommendRequest) -> int:
    """What a request takes beyond its row of the pass: effects to compute, ids to look up."""
    n_entries = len(asked.history) + len(asked.disliked)
    n_effects = n_entries * asked.n if asked.explain else 0
    return n_effects + n_entries + len(asked.exclude) + len(asked.only or ())


def recommend(loaded: LoadedModel, asked: Sequence[RecommendRequest]) -> list[dict[str, Any]]:
    """Answer requests together.

    Each answer is that of `ImplicitCFNADE.recommend_for` with `unknown="ignore"`, whatever else
    is answered in the same pass.

    Args:
        loaded: The model.
        asked: Requests that were checked.

    Returns:
        As `wire.Recommendations`, one for each.
    """
    known = [_read(loaded, request) for request in asked]
    ratings, disliked = _matrices(loaded, known)
    logits = loaded.network.logits(ratings, disliked)  # (n_asked, n_items)
    unknown = []
    for row, (request, evidence) in enumerate(zip(asked, known, strict=True)):
        candidates, strangers = _candidates(loaded, request, evidence)
        candidates.rule_out(logits[row : row + 1], slice(0, 1))
        unknown.append(list(dict.fromkeys([*evidence.unknown, *strangers])))
    best = top_items(logits, max(request.n for request in asked))
    answers = []
    for row, request in enumerate(asked):
        top = best[row][: request.n]
        found = _described(loaded, known[row], logits[row], top)
        answer: dict[str, Any] = {"recommendations": found, "unknown": unknown[row]}
        if request.explain and top.size:
            row_ratings = ratings[[row]]
            row_disliked = None if disliked is None else disliked[[row]]
            _add_reasons(loaded, found, row_ratings, top, row_disliked)
        if request.spread:
            answer["spread"] = _spread(logits[row])
        answers.append(answer)
    return answers


def explain(loaded: LoadedModel, asked: ExplainRequest) -> dict[str, Any] | None:
    """What each entry of a history does for an item.

    Returns:
        As `wire.Explanation`; None if the item is not known.
    """
    column = loaded.column_of.get(str(asked.item))
    if column is None:
        return None
    known = _read(loaded, asked)
    ratings, disliked = _matrices(loaded, [known])
    effects = _Effects(loaded, ratings, np.array([column]), disliked)
    return {
        **loaded.items[column],
        "logit": _rounded(effects.logits)[0],
        "probability": _rounded(sigmoid(effects.logits))[0],
        "effects": [effects.of(entry, 0) for entry in effects.largest_first(0)],
        "unknown": known.unknown,
    }


def similar(loaded: LoadedModel, asked: SimilarRequest) -> dict[str, Any] | None:
    """The items that are recommended to the same people.

    Returns:
        As `wire.Similar`; None if the item is not known.
    """
    column = loaded.column_of.get(str(asked.item))
    if column is None:
        return None
    excluded, unknown = loaded.columns([str(item) for item in asked.exclude])
    only, strangers = loaded.columns([str(item) for item in asked.only or []])
    ids, scores = loaded.model.similar_items(
        loaded.ids[column],
        asked.n,
        filter_items=[loaded.ids[c] for c in (column, *excluded)],
        items=None if asked.only is None else [loaded.ids[c] for c in only],
    )
    place = loaded.model.catalogue_.column_of
    found = [
        {**loaded.items[place[item]], "similarity": score}
        for item, score in zip(ids.tolist(), _rounded(scores), strict=True)
    ]
    return {
        **loaded.items[column],
        "similar": found,
        "unknown": list(dict.fromkeys([*unknown, *strangers])),
    }


def _read(loaded: LoadedModel, evidence: Evidence) -> _Known:
    dislikes = evidence.dislikes() if evidence.disliked else {}
    strongest = full_dislike(loaded.network.config)
    weights = [strongest if weight is None else weight for weight in dislikes.values()]
    liked, counts, unknown = _by_column(loaded, list(evidence.history), evidence.history.values())
    disliked, confidences, strangers = _by_column(loaded, list(dislikes), weights)
    return _Known(liked, counts, disliked, confidences, unknown + strangers)


def _by_column(
    loaded: LoadedModel, items: list[str], values: Iterable[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[str]]:
    """Values above 0 of the known items in the order of columns, and the items not known."""
    if not items:
        return np.empty(0, dtype=np.int64), np.empty(0), []
    places = map(loaded.column_of.get, items, repeat(-1))
    columns = np.fromiter(places, dtype=np.int64, count=len(items))
    value = np.fromiter(values, dtype=np.float64, count=len(items))
    is_known = columns >= 0
    unknown = [] if is_known.all() else [items[i] for i in np.flatnonzero(~is_known)]
    kept = np.flatnonzero(is_known & (value > 0))
    kept = kept[np.argsort(columns[kept])]
    return columns[kept], value[kept], unknown


def _matrices(loaded: LoadedModel, known: list[_Known]) -> tuple[csr_array, csr_array | None]:
    """Relative ratings, and confidences of dislikes if there are any, (n_asked, n_items)."""
    shape = (len(known), loaded.n_items)
    liked = np.concatenate([k.liked for k in known])
    ends = np.cumsum([0, *(k.liked.size for k in known)])
    rating = loaded.model.scorer_.relative_rating.of_pairs(
        liked, np.concatenate([k.counts for k in known])
    )
    ratings = csr_array((rating, liked, ends), shape=shape)
    if not any(k.disliked.size for k in known):
        return ratings, None
    disliked = np.concatenate([k.disliked for k in known])
    confidences = np.concatenate([k.confidences for k in known])
    ends = np.cumsum([0, *(k.disliked.size for k in known)])
    return ratings, csr_array((confidences, disliked, ends), shape=shape)


def _candidates(
    loaded: LoadedModel, request: RecommendRequest, known: _Known
) -> tuple[Candidates, list[str]]:
    """What may be recommended, and what the filters name that is not known."""
    excluded, strangers = loaded.columns([str(item) for item in request.exclude])
    left_out = [known.disliked, np.array(excluded, dtype=np.int64)]
    if not request.include_seen:
        left_out.append(known.liked)
    candidates = Candidates(None, [ItemSets(np.concatenate(left_out))])
    if request.only is not None:
        only, more = loaded.columns([str(item) for item in request.only])
        chosen = ItemSets(np.array(only, dtype=np.int64))
        return Candidates(chosen, candidates.left_out), strangers + more
    return candidates, strangers


def _described(
    loaded: LoadedModel, known: _Known, logits: NDArray[np.float32], top: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """The best items, with the values that people are shown."""
    found = [
        {**loaded.items[column], "probability": probability}
        for column, probability in zip(top.tolist(), _rounded(sigmoid(logits[top])), strict=True)
    ]
    calibrator = loaded.model.calibrator_
    if calibrator is not None and not known.disliked.size:  # it was fitted on likes alone
        honest = _rounded(calibrator.probability(logits[top], known.liked.size))
        is_seen = np.isin(top, known.liked)  # there is none for an item of the history itself
        for entry, value, seen in zip(found, honest, is_seen, strict=True):
            if not seen:
                entry["calibrated"] = value
    return found


class _Effects:
    """What each entry of one history does for some items."""

    def __init__(
        self,
        loaded: LoadedModel,
        ratings: csr_array,
        items: NDArray[np.int64],
        disliked: csr_array | None,
    ) -> None:
        logits = logits_without_each(loaded.network, ratings, items, disliked)
        self.loaded = loaded
        self.logits, without = logits[0], logits[1:]  # (n_asked,), (n_entries, n_asked)
        self.of_logit = self.logits - without
        self.of_probability = sigmoid(self.logits) - sigmoid(without)
        self.of_calibrated: NDArray[np.float64] | None = None
        calibrator, n_history = loaded.model.calibrator_, ratings.nnz
        if calibrator is not None and (disliked is None or not disliked.nnz):
            shorter = calibrator.probability(without, n_history - 1)
            self.of_calibrated = calibrator.probability(self.logits, n_history) - shorter
        self.is_seen = np.isin(items, ratings.indices)
        columns = [*ratings.indices, *([] if disliked is None else disliked.indices)]
        self.columns = [int(column) for column in columns]
        self.n_liked = ratings.nnz

    def largest_first(self, place: int) -> list[int]:
        """Entries by the size of what they do for one of the items, whatever the sign."""
        order = np.argsort(-np.abs(self.of_logit[:, place]), kind="stable")
        return [int(entry) for entry in order]

    def of(self, entry: int, place: int) -> dict[str, Any]:
        """What one entry does for one of the items, as `wire.Effect`."""
        effect = {
            **self.loaded.items[self.columns[entry]],
            "liked": entry < self.n_liked,
            "logit": round(float(self.of_logit[entry, place]), _DECIMALS),
            "probability": round(float(self.of_probability[entry, place]), _DECIMALS),
        }
        if self.of_calibrated is not None and not self.is_seen[place]:
            effect["calibrated"] = round(float(self.of_calibrated[entry, place]), _DECIMALS)
        return effect


def _add_reasons(
    loaded: LoadedModel,
    found: list[dict[str, Any]],
    ratings: csr_array,
    top: NDArray[np.int64],
    disliked: csr_array | None,
) -> None:
    """Tell with each item the likes that speak most for it."""
    effects = _Effects(loaded, ratings, top, disliked)
    for entry in found:
        entry["because"] = []
    left = effects.of_logit[: effects.n_liked].copy()  # (n_liked, n_asked)
    places = np.arange(top.size)
    for _ in range(min(N_REASONS, effects.n_liked)):
        strongest = left.argmax(axis=0)
        for place in np.flatnonzero(left[strongest, places] > 0).tolist():
            found[place]["because"].append(effects.of(int(strongest[place]), place))
        left[strongest, places] = -np.inf


def _spread(logits: NDArray[np.float32]) -> dict[str, Any]:
    """A histogram of what may be recommended, as `wire.Spread`."""
    scores = logits[logits > -np.inf]
    if not scores.size:
        return {"low": None, "high": None, "counts": []}
    counts, edges = np.histogram(scores, bins=N_BINS)
    return {
        "low": round(float(edges[0]), _DECIMALS),
        "high": round(float(edges[-1]), _DECIMALS),
        "counts": counts.tolist(),
    }


def _rounded(values: NDArray[np.floating]) -> list[float]:
    """As many decimals as there are, so that JSON is not filled with noise."""
    rounded: list[float] = np.asarray(values, dtype=np.float64).round(_DECIMALS).tolist()
    return rounded
