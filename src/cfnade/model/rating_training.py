"""Training of CF-NADE for ratings: random orderings of observed ratings, in the common loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from cfnade.model.batches import identity_of
from cfnade.model.config import RatingConfig, TrainingConfig
from cfnade.model.optimizer import RowOptimizer
from cfnade.model.rating_inference import NumpyRatingNetwork
from cfnade.model.rating_network import TABLES, RatingNetwork, draw_split, rating_cost
from cfnade.model.training import Run


class RatingRun(Run[NumpyRatingNetwork]):
    """One training run on ratings from 1 to K, sparse, (n_rows, n_columns); see `run_epochs`.

    `share` is that of `RatingNetwork`, `ordinal_weight` that of `rating_cost`.
    """

    network: RatingNetwork

    def __init__(
        self,
        model: RatingConfig,
        training: TrainingConfig,
        levels: csr_array,
        *,
        share: bool = True,
        ordinal_weight: float = 1.0,
    ) -> None:
        self.model, self.ordinal_weight = model, ordinal_weight
        self.levels = levels[np.flatnonzero(np.diff(levels.indptr))]
        generator = torch.Generator().manual_seed(training.seed)
        network = RatingNetwork(model, share=share, generator=generator)
        if model.n_levels > 1:
            network.start_bias(levels)
        # Weight decay is in the gradients, as biases have none.
        moving = RowOptimizer(dict(network.named_parameters()), replace(training, weight_decay=0.0))
        key = {"share": share, "ordinal_weight": ordinal_weight}
        super().__init__(model, training, network, moving, self.levels.shape[0], key)

    def loss(self, levels: csr_array, rng: np.random.Generator) -> Tensor:
        """Cost of the ratings of a batch of rows, of which none is empty."""
        context, targets, weight = draw_split(levels, rng)
        true = torch.from_numpy(targets.data.astype(np.int64) - 1)
        cost = rating_cost(self.network(context, targets), true, self.ordinal_weight)
        return (torch.from_numpy(weight) * cost).sum()

    def _updates(self, rng: np.random.Generator) -> Iterator[float]:
        n_rows, size = self.levels.shape[0], self.training.batch_size
        rows = rng.permutation(n_rows)
        for start in range(0, n_rows, size):
            levels = self.levels[rows[start : start + size]]
            # By the usual number of ratings, not that of this batch: each rating counts alike.
            loss = self.loss(levels, rng) / (levels.shape[0] * self.levels.nnz / n_rows)
            self.network.zero_grad()
            loss.backward()
            gradients = {}
            for name, weight in self.network.named_parameters():
                if weight.grad is not None:
                    gradients[name] = weight.grad
                    if weight.dim() == 2:
                        weight.grad.add_(weight.detach(), alpha=self.training.weight_decay)
            self.optimizer.step(gradients, {}, self._learning_rate())
            self.n_updates += 1
            yield float(loss.detach())

    def _network(self, trained: Mapping[str, Tensor]) -> NumpyRatingNetwork:
        """With W^k, V^k and d^k themselves: sharing is a matter of training."""
        weights = {name: weight.numpy() for name, weight in trained.items()}
        for name in TABLES if self.network.share else ():
            steps = weights[name].reshape(self.model.n_columns, self.model.n_levels, -1)
            weights[name] = np.cumsum(steps, axis=1).reshape(weights[name].shape)
        return NumpyRatingNetwork(self.model, weights)

    def _data_identity(self) -> list[Any]:
        return identity_of(self.levels)
