"""Where training starts: the output bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.feedback import popularity_logit
from cfnade.model.config import TrainingConfig
from cfnade.model.network import CFNADENetwork


@torch.no_grad()
def start_bias(network: CFNADENetwork, training: TrainingConfig, confidence: csr_array) -> None:
    """Give a network with random weights the output bias that is asked for, in place.

    Args:
        network: To be trained.
        training: For `bias_start`.
        confidence: Of the likes that it will be trained on, sparse, (n_users, n_items).
    """
    if training.bias_start == "share":
        network.output_bias.copy_(torch.from_numpy(popularity_logit(confidence)))
    elif training.bias_start == "odds":
        network.output_bias.copy_(torch.from_numpy(confidence_odds(confidence)))


def confidence_odds(confidence: csr_array) -> NDArray[np.float64]:
    """Logit of each item's odds of confidence: the best bias there is with nothing beside it.

    Args:
        confidence: Of the likes, sparse, (n_users, n_items); users without any do not count.

    Returns:
        (n_items,).
    """
    n_users, n_items = int(np.count_nonzero(np.diff(confidence.indptr))), confidence.shape[1]
    liked = np.bincount(confidence.indices, confidence.data, minlength=n_items)
    return odds_logit(liked, np.bincount(confidence.indices, minlength=n_items), n_users)


def odds_logit(
    liked: NDArray[Any], n_watchers: NDArray[np.integer], n_users: int
) -> NDArray[np.float64]:
    """Logit of the odds of confidence, from sums over users.

    Args:
        liked: Confidence of each item's likes, added up, (n_items,).
        n_watchers: How many like it, (n_items,).
        n_users: With any like at all.

    Returns:
        (n_items,).
    """
    odds: NDArray[np.float64] = (liked + 0.5) / (n_users - n_watchers + 0.5)
    return np.log(odds)
