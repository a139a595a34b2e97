"""Item-based AutoRec and RBM-CF, on the sparse layers and in the training loop of CF-NADE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit, softmax
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from cfnade.data.rating_table import RatingTable
from cfnade.model.config import RatingConfig, TrainingConfig
from cfnade.model.rating_inference import table_rows
from cfnade.model.rating_network import sampled_product
from cfnade.model.rating_training import RatingRun
from cfnade.model.training import run_epochs


@dataclass
class _ItemNetwork:
    n_hidden: int = 500
    weight_decay: float = 2.5e-4
    learning_rate: float = 2e-3
    batch_size: int = 512
    max_epochs: int = 80
    random_state: int = 0

    def _train(self, run: type[RatingRun], levels: csr_array, n_levels: int) -> None:
        config = RatingConfig(levels.shape[1], n_levels, self.n_hidden, activation="sigmoid")
        self.network_ = run_epochs(
            run(config, TrainingConfig.of(self), levels, share=False)
        ).network


class AutoRec(_ItemNetwork):
    """Item-based AutoRec (Sedhain et al. 2015): `V sigmoid(W r + b) + d`, squared error."""

    def fit(self, ratings: RatingTable) -> Self:
        """Reconstruct the observed ratings of each item."""
        self.range_, self.mean_ = ratings.scale[[0, -1]], float(ratings.values.mean())
        centred = ratings.levels.astype(np.float32)
        centred.data = (ratings.values - self.mean_).astype(np.float32)
        self.rows_ = csr_array(centred.T)
        self._train(_AutoRecRun, self.rows_, 1)
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        weights = self.network_.weights
        hidden = expit(self.rows_ @ weights["input_weight"] + weights["hidden_bias"])
        products = self.network_.scores(hidden, columns, rows)[:, 0]
        return np.asarray(np.clip(products + self.mean_, *self.range_))


class _AutoRecRun(RatingRun):
    def _loss(self, levels: csr_array, rng: np.random.Generator) -> Tensor:
        W, b, V, d = (weight for _, weight in self.network.named_parameters())
        columns, starts = (
            torch.from_numpy(each.astype(np.int64)) for each in (levels.indices, levels.indptr)
        )
        true = torch.from_numpy(levels.data)
        entered = embedding_bag(columns, W, starts[:-1], mode="sum", per_sample_weights=true)
        products = sampled_product(torch.sigmoid(entered + b), V, levels)
        errors = products[:, 0] + d[columns] - true
        return 0.5 * (errors**2).sum()


class RatingRBM(_ItemNetwork):
    """Item-based RBM-CF (Salakhutdinov et al. 2007): softmax units, contrastive divergence."""

    def fit(self, ratings: RatingTable) -> Self:
        """Move the ratings of each item towards their reconstruction (CD-1)."""
        self.scale_, self.levels_ = ratings.scale, csr_array(ratings.levels.T)
        self._train(_RBMRun, self.levels_, len(self.scale_))
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        W, b = (self.network_.weights[name] for name in ("output_weight", "hidden_bias"))
        hidden = expit(table_rows(self.levels_, len(self.scale_)) @ W + b)
        return np.asarray(
            softmax(self.network_.scores(hidden, columns, rows), axis=1) @ self.scale_
        )


class _RBMRun(RatingRun):
    def _loss(self, levels: csr_array, rng: np.random.Generator) -> Tensor:
        """Free energy of the data minus that of their reconstruction: its gradient is CD-1."""
        _, b, W, d = (weight for _, weight in self.network.named_parameters())
        K = self.model.n_levels

        def entered_and_bias(visible: csr_array) -> tuple[Tensor, Tensor]:
            rows = table_rows(visible, K)
            indices, starts = (torch.from_numpy(each) for each in (rows.indices, rows.indptr))
            return embedding_bag(indices, W, starts[:-1], mode="sum") + b, d[indices].sum()

        entered, bias = entered_and_bias(levels)
        generator = torch.Generator().manual_seed(int(rng.integers(1 << 62)))
        with torch.no_grad():
            hidden = torch.bernoulli(torch.sigmoid(entered), generator=generator)
            scores = sampled_product(hidden, W, levels)
            scores += d.view(-1, K)[torch.from_numpy(levels.indices.astype(np.int64))]
            drawn = torch.multinomial(torch.softmax(scores, 1), 1, generator=generator) + 1
        other = csr_array((drawn[:, 0].numpy(), levels.indices, levels.indptr), levels.shape)
        entered_of_drawn, bias_of_drawn = entered_and_bias(other)
        gain = bias - bias_of_drawn + softplus(entered).sum()
        return softplus(entered_of_drawn).sum() - gain
