"""Why an item is recommended: the exact effect of each entry of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.probability import Calibrator
from cfnade.data.item_features import ItemFeatures
from cfnade.model.inference import NumpyNetwork, dislike_scale, input_weight, rescaling_without

N_REASONS = 3
"""Most reasons that are given for a recommendation."""

Describe: TypeAlias = Callable[[int], dict[str, Any]]
"""Gives id and name of a column for JSON."""

_DECIMALS = 7  # of float32


@dataclass(frozen=True)
class Effect:
    """What one entry of a history does for an item: the value with it, minus without it."""

    item: Any
    """Id of the entry."""
    is_liked: bool
    """False for a disliked entry."""
    score: float
    """Change of the item's score; above 0 if the entry speaks for the item."""
    probability: float | None
    """Change of its probability; None if the explanation has none."""
    shared: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the entry has in common with the item: values by column of the items table."""


@dataclass(frozen=True)
class Repeat:
    """What the score of an item of the history is made of: `from_count + from_item`."""

    count: float
    """Of the item in the history, as the model reads it: recent events may weigh more."""
    from_count: float
    """What the count adds."""
    from_item: float
    """What the item adds whatever the count: how often people come back to it, or how often the
    event to predict follows, and how many people have it."""
    above: float
    """Share of the model's items that have a lower `from_item`."""


@dataclass(frozen=True)
class Explanation:
    """An item's score for a history, and the effect of each entry of the history.

    The network predicts new items. The score of an item of the history comes from the model of
    repeats: it depends on the item's own entry alone, and the effect of that entry is the
    difference to the score of the item if it were new. There is no calibrated probability for it.
    A model without repeats (`in_history`, but `repeat` is None) has not learned such scores.
    """

    item: Any
    """Id of the explained item."""
    score: float
    """Its score given the whole history: what `recommend` ranks by."""
    probability: float | None
    """Its calibrated probability; None without a calibrator, or if the item is in the history."""
    effects: tuple[Effect, ...]
    """One for each entry of the history, largest change of the score first, whatever the sign."""
    in_history: bool = False
    """Whether the item is in the history: then it has no probability."""
    repeat: Repeat | None = None
    """What its score is made of if it is in the history; None without a model of repeats."""

    def because(self, n: int = N_REASONS) -> tuple[Effect, ...]:
        """The likes that speak most for the item, at most n: "because you watched"."""
        return tuple(e for e in self.effects if e.is_liked and e.score > 0)[:n]


@dataclass(frozen=True, eq=False)
class EffectTable:
    """Effects of all entries of one history on some items."""

    entries: NDArray[np.int64]
    """Columns of the history's entries, likes before dislikes, (n_entries,)."""
    n_liked: int
    scores: NDArray[np.float32]
    """Of the items, given the whole history, (n_asked,)."""
    on_scores: NDArray[np.float32]
    """Effect of each entry on each score, (n_entries, n_asked)."""
    probabilities: NDArray[np.float64]
    """Of the items, (n_asked,); NaN where there is none."""
    on_probabilities: NDArray[np.float64]
    """Effect of each entry on each probability, (n_entries, n_asked); NaN where there is none."""
    items: NDArray[np.integer]
    """Columns of the items, (n_asked,)."""
    in_history: NDArray[np.bool_]
    """Whether each item is in the history, (n_asked,)."""
    repeats: Mapping[int, Repeat]
    """Of items of the history, by place, if the model scores them."""
    features: ItemFeatures | None = None
    """What is known about the items of the model."""

    def largest_first(self, place: int) -> list[int]:
        """Entries by the size of their effect on one of the items, whatever the sign."""
        order: list[int] = np.argsort(-np.abs(self.on_scores[:, place]), kind="stable").tolist()
        return order

    def reasons(self, n: int = N_REASONS) -> list[list[int]]:
        """For each item the likes that speak most for it, at most n."""
        found: list[list[int]] = [[] for _ in self.scores]
        left = self.on_scores[: self.n_liked].copy()
        places = np.arange(len(found))
        for _ in range(min(n, self.n_liked)):
            strongest = left.argmax(axis=0)
            for place in np.flatnonzero(left[strongest, places] > 0).tolist():
                found[place].append(int(strongest[place]))
            left[strongest, places] = -np.inf
        return found

    def explanation(self, place: int, item: int, ids: NDArray[Any]) -> Explanation:
        """The explanation of one of the items, with ids for columns."""
        order = self.largest_first(place)
        effects = zip(
            ids[self.entries[order]].tolist(),
            [entry < self.n_liked for entry in order],
            self.on_scores[order, place].tolist(),
            map(_number, self.on_probabilities[order, place]),
            [self._shared(entry, place) for entry in order],
            strict=True,
        )
        return Explanation(
            ids[[item]].tolist()[0],
            float(self.scores[place]),
            _number(self.probabilities[place]),
            tuple(Effect(*effect) for effect in effects),
            bool(self.in_history[place]),
            self.repeats.get(place),
        )

    def explained(self, place: int, item: int, describe: Describe) -> dict[str, Any]:
        """The explanation of one of the items for JSON."""
        repeat = self.repeats.get(place)
        return {
            **describe(item),
            "score": as_numbers(self.scores)[place],
            "probability": as_numbers(self.probabilities)[place],
            "in_history": bool(self.in_history[place]),
            "repeat": None
            if repeat is None
            else {name: round(value, _DECIMALS) for name, value in asdict(repeat).items()},
            "effects": [self.effect(entry, place, describe) for entry in self.largest_first(place)],
        }

    def effect(self, entry: int, place: int, describe: Describe) -> dict[str, Any]:
        """One effect for JSON (docs/json.md)."""
        return {
            **describe(int(self.entries[entry])),
            "liked": entry < self.n_liked,
            "score": round(float(self.on_scores[entry, place]), _DECIMALS),
            "probability": _number(round(float(self.on_probabilities[entry, place]), _DECIMALS)),
            **({} if self.features is None else {"shared": self._shared(entry, place)}),
        }

    def _shared(self, entry: int, place: int) -> dict[str, list[str]]:
        """What an entry has in common with one of the items."""
        if self.features is None:
            return {}
        return self.features.shared(int(self.entries[entry]), int(self.items[place]))


def effects(
    network: NumpyNetwork,
    calibrator: Calibrator | None,
    ratings: csr_array,
    items: NDArray[np.int64],
    disliked: csr_array | None = None,
    features: ItemFeatures | None = None,
    counts: NDArray[np.floating] | None = None,
    shift: float = 0.0,
) -> EffectTable:
    """Compute the exact effect of each entry; see `logits_without_each` for the arguments.

    `features` name what entries and items have in common. `counts` of the likes, (n_liked,), are
    needed to explain items of the history. `shift` is what the dislikes add to the log odds of
    probabilities; each has an equal part in it.
    """
    logits = logits_without_each(network, ratings, items, disliked)
    scores, without = logits[0], logits[1:]
    in_history = np.isin(items, ratings.indices)
    repeats: dict[int, Repeat] = {}
    if counts is not None and in_history.any() and "repeat_bias" in network.weights:
        repeats = _repeats(network, ratings, items, counts)
        own = {column: entry for entry, column in enumerate(ratings.indices.tolist())}
        for place, repeat in repeats.items():
            entry = own[int(items[place])]
            as_new = without[entry, place]
            logits[:, place] = repeat.from_count + repeat.from_item
            without[entry, place] = as_new
    entries, n_liked = ratings.indices, ratings.nnz
    if disliked is not None:
        entries = np.append(entries, disliked.indices)
    if calibrator is None:
        probabilities = np.full(scores.shape, np.nan)
        on_probabilities = np.full(without.shape, np.nan)
    else:
        is_like = np.arange(len(entries)) < n_liked  # (n_entries,)
        n_left = n_liked - is_like
        n_disliked = max(len(entries) - n_liked, 1)
        shift_left = np.where(is_like, shift, shift * (n_disliked - 1) / n_disliked)
        probabilities = calibrator.probability(scores, n_liked, shift)
        probabilities[in_history] = np.nan
        on_probabilities = probabilities - calibrator.probability(
            without, n_left[:, None], shift_left[:, None]
        )
    return EffectTable(
        entries=entries,
        n_liked=n_liked,
        scores=scores,
        on_scores=scores - without,
        probabilities=probabilities,
        on_probabilities=on_probabilities,
        items=items,
        in_history=in_history,
        repeats=repeats,
        features=features,
    )


def _repeats(
    network: NumpyNetwork,
    ratings: csr_array,
    items: NDArray[np.int64],
    counts: NDArray[np.floating],
) -> dict[int, Repeat]:
    """What the scores of items of the history are made of, by their place among `items`."""
    bias, weight = network.weights["repeat_bias"], float(network.weights["repeat_weight"][0])
    count_of = dict(zip(ratings.indices.tolist(), counts.tolist(), strict=True))
    return {
        place: Repeat(
            count := count_of[item],
            weight * float(np.log1p(count)),
            float(bias[item]),
            float(np.mean(bias < bias[item])),
        )
        for place, item in enumerate(items.tolist())
        if item in count_of
    }


def logits_without_each(
    network: NumpyNetwork,
    ratings: csr_array,
    items: NDArray[np.integer],
    disliked: csr_array | None = None,
) -> NDArray[np.float32]:
    """Logits of some items with the whole history, and without each entry of it.

    The input of the hidden layer is a sum over the history (Eq. 13). Leaving out an entry
    subtracts its term: `c W - A` of a like, `(c - 1) A` of a dislike. That takes one activation
    for each entry and one product with the items' rows of V.

    Args:
        network: A trained network.
        ratings: Relative ratings of one user, sparse, (1, n_items).
        items: Columns of the items, (n_asked,).
        disliked: Confidence of disliked items as in `NumpyNetwork.hidden`, sparse, (1, n_items).

    Returns:
        With the whole history, then without each like, then without each dislike,
        (1 + n_liked + n_disliked, n_asked).
    """
    whole = network.first_input(ratings, disliked)  # (1, n_hidden)
    context = network.context(ratings)
    c = input_weight(context, network.config).astype(np.float32)  # (n_liked,)
    W = network.weights["like_weight"][ratings.indices]  # (n_liked, n_hidden)
    A = network.weights["dislike_weight"]  # (n_items, n_hidden)
    A_scale = np.float32(dislike_scale(network.config))
    liked = c @ W  # (n_hidden,): the sum of all likes
    others = rescaling_without(context, network.config)[:, None] * (liked - c[:, None] * W)
    inputs = [whole, (whole - liked) + others + A_scale * A[ratings.indices]]
    if disliked is not None:
        share = (A_scale * (disliked.data - 1.0)).astype(np.float32)  # (n_disliked,)
        inputs.append(whole - share[:, None] * A[disliked.indices])
    rows = np.concatenate(inputs, dtype=np.float32)  # (1 + n_liked + n_disliked, n_hidden)
    hidden = network.hidden_of(rows)
    logits: NDArray[np.float32] = hidden @ network.weights["output_weight"][items].T
    logits += network.bias[items]
    if network.direct_weight is not None:
        from_each = network.direct_weight[ratings.indices][:, items].toarray()  # (n_liked, n_asked)
        logits += from_each.sum(axis=0)
        logits[1 : 1 + ratings.nnz] -= from_each
    return logits


def as_numbers(values: NDArray[np.floating]) -> list[float | None]:
    """Values for JSON: as many decimals as float32 has, None for NaN."""
    rounded: list[float] = np.asarray(values, dtype=np.float64).round(_DECIMALS).tolist()
    return [None if value != value else value for value in rounded]  # NaN is not itself


def _number(value: float) -> float | None:
    return None if value != value else float(value)
