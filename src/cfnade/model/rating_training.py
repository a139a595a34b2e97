"""Training of CF-NADE for ratings: random orderings of observed ratings, in the common loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from cfnade.model.batches import identity_of
from cfnade.model.config import RatingConfig, TrainingConfig
from cfnade.model.optimizer import RowOptimizer
from cfnade.model.rating_inference import NumpyRatingNetwork
from cfnade.model.rating_network import RatingNetwork, draw_batch, effective_weights, rating_cost
from cfnade.model.training import Run


class RatingRun(Run[NumpyRatingNetwork]):
    """One training run on ratings; `run_epochs` runs it.

    Args:
        model: What the network is.
        training: How to train it; what concerns likes is not used.
        levels: Ratings from 1 to K, sparse, (n_rows, n_columns).
        share: Whether ratings share parameters; see `RatingNetwork`.
        ordinal_weight: Of the ordinal cost; see `rating_cost`.
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
        super().__init__(model, training, network, moving, key)

    @property
    def n_steps(self) -> int:
        """Updates in an epoch."""
        return self.training.updates_per_epoch(self.levels.shape[0])

    def epoch(self, on_step: Callable[[int, int], None] | None, checkpoint: Path | None) -> float:
        """One pass over all rows; the mean loss per rating."""
        rng = np.random.default_rng([self.training.seed, len(self.epochs) + 1])
        rows, size, total = rng.permutation(self.levels.shape[0]), self.training.batch_size, 0.0
        for step in range(self.n_steps):
            loss = self._update(self.levels[rows[step * size : (step + 1) * size]], rng)
            self._check_finite(loss, step + 1, checkpoint)
            total += loss
            if on_step is not None:
                on_step(step + 1, self.n_steps)
        return total / max(self.n_steps, 1)

    def _loss(self, levels: csr_array, rng: np.random.Generator) -> Tensor:
        """Cost of the ratings of a batch of rows."""
        batch = draw_batch(levels, rng)
        true = torch.from_numpy(batch.targets.data.astype(np.int64) - 1)
        cost = rating_cost(self.network(batch), true, self.ordinal_weight)
        return (torch.from_numpy(batch.weight) * cost).sum()

    def _update(self, levels: csr_array, rng: np.random.Generator) -> float:
        # By the usual number of ratings, not that of this batch: each rating counts alike.
        n_usual = levels.shape[0] * self.levels.nnz / self.levels.shape[0]
        loss = self._loss(levels, rng) / n_usual
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
        return float(loss.detach())

    def _network(self, trained: Mapping[str, Tensor]) -> NumpyRatingNetwork:
        weights = {name: weight.numpy() for name, weight in trained.items()}
        weights = effective_weights(weights, self.model.n_levels, share=self.network.share)
        return NumpyRatingNetwork(self.model, weights)

    def _data_identity(self) -> list[Any]:
        return identity_of(self.levels)
