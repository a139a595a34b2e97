"""More data for a trained network: more users, longer histories, new items."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from cfnade.beyond.direct import NeighbourRegression, likes_of
from cfnade.beyond.event_kinds import target_features
from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.history_reader import HistoryReader
from cfnade.beyond.readout import Readout
from cfnade.beyond.recency import log_watchers, recent_counts, trend
from cfnade.beyond.repeats import Repeats, item_features
from cfnade.checks import check_bytes, check_choice, check_whole
from cfnade.data.catalogue import Catalogue
from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions, places_among, with_dislikes
from cfnade.data.item_features import ItemFeatures
from cfnade.data.ratings import RelativeRating, popularity_logit
from cfnade.errors import ConfigError, DataError, MissingExtraError
from cfnade.fit.cold_start import add_features
from cfnade.fit.plan import FitPlan, MemoryPlan
from cfnade.fit.settings import FitSettings
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NetworkScorer, NumpyNetwork, dislike_scale
from cfnade.progress import Callbacks
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch

logger = logging.getLogger(__name__)

TrainedItems: TypeAlias = Literal["all", "new"]
"""Which items to train on more data."""

N_EPOCHS = 10
"""Passes over more data by default."""

KEPT_RECORDS = 30
"""Records of training on more data that a model keeps."""

START_NEIGHBOURS = 20
"""Known items, most often found with a new one, whose mean it starts from."""

_ROWS = 512  # new items at once
_DIRECT_WEIGHTS = ("neighbours", "neighbour_weight")
_READOUT_WEIGHTS = (
    *_DIRECT_WEIGHTS,
    "trend",
    "mean_hidden",
    "repeat_bias",
    "repeat_weight",
)


def used_log(
    data: Interactions, catalogue: Catalogue, readout: Readout, reader: HistoryReader
) -> EventLog | None:
    """The log of a table, in the columns of a catalogue; None if the model does not use it.

    Raises:
        DataError: If its times are not those of the model.
    """
    log = data.log
    uses_times = readout.history_half_life or readout.adds_trend
    dislikes = min((reader.weights or {"": 0.0}).values()) < 0
    if log is None or not (uses_times or readout.repeats or dislikes):
        return None
    if log.clock is not None and uses_times:
        reader.check_clock(log.clock)
    column_of = places_among(data.item_ids, catalogue.ids, catalogue.column_of)
    return replace(log, item=column_of[log.item].astype(np.int32))


def extend(
    scorer: NetworkScorer,
    data: Interactions,
    settings: FitSettings,
    *,
    n_epochs: int,
    train_items: TrainedItems = "all",
    readout: Readout | None = None,
    seen: Sequence[Mapping[str, Any]] = (),
    relative_rating: RelativeRating | None = None,
    features: ItemFeatures | None = None,
    strengths: FeatureStrengths | None = None,
    callbacks: Callbacks | None = None,
) -> tuple[NetworkScorer, list[Epoch]]:
    """Train a network on more data, which may have new items at the end of its columns.

    Args:
        scorer: The network so far, with its count distributions; it is not changed.
        data: More data: columns of the network, then new items. If it has no log, known items keep
            what the readout found in one: trends, repeats, distributions of recent counts.
        settings: Of training, threads and memory; the network stays as it is.
        n_epochs: Passes over the data; 0 adds new items and trains nothing.
        train_items: `all` trains all weights; `new` only W, V and d of the new items.
        readout: What was added to the network after training.
        seen: Fingerprints of data that the network was trained on. Neighbours and repeats of known
            items are found again if this data has the most pairs and trains known items.
        relative_rating: Count distributions to use as they are, apart from new items; None goes on
            from those of the network.
        features: What is known about the items. New items need no watchers then; those that had
            none before and have some now count as new.
        strengths: How strongly features count; None for the usual ones.
        callbacks: For progress.

    Returns:
        The network with its count distributions, and all epochs.

    Raises:
        DataError: If there is nothing to learn from.
        ConfigError: If a setting is invalid.
        MissingExtraError: If torch is not installed.
        TrainingError: If the loss is no longer finite.
    """
    counts = data.counts
    if counts.nnz == 0:
        raise DataError("there is nothing to learn from: no pair has a count above 0")
    check_whole("n_epochs", n_epochs, 0)
    check_choice("train", train_items, get_args(TrainedItems))
    readout, callbacks = (readout or Readout()).or_usual(), callbacks or Callbacks()
    before, n_items = scorer.network, counts.shape[1]
    n_known = before.config.n_items
    keeps_known = train_items == "new" or n_epochs == 0
    ratings = relative_rating or scorer.relative_rating
    half_life = readout.history_half_life
    log = None if data.clock is None else data.log
    read = counts
    if half_life and log:
        read = recent_counts(log, counts.shape, half_life, data.event_weights)
    if relative_rating is None and not keeps_known and (log or not half_life):
        ratings = ratings.merged_with(RelativeRating().fit(read))
    elif ratings.n_items_ != n_items:
        ratings = ratings.followed_by(RelativeRating().fit(read))
    # Histories are read as recent counts, but the network is trained on plain ones.
    plain = RelativeRating().fit(counts) if half_life else ratings
    rated = plain.transform(counts)
    config = replace(before.config, n_items=n_items)
    plan = FitPlan.of(counts, replace(settings, memory_limit=None))  # more than is done here
    _check_memory(plan, config, settings.memory_limit)

    # The readout is not trained.
    weights = {n: np.array(w) for n, w in before.weights.items() if n not in _READOUT_WEIGHTS}
    weights = with_new_items(weights, rated)
    weights["dislike_weight"] *= np.float32(dislike_scale(before.config) / dislike_scale(config))
    epochs: list[Epoch] = []
    is_new = np.arange(n_items) >= n_known
    if features is not None:
        is_new[:n_known] = scorer.relative_rating.n_watchers == 0
    is_trained = is_new if train_items == "new" else np.ones(n_items, bool)
    is_kept = np.zeros(n_items, bool)  # with its neighbours
    with limited_threads(settings.n_threads):
        if n_epochs > 0 and is_trained.any():
            callbacks.plan({"training": 1.0}, n_epochs)
            callbacks.begin("training")
            try:
                from cfnade.model.training import train
            except ImportError as error:
                raise MissingExtraError("torch", "train", "fitting a model") from error
            trained = train(
                replace(config, n_neighbours=0),
                replace(
                    plan.training,
                    max_epochs=n_epochs,
                    patience=n_epochs,
                    schedule="constant",
                ),
                plain.transform(with_dislikes(counts, data.dislikes)),
                start=weights,
                trained_items=None if is_trained.all() else is_trained,
                on_epoch=callbacks.on_epoch,
                on_step=callbacks.on_step,
            )
            weights, epochs = dict(trained.network.weights), trained.epochs
        if config.n_neighbours:
            finds_all = plan.direct is not None and plan.has_most_pairs(seen)
            if keeps_known or not finds_all:
                is_kept = ~is_new
            weights |= _neighbours(before, rated, plan, readout, is_kept)
        if "trend" in before.weights:
            weights["trend"] = _trend(before, rated, readout, None if keeps_known else log)
        if "repeat_bias" in before.weights:
            weights["repeat_weight"] = before.weights["repeat_weight"]
            is_whole = not keeps_known and plan.has_most_pairs(seen)
            weights["repeat_bias"] = _repeat_bias(before, rated, readout, data, is_whole)
        found = NetworkScorer(NumpyNetwork(config, weights), ratings)
        if features is not None:
            now = np.bincount(counts.indices, minlength=n_items)
            found = add_features(
                found,
                features,
                strengths or FeatureStrengths(),
                histories=read,
                n_watchers=np.maximum(ratings.n_watchers, now),
                is_changed=is_new,
                gets_neighbours=~is_kept,
                n_threads=settings.n_threads,
            )
    return found, epochs


def recorded(records: Sequence[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Add a record of training on more data, and drop the oldest if there are many.

    So a job that runs every night does not let `model.json` grow. The record with the most pairs is
    kept, as `extend` compares with it. `number` counts all records, dropped ones as well.
    """
    records = [*records, {"number": n_recorded(records) + 1, **new}]
    if len(records) > KEPT_RECORDS:
        n_pairs = [record.get("data_fingerprint", {}).get("n_pairs", 0) for record in records]
        del records[1 if n_pairs[0] == max(n_pairs) else 0]
    return records


def n_recorded(records: Sequence[Mapping[str, Any]]) -> int:
    """How many there have been; earlier versions dropped none and did not number them."""
    return int(records[-1].get("number", len(records))) if records else 0


def _check_memory(plan: FitPlan, config: ModelConfig, limit: str | None) -> None:
    """Refuse what does not fit the limit of memory."""
    direct = plan.memory.direct if config.n_neighbours else 0
    needed = MemoryPlan.of(plan.n_users, plan.n_pairs, config, plan.training, direct=direct)
    logger.info("%s", needed.describe())
    if limit is not None and needed.total > check_bytes("memory_limit", limit):
        raise ConfigError(
            f"{needed.describe()}: more than the limit of {limit}; allow more, or train on fewer "
            "users at a time"
        )


def _neighbours(
    before: NumpyNetwork, rated: csr_array, plan: FitPlan, readout: Readout, is_kept: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """The direct path: some items keep their neighbours, (n_items,), the others get new ones."""
    n_items, n_neighbours = rated.shape[1], before.config.n_neighbours
    if is_kept.all():
        return {name: before.weights[name] for name in _DIRECT_WEIGHTS}
    # Without any: their neighbours are themselves, without weight.
    neighbours = np.repeat(np.arange(n_items)[:, None], n_neighbours, axis=1)
    weight = np.zeros((n_items, n_neighbours), dtype=np.float32)
    if plan.direct is not None:  # else too many items
        n_candidates = max(plan.direct.n_candidates, n_neighbours)
        regression = NeighbourRegression(rated, n_candidates, plan.direct.max_users)
        assert readout.direct_l2 is not None and readout.direct_gain is not None
        n_found = min(readout.direct_neighbours or n_neighbours, n_neighbours)  # others are alike
        found, strength = regression.neighbours(readout.direct_l2, n_found)
        neighbours[:, :n_found] = found
        weight[:, :n_found] = np.float32(readout.direct_gain) * strength
    kept = np.flatnonzero(is_kept)
    neighbours[kept], weight[kept] = (before.weights[name][kept] for name in _DIRECT_WEIGHTS)
    return dict(zip(_DIRECT_WEIGHTS, (neighbours, weight), strict=True))


def _trend(
    before: NumpyNetwork, rated: csr_array, readout: Readout, log: EventLog | None
) -> NDArray[np.float32]:
    """The trend of each item, (n_items,), found again on a log; without one known items keep it.

    A new item then gets the trend of the known items nearest to it, shifted by the difference in
    popularity.
    """
    n_items, known = rated.shape[1], before.weights["trend"]
    assert readout.trend_gain is not None and readout.popularity_gain is not None
    if log is not None:
        now, ever = (log_watchers(log, n_items, h) for h in (readout.trend_half_life or 0.0, 0.0))
        return trend(now, ever, readout.trend_gain, readout.popularity_gain)
    if n_items == len(known):
        return known
    near = _nearest_known(rated, len(known))
    watchers = np.log1p(np.bincount(rated.indices, minlength=n_items))
    more = watchers[len(known) :] - near @ watchers[: len(known)]
    new = (near @ known + readout.popularity_gain * more).astype(np.float32)
    return np.concatenate([known, new])


def _repeat_bias(
    before: NumpyNetwork, rated: csr_array, readout: Readout, data: Interactions, finds_all: bool
) -> NDArray[np.float32]:
    """Bias of a repeat of each item, (n_items,), found again or kept as `_neighbours` are.

    A new item then has the mean of the known items nearest to it, or of all.
    """
    n_items, known = rated.shape[1], before.weights["repeat_bias"]
    if finds_all and data.log is not None and readout.repeats:
        if data.target_event is not None:
            return Repeats.of(readout.repeats, target_features(data)).bias
        if data.clock is not None:
            return Repeats.of(readout.repeats, item_features(data.log, n_items)).bias
    if n_items == len(known):
        return known
    near = _nearest_known(rated, len(known))
    lacking = 1.0 - near.sum(axis=1)  # 1 without any such item
    return np.concatenate([known, (near @ known + lacking * known.mean()).astype(np.float32)])


def with_new_items(
    weights: Mapping[str, NDArray[np.float32]], ratings: csr_array
) -> dict[str, NDArray[np.float32]]:
    """Add rows for new items, from which training starts.

    A new item starts from the known items that its watchers have most: its rows of W and V are the
    mean of theirs, weighted by the cosine of their watchers; its bias is theirs, shifted by the
    difference in popularity. Without such items it starts with zeros and the logit of its share of
    watchers. Rows of A are zeros, so that known items keep their scores.

    Args:
        weights: Of the known items, by name.
        ratings: With a stored value for each like of known and new items, (n_users, n_items).

    Returns:
        Weights of all items, by name.
    """
    W, V, d = weights["like_weight"], weights["output_weight"], weights["output_bias"]
    n_known, n_new = len(d), ratings.shape[1] - len(d)
    if n_new == 0:
        return dict(weights)
    near = _nearest_known(ratings, n_known)  # (n_new, n_known)
    popularity = popularity_logit(ratings)
    new = {
        "like_weight": near @ W,
        "dislike_weight": np.zeros((n_new, W.shape[1]), dtype=np.float32),
        "output_weight": near @ V,
        "output_bias": popularity[n_known:] + near @ (d - popularity[:n_known]),
    }
    return {**weights, **{n: np.concatenate([weights[n], rows]) for n, rows in new.items()}}


def _nearest_known(ratings: csr_array, n_known: int) -> csr_array:
    """Share of each known item in the start of each new one, sparse, (n_new, n_known)."""
    likes = likes_of(ratings)
    known, new = likes[:, :n_known], likes[:, n_known:].T.tocsr()
    norm = np.sqrt(np.maximum(np.bincount(known.indices, minlength=n_known), 1))
    blocks = []
    for start in range(0, new.shape[0], _ROWS):
        together = (new[start : start + _ROWS] @ known).tocsr()  # how many watchers two share
        together.data /= norm[together.indices]
        for row in range(together.shape[0]):
            cosine = together.data[together.indptr[row] : together.indptr[row + 1]]
            if cosine.size > START_NEIGHBOURS:
                cosine[np.argpartition(cosine, -START_NEIGHBOURS)[:-START_NEIGHBOURS]] = 0.0
            cosine /= max(cosine.sum(), np.finfo(np.float32).tiny)
        together.eliminate_zeros()
        blocks.append(together)
    return csr_array(vstack(blocks, format="csr", dtype=np.float32))
