"""Networks made wider: the hidden units of several side by side, and units for linear scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import csr_array

from cfnade.data.feedback import confidence
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.model.inputs import input_weight, with_values

_SPREAD = 0.1  # of what enters a linear unit: up to there a tanh is a straight line
_START_SPREAD = 0.25  # of what enters a unit that is to be trained, if it is one of all factors
_MOST_START_SPREAD = 0.5  # of the few that are kept for a narrow network: from there a tanh bends
_START_SHARE = 0.75  # of a network's units that start from linear ones; the others are random
_LEAST_VARIATION = 1e-2  # of scores, by their size: below, they tell nobody from anybody


def mean_of(networks: Sequence[NumpyNetwork]) -> NumpyNetwork:
    """One network whose logits are the mean of several: their units side by side.

    Args:
        networks: Of one configuration, without a direct path.

    Returns:
        As wide as all of them; a single one as it is.
    """
    if len(networks) == 1:
        return networks[0]
    all_weights, config = [network.weights for network in networks], networks[0].config
    weights: dict[str, NDArray[Any]] = {}
    for name in all_weights[0]:
        each = [w[name] for w in all_weights]
        if name == "output_bias":
            weights[name] = np.asarray(np.mean(each, axis=0, dtype=np.float32))
        elif name.startswith("deep_weight"):
            weights[name] = block_diag(*each)
        else:
            weights[name] = np.concatenate(each, axis=-1)
    weights["output_weight"] /= np.float32(len(networks))
    return NumpyNetwork(replace(config, n_hidden=len(networks) * config.n_hidden), weights)


def can_be_linear(config: ModelConfig) -> bool:
    """Whether a network has a place for linear units: one layer, straight at 0."""
    return config.n_layers == 1 and config.activation in ("tanh", "identity")


@dataclass(frozen=True)
class LinearUnits:
    """Scores `x P Y'` of a history x, as hidden units: P leads into them, Y out of them.

    What enters them is so small that a tanh leaves it as it is. All that a network can do, from
    explanations to a service, it does with these units as with its own.
    """

    into: NDArray[np.float32]
    """P, (n_items, n_units)."""

    out: NDArray[np.float32]
    """Y, (n_items, n_units); 0 if the scores are the same for all users and items."""

    entering: NDArray[np.float32] | None = None
    """Second moment of what enters them, (n_units, n_units); None where it is not known."""

    @classmethod
    def from_factors(
        cls, factors: NDArray[np.float32], l2: float, ratings: csr_array, config: ModelConfig
    ) -> LinearUnits:
        """Units that score as the factorisation does a user who is new to it.

        With all confidences alike a history has the factors `x Y (Y'Y + l2)^-1`, with x the input
        weights that the other hidden units see. They are scaled so that scores have a spread of 1.

        Args:
            factors: Y, of the items, (n_items, n_factors).
            l2: The larger, the less is made of a history beyond its most common traits.
            ratings: Relative ratings of users that it is scaled on, sparse, (n_users, n_items).
            config: Of the network that they will stand in.
        """
        gram = (factors.T @ factors).astype(np.float64)
        inverse = np.linalg.inv(gram + l2 * np.eye(len(gram)))
        into = (factors @ inverse).astype(np.float32)
        context = with_values(ratings, confidence(ratings.data, config.alpha))
        entering = with_values(ratings, input_weight(context, config)) @ into  # (n_users, n_units)
        scale = _SPREAD / max(float(np.sqrt(np.mean(entering**2))), 1e-12)
        second_moment = (entering.T @ entering).astype(np.float64) / max(len(entering), 1)
        mean = float(entering.mean(axis=0) @ factors.mean(axis=0))
        variance = float((second_moment * gram).sum()) / len(factors) - mean**2
        size = math.sqrt(max(variance + mean**2, 0.0))  # of the scores
        spread = math.sqrt(max(variance, 0.0))
        strength = 1.0 / (scale * spread) if spread > _LEAST_VARIATION * size else 0.0
        return cls(
            np.float32(scale) * into,
            np.float32(strength) * factors,
            (scale**2 * second_moment).astype(np.float32),
        )

    def start(
        self, n_hidden: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights into and out of the first units of a network that is to be trained.

        As many of the leading components of Y as there is room for, turned at random: no unit is
        above the others, and networks from other seeds bend them elsewhere.

        Args:
            n_hidden: Units of the network.
            rng: Of the turn.

        Returns:
            Rows of W and of V, (n_items, n_started) each; none if the scores say nothing.
        """
        if not self.out.any():
            return self.into[:, :0], self.out[:, :0]
        n_started = max(1, min(self.into.shape[1], int(_START_SHARE * n_hidden)))
        _, components = np.linalg.eigh((self.out.T @ self.out).astype(np.float64))  # ascending
        turn, _ = np.linalg.qr(rng.standard_normal((n_started, n_started)))
        turned = (components[:, -n_started:] @ turn).astype(np.float32)  # (n_units, n_started)
        scale = np.float32(_START_SPREAD / _SPREAD)
        if self.entering is not None:
            kept = float(np.sqrt(np.mean(np.sum(turned * (self.entering @ turned), axis=0))))
            scale = np.float32(min(float(scale), _MOST_START_SPREAD / max(kept, 1e-12)))
        return scale * self.into @ turned, self.out @ turned / scale

    def start_weights(
        self, weights: Mapping[str, NDArray[np.float32]], seed: int
    ) -> dict[str, NDArray[np.float32]]:
        """Weights of a network to be trained, most of its units started from these scores."""
        into, out = self.start(weights["hidden_bias"].size, np.random.default_rng([seed, 0]))
        started = {name: weight.copy() for name, weight in weights.items()}
        started["like_weight"][:, : into.shape[1]] = into
        started["output_weight"][:, : out.shape[1]] = out
        return started

    def beside(self, network: NumpyNetwork, gain: float) -> NumpyNetwork:
        """The network with these units beside its own, their scores multiplied by `gain`."""
        weights, n_units = dict(network.weights), self.into.shape[1]
        nothing = np.zeros_like(self.into)
        wider = {
            "like_weight": self.into,
            "dislike_weight": nothing,
            "hidden_bias": np.zeros(n_units, dtype=np.float32),
            "output_weight": np.float32(gain) * self.out,
        }
        for name, more in wider.items():
            weights[name] = np.concatenate([weights[name], more], axis=-1)
        config = replace(
            network.config, n_hidden=network.config.n_hidden + n_units, n_linear=n_units
        )
        return NumpyNetwork(config, weights)


def apart(
    config: ModelConfig, weights: Mapping[str, NDArray[Any]]
) -> tuple[ModelConfig, dict[str, NDArray[Any]], LinearUnits | None]:
    """A network's own units and its linear ones, their gain in them.

    Args:
        config: Of the whole network.
        weights: Of the whole network.

    Returns:
        Configuration and weights without linear units, and these, if there are any.
    """
    if not config.n_linear:
        return config, dict(weights), None
    own = slice(config.n_own)
    names = ("like_weight", "dislike_weight", "hidden_bias", "output_weight")
    without = {**weights, **{n: np.ascontiguousarray(weights[n][..., own]) for n in names}}
    rest = slice(config.n_own, None)
    units = LinearUnits(weights["like_weight"][:, rest], weights["output_weight"][:, rest])
    return replace(config, n_hidden=config.n_own, n_linear=0), without, units
