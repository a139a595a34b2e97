"""More data for a trained network: new rows, new items, the rest kept or trained on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.readout import Readout, ReadoutConfig, ReadoutMaker
from cfnade.beyond.units import apart
from cfnade.data.feedback import popularity_logit, share_logit
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError, MissingExtraError
from cfnade.fit.memory import parse_bytes, plan_memory
from cfnade.fit.networks import NetworksConfig
from cfnade.fit.new_items import with_new_items
from cfnade.fit.pipeline import Callbacks, plain_settings, settings_of
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.model.inputs import dislike_scale
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Trained

logger = logging.getLogger(__name__)

TrainedItems: TypeAlias = Literal["all", "new"]
"""Which items' weights are moved by more data."""

N_EPOCHS = 10
"""Passes over more data, unless told otherwise."""

_READOUT_WEIGHTS = ("neighbours", "neighbour_weight")


@dataclass(frozen=True)
class Grown:
    """The outcome of training on more data."""

    scorer: NetworkScorer
    """The network and the count distributions."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs that were run."""


def grow(
    scorer: NetworkScorer,
    counts: CountMatrix,
    settings: Mapping[str, Any],
    *,
    n_epochs: int,
    train_items: TrainedItems = "all",
    readout: Readout | None = None,
    seen: Sequence[Mapping[str, Any]] = (),
    relative_rating: RelativeRating | None = None,
    callbacks: Callbacks | None = None,
) -> Grown:
    """Train a network on more data, which may have new items at the end of its columns.

    Args:
        scorer: The network so far, with its count distributions; it is not changed.
        counts: More data, (n_users, n_items): columns are those of the network, then new items.
        settings: Fields of `TrainingConfig`, `ReadoutConfig` and `NetworksConfig` by name,
            `n_threads` and `memory_limit`.
        n_epochs: Passes over the data; with 0 new items are added and nothing is trained.
        train_items: `all` trains all weights; `new` W, V and d of the new items alone.
        readout: What was added to the network after training.
        seen: Fingerprints of all data that the network was trained on, one after the other. If
            none had more pairs, and known items are not to be kept as they are, their neighbours
            are found anew in this data.
        relative_rating: Distributions to use as they are, but for new items that they lack; None
            goes on from those of the network.
        callbacks: For progress.

    Returns:
        The network and how it came about.

    Raises:
        DataError: If there is nothing to learn from.
        ConfigError: If a setting has no meaning.
        MissingExtraError: If torch is not installed.
        TrainingError: If the loss is no longer finite.
    """
    settings = plain_settings(settings)
    training = TrainingConfig(**settings_of(TrainingConfig, settings))
    NetworksConfig(**settings_of(NetworksConfig, settings))  # refuses what has no meaning
    _check(counts, n_epochs, train_items)
    readout, callbacks = readout or Readout(), callbacks or Callbacks()
    before, n_items = scorer.network, counts.shape[1]
    n_known = before.config.n_items
    keeps_known = train_items == "new" or n_epochs == 0
    ratings = relative_rating or scorer.relative_rating
    if relative_rating is None and not keeps_known:
        ratings = ratings.merged_with(RelativeRating().fit(counts))
    elif ratings.n_items_ != n_items:
        ratings = ratings.followed_by(RelativeRating().fit(counts))
    rated = ratings.transform(counts)

    # The readout is no part of what is trained: off before, on after.
    tilt = _popularity(scorer, seen, rated) * np.float32(readout.popularity_tilt)
    weights = {n: np.array(w) for n, w in before.weights.items() if n not in _READOUT_WEIGHTS}
    weights["output_bias"] -= tilt[:n_known]
    weights = with_new_items(weights, rated)
    config, weights, units = apart(replace(before.config, n_items=n_items), weights)
    _check_memory(counts, config, training, settings.get("memory_limit"))
    weights["dislike_weight"] *= np.float32(dislike_scale(before.config) / dislike_scale(config))
    # The mean of several networks has V divided by their number, where a step counts for more.
    n_networks = max(1, config.n_hidden // settings.get("n_hidden", config.n_hidden))
    training = replace(training, learning_rate=training.learning_rate / n_networks)
    epochs: list[Epoch] = []
    is_trained = np.arange(n_items) >= n_known if train_items == "new" else np.ones(n_items, bool)
    with limited_threads(settings.get("n_threads")):
        if n_epochs > 0 and is_trained.any():
            training = replace(training, max_epochs=n_epochs, patience=n_epochs)
            training = replace(training, seed=training.seed + len(seen))  # other orderings
            trained = _train()(
                replace(config, n_neighbours=0),
                training,
                rated,
                start=weights,
                trained_items=None if is_trained.all() else is_trained,
                on_epoch=callbacks.on_epoch,
                on_step=callbacks.on_step,
            )
            weights, epochs = dict(trained.network.weights), trained.epochs
        weights["output_bias"] = weights["output_bias"] + tilt
        if keeps_known:
            weights["output_bias"][:n_known] = before.weights["output_bias"]  # to the bit
        has_most = not keeps_known and all(counts.nnz >= d.get("n_pairs", 0) for d in seen)
        reading = ReadoutConfig(**settings_of(ReadoutConfig, settings))
        maker = ReadoutMaker(reading, rated, config)
        if config.n_neighbours:
            weights |= _neighbours(before, maker, readout, keep=0 if has_most else n_known)
        network = NumpyNetwork(config, weights)
        if units is not None and has_most:
            units = maker.factors.units(readout.factor_alpha)
            network = units.beside(network, readout.factor_gain)
        elif units is not None:
            network = units.beside(network, 1.0)
    return Grown(NetworkScorer(network, ratings), epochs)


def _check_memory(
    counts: CountMatrix, config: ModelConfig, training: TrainingConfig, limit: str | None
) -> None:
    """Tell what training takes of memory, and refuse what does not fit."""
    allowed = None if limit is None else parse_bytes(limit)
    has_direct = config.n_neighbours > 0
    plan = plan_memory(counts.shape[0], counts.nnz, config, training, direct=has_direct)
    logger.info("%s", plan.describe())
    if allowed is not None and plan.total > allowed:
        raise ConfigError(
            f"{plan.describe()}: more than the limit of {limit}; allow more, or train on fewer "
            "users at a time"
        )


def _train() -> Callable[..., Trained]:
    """The function that trains, which needs torch."""
    try:
        from cfnade.model.training import train
    except ImportError as error:
        raise MissingExtraError("torch", "train", "fitting a model") from error
    return train


def _popularity(
    scorer: NetworkScorer, seen: Sequence[Mapping[str, Any]], ratings: csr_array
) -> NDArray[np.float32]:
    """Popularity logit of known items in the data before, of new ones in this, (n_items,)."""
    popularity = popularity_logit(ratings)
    n_watchers = scorer.relative_rating.n_watchers
    n_users = sum(data.get("n_users", 0) for data in seen)
    n_users = max(n_users, int(n_watchers.max(initial=0)))  # where it is not known
    popularity[: len(n_watchers)] = share_logit(n_watchers, n_users)
    return popularity


def _neighbours(
    before: NumpyNetwork, maker: ReadoutMaker, readout: Readout, keep: int
) -> dict[str, NDArray[Any]]:
    """The direct path: the first `keep` items keep their neighbours, the others get new ones."""
    if keep == maker.n_items:
        return {name: before.weights[name] for name in _READOUT_WEIGHTS}
    found: tuple[NDArray[Any], ...] = maker.neighbours(readout, before.config.n_neighbours)
    both = zip(_READOUT_WEIGHTS, found, strict=True)
    return {n: np.concatenate([before.weights[n][:keep], rows[keep:]]) for n, rows in both}


def _check(counts: CountMatrix, n_epochs: int, train_items: str) -> None:
    if counts.nnz == 0:
        raise DataError("there is nothing to learn from: no pair has a count above 0")
    if isinstance(n_epochs, bool) or not isinstance(n_epochs, int | np.integer) or n_epochs < 0:
        raise ConfigError(f"n_epochs must be a whole number of at least 0, got {n_epochs!r}")
    if train_items not in get_args(TrainedItems):
        choices = " or ".join(get_args(TrainedItems))
        raise ConfigError(f"train must be {choices}, got {train_items!r}")
