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
from torch.nn.functional import softplus

from cfnade.data.rating_table import RatingTable
from cfnade.model.config import RatingConfig, TrainingConfig
from cfnade.model.network import product
from cfnade.model.rating_inference import table_rows
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

    def _train(self, run: type[RatingRun], rows: csr_array, n_levels: int) -> Self:
        config, training = (
            RatingConfig(rows.shape[1], n_levels, self.n_hidden),
            TrainingConfig.of(self),
        )
        self.rows_ = rows
        self.network_ = run_epochs(run(config, training, rows, share=False)).network
        return self

    def _scores(
        self, inputs: csr_array, table: str, rows: NDArray[Any], columns: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Scores of pairs, (n_pairs, K); the hidden layer reads `inputs` through a table."""
        weights = self.network_.weights
        hidden = expit(inputs @ weights[table] + weights["hidden_bias"])
        return self.network_.scores(hidden, columns, rows)


class AutoRec(_ItemNetwork):
    """Item-based AutoRec (Sedhain et al. 2015): `V sigmoid(W r + b) + d`, squared error."""

    def fit(self, ratings: RatingTable) -> Self:
        """Reconstruct the observed ratings of each item."""
        self.range_, self.mean_ = ratings.scale[[0, -1]], float(ratings.values.mean())
        centred = ratings.levels.astype(np.float32)
        centred.data = (ratings.values - self.mean_).astype(np.float32)
        return self._train(_AutoRecRun, csr_array(centred.T), 1)

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        found = self._scores(self.rows_, "input_weight", rows, columns)[:, 0] + self.mean_
        return np.asarray(np.clip(found, *self.range_))


class _AutoRecRun(RatingRun):
    def loss(self, levels: csr_array, rng: np.random.Generator) -> Tensor:
        W, b = (self.network.get_parameter(name) for name in ("input_weight", "hidden_bias"))
        found = self.network.scores(torch.sigmoid(product(levels, W) + b), levels)
        return 0.5 * ((found[:, 0] - torch.from_numpy(levels.data)) ** 2).sum()


class RatingRBM(_ItemNetwork):
    """Item-based RBM-CF (Salakhutdinov et al. 2007): softmax units, contrastive divergence."""

    def fit(self, ratings: RatingTable) -> Self:
        """Move the ratings of each item towards their reconstruction (CD-1)."""
        self.scale_ = ratings.scale
        return self._train(_RBMRun, csr_array(ratings.levels.T), len(self.scale_))

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        inputs = table_rows(self.rows_, len(self.scale_))
        scores = self._scores(inputs, "output_weight", rows, columns)
        return np.asarray(softmax(scores, axis=1) @ self.scale_)


class _RBMRun(RatingRun):
    def loss(self, levels: csr_array, rng: np.random.Generator) -> Tensor:
        """Free energy of the data minus that of their reconstruction: its gradient is CD-1."""
        names = ("hidden_bias", "output_weight", "output_bias")
        b, W, d = (self.network.get_parameter(name) for name in names)

        def entered_and_bias(visible: csr_array) -> tuple[Tensor, Tensor]:
            rows = table_rows(visible, self.model.n_levels)
            return product(rows, W) + b, d[torch.from_numpy(rows.indices)].sum()

        entered, bias = entered_and_bias(levels)
        generator = torch.Generator().manual_seed(int(rng.integers(1 << 62)))
        with torch.no_grad():
            hidden = torch.bernoulli(torch.sigmoid(entered), generator=generator)
            p = torch.softmax(self.network.scores(hidden, levels), 1)
            drawn = torch.multinomial(p, 1, generator=generator)[:, 0] + 1
        other = csr_array((drawn.numpy(), levels.indices, levels.indptr), levels.shape)
        entered_of_drawn, bias_of_drawn = entered_and_bias(other)
        gain = bias - bias_of_drawn + softplus(entered).sum()
        return softplus(entered_of_drawn).sum() - gain
