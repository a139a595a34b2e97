"""Items that nobody has touched: what features say about them joins a fitted network."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.beyond.features import FeatureModel, FeatureStrengths, with_more_items
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.item_features import ItemFeatures
from cfnade.data.ratings import RelativeRating
from cfnade.errors import n_of
from cfnade.fit.cold_judge import ColdJudge
from cfnade.fit.plan import feature_users
from cfnade.model.inference import NetworkScorer, NumpyNetwork

logger = logging.getLogger(__name__)

L2S = (0.3, 1.0, 3.0, 10.0)
"""L2 to try."""


def add_features(
    scorer: NetworkScorer,
    features: ItemFeatures,
    strengths: FeatureStrengths,
    *,
    histories: CountMatrix | None = None,
    n_watchers: NDArray[np.integer] | None = None,
    is_changed: NDArray[np.bool_] | None = None,
    gets_neighbours: NDArray[np.bool_] | None = None,
    n_threads: int | None = None,
) -> NetworkScorer:
    """Add what is known about items to a fitted network.

    Args:
        scorer: Of the first items that the features are of.
        features: Of its items, and of further ones without watchers.
        strengths: How strongly they count.
        histories: Of users, to find the mean hidden layer, (n_users, n_known); None keeps the one
            that the network has.
        n_watchers: Of each item, (n_items,); None for those of the count distributions.
        is_changed: Items whose own weights may change, (n_items,); None for all.
        gets_neighbours: Items that get neighbours by likeness, (n_items,); None for all.
        n_threads: None takes all.

    Returns:
        A scorer of all items of the features.
    """
    n_items, ratings = features.n_items, scorer.relative_rating
    if ratings.n_items_ < n_items:
        nobody = as_count_matrix(csr_array((1, n_items), dtype=np.float64))
        ratings = ratings.followed_by(RelativeRating().fit(nobody))
    n_watchers = ratings.n_watchers if n_watchers is None else n_watchers
    model = FeatureModel(features, n_watchers, strengths.columns, n_threads=n_threads)
    network = with_more_items(scorer.network, n_items)
    network = model.with_inputs(network, strengths, is_changed)
    if histories is not None:
        some = histories[:: max(1, histories.shape[0] // feature_users(n_items))]
        some = csr_array((some.data, some.indices, some.indptr), (some.shape[0], n_items))
        hidden = NetworkScorer(network, ratings).hidden(as_count_matrix(some))
        mean = hidden.mean(axis=0, dtype=np.float64).astype(np.float32)
        network = NumpyNetwork(network.config, {**network.weights, "mean_hidden": mean})
    network = model.with_outputs(network, strengths, is_changed, gets_neighbours)
    return NetworkScorer(network, ratings)


def add_cold_items(
    scorer: NetworkScorer,
    features: ItemFeatures,
    strengths: FeatureStrengths,
    n_threads: int | None = None,
) -> NetworkScorer:
    """Add items without watchers, or predict them again; the others keep their weights.

    Arguments as for `add_features`.
    """
    is_cold = np.ones(features.n_items, dtype=np.bool_)
    is_cold[: scorer.network.config.n_items] = scorer.relative_rating.n_watchers == 0
    return add_features(
        scorer,
        features,
        strengths,
        is_changed=is_cold,
        gets_neighbours=is_cold,
        n_threads=n_threads,
    )


def find_strengths(
    scorer: NetworkScorer,
    features: ItemFeatures,
    histories: CountMatrix,
    held_out: CountMatrix,
    *,
    seed: int = 0,
    n_threads: int | None = None,
    n_watchers: NDArray[np.integer] | None = None,
) -> FeatureStrengths:
    """Find out how strongly features should count.

    The cost is MPR / nDCG@100 of held-out pairs among all unseen items, times the same of the
    held-back items among each other. In turn: weights of the table's columns and L2 of the
    regression by the second factor, then the other strengths by both.

    Args:
        scorer: The network with its readout, fitted on the histories.
        features: Of its items.
        histories: Counts, (n_users, n_items).
        held_out: Further pairs of some users, (n_users, n_items).
        seed: Of the choice of items.
        n_threads: None takes all.
        n_watchers: Of each item, (n_items,), if the histories are of some users only; None for
            those of the histories.

    Returns:
        The usual strengths if too few items have features or held-out pairs.
    """
    judge = ColdJudge(scorer, features, histories, held_out, seed, n_threads, n_watchers)
    if not judge.can_judge:
        logger.info("features count as usual: too few items to find out how much they help")
        return FeatureStrengths()
    columns = judge.find_columns()
    l2 = min(L2S, key=lambda each: judge.cost_of_held_back(columns, each))
    found = judge.find_rest(FeatureStrengths(l2=l2, columns=columns))
    logger.info(
        "features: L2 %g, level x %g, own weights count half with %s, likeness %g%s",
        found.l2,
        found.level,
        n_of(round(found.half), "watcher"),
        found.like_gain,
        "".join(f", {name} x {weight:g}" for name, weight in columns.items() if weight != 1),
    )
    return found
