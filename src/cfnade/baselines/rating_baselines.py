"""Other models of ratings to compare with: means, matrix factorisation, AutoRec, RBM-CF.

The two networks are item-based, and use the sparse layers of CF-NADE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit, softmax

from cfnade.data.rating_table import RatingTable
from cfnade.model.config import RatingConfig
from cfnade.model.rating_inference import NumpyRatingNetwork, table_rows


class RatingModel(Protocol):
    """A model of ratings, by row and column of a table."""

    def fit(self, ratings: RatingTable) -> Any:
        """Learn from ratings."""
        ...

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """Expected ratings of pairs, (n_pairs,)."""
        ...


@dataclass
class BiasedMeans:
    """Mean, user bias and item bias, with ridge penalty `l2`; an infinite one leaves the mean."""

    l2: float = 5.0
    n_iterations: int = 10

    def fit(self, ratings: RatingTable) -> Self:
        """Fit both biases in turn."""
        rows, columns = ratings.pairs
        self.mean_ = float(ratings.values.mean())
        places, n = (rows, columns), ratings.levels.shape
        self.biases_ = [np.zeros(n[0]), np.zeros(n[1])]
        for step in range(2 * self.n_iterations):
            own, other = step % 2, 1 - step % 2
            left = ratings.values - self.mean_ - self.biases_[other][places[other]]
            total = np.bincount(places[own], left, n[own])
            self.biases_[own] = total / (np.bincount(places[own], minlength=n[own]) + self.l2)
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """See `RatingModel`."""
        return np.asarray(self.mean_ + self.biases_[0][rows] + self.biases_[1][columns])


@dataclass
class BiasedFactors:
    """Matrix factorisation with biases, by ALS; `l2` is scaled by the ratings of each row."""

    n_factors: int = 30
    l2: float = 0.05
    n_iterations: int = 15
    random_state: int = 0

    def fit(self, ratings: RatingTable) -> Self:
        """Solve for all users, then for all items, again and again."""
        self.range_, self.mean_ = ratings.scale[[0, -1]], float(ratings.values.mean())
        left = ratings.levels.astype(np.float64)
        left.data = ratings.values - self.mean_
        both = [left, csr_array(left.T)]
        rng = np.random.default_rng(self.random_state)
        self.factors_ = [0.1 * rng.normal(size=(n, self.n_factors)) for n in left.shape]
        self.biases_ = [np.zeros(n) for n in left.shape]
        for step in range(2 * self.n_iterations):
            own, other = step % 2, 1 - step % 2
            fixed = np.pad(self.factors_[other], ((0, 0), (0, 1)), constant_values=1.0)
            matrix = both[own]
            for row in np.flatnonzero(np.diff(matrix.indptr)):
                at = slice(matrix.indptr[row], matrix.indptr[row + 1])
                known = fixed[matrix.indices[at]]  # (n_rated, n_factors + 1)
                target = matrix.data[at] - self.biases_[other][matrix.indices[at]]
                ridge = self.l2 * len(known) * np.eye(known.shape[1])
                solved = np.linalg.solve(known.T @ known + ridge, known.T @ target)
                self.factors_[own][row], self.biases_[own][row] = solved[:-1], solved[-1]
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """See `RatingModel`."""
        products = (self.factors_[0][rows] * self.factors_[1][columns]).sum(axis=1)
        found = self.mean_ + self.biases_[0][rows] + self.biases_[1][columns] + products
        return np.asarray(np.clip(found, *self.range_))


@dataclass
class _Network:
    n_hidden: int = 500
    weight_decay: float = 1e-4
    learning_rate: float = 2e-3
    batch_size: int = 512
    max_epochs: int = 80
    random_state: int = 0

    def _train(
        self, levels: csr_array, weights: dict[str, Any], gradients: Callable[..., Any]
    ) -> Any:
        """Adam on batches of rows; `gradients` fills those of a batch, the step size falls to 0."""
        import torch

        generator = torch.Generator().manual_seed(self.random_state)
        decayed = [weight for weight in weights.values() if weight.dim() == 2]
        groups = [{"params": decayed, "weight_decay": self.weight_decay}]
        groups += [{"params": [w for w in weights.values() if w.dim() == 1]}]
        adam = torch.optim.Adam(groups, lr=self.learning_rate, fused=True)
        n_rows = levels.shape[0]
        n_steps = self.max_epochs * -(-n_rows // self.batch_size)
        falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, n_steps)
        for _ in range(self.max_epochs):
            order = torch.randperm(n_rows, generator=generator).numpy()
            for start in range(0, n_rows, self.batch_size):
                gradients(levels[order[start : start + self.batch_size]], generator)
                adam.step()
                falling.step()
        return {name: weight.detach().numpy() for name, weight in weights.items()}


class AutoRec(_Network):
    """Item-based AutoRec (Sedhain et al. 2015): `W sigmoid(V r + b) + d`, squared error."""

    def fit(self, ratings: RatingTable) -> Self:
        """Reconstruct the observed ratings of each item."""
        import torch
        from torch.nn.functional import embedding_bag

        from cfnade.model.rating_network import SampledProduct

        self.scale_, self.mean_ = ratings.scale, float(ratings.values.mean())
        self.levels_, n_users = csr_array(ratings.levels.T), ratings.levels.shape[0]
        generator = torch.Generator().manual_seed(self.random_state)
        weights = {
            name: 0.01 * torch.randn(shape, generator=generator)
            for name, shape in (("V", (n_users, self.n_hidden)), ("W", (n_users, self.n_hidden)))
        }
        weights |= {"b": torch.zeros(self.n_hidden), "d": torch.zeros(n_users)}
        weights = {name: weight.requires_grad_() for name, weight in weights.items()}
        V, W, b, d = weights.values()

        def gradients(levels: csr_array, _: Any) -> None:
            columns, starts = (
                torch.from_numpy(each.astype(np.int64)) for each in (levels.indices, levels.indptr)
            )
            true = torch.from_numpy(self.scale_[levels.data - 1] - self.mean_).float()
            entered = embedding_bag(columns, V, starts[:-1], mode="sum", per_sample_weights=true)
            hidden = torch.sigmoid(entered + b)
            products: Any = SampledProduct.apply(hidden, W, levels)  # type: ignore[no-untyped-call]
            found = products[:, 0] + d[columns]
            for weight in weights.values():
                weight.grad = None
            (0.5 * ((found - true) ** 2).mean()).backward()

        rated = self.levels_[np.flatnonzero(np.diff(self.levels_.indptr))]
        self.weights_ = self._train(rated, weights, gradients)
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """See `RatingModel`."""
        values = self.levels_.astype(np.float32)
        values.data = (self.scale_[self.levels_.data - 1] - self.mean_).astype(np.float32)
        hidden = expit(values @ self.weights_["V"] + self.weights_["b"])
        found = np.einsum("nh,nh->n", hidden[columns], self.weights_["W"][rows])
        found = found + self.weights_["d"][rows] + self.mean_
        return np.asarray(np.clip(found, self.scale_[0], self.scale_[-1]), dtype=np.float64)


class RatingRBM(_Network):
    """Item-based RBM-CF (Salakhutdinov et al. 2007): softmax units, contrastive divergence."""

    def fit(self, ratings: RatingTable) -> Self:
        """Move the observed ratings of each item towards their reconstruction, CD-1."""
        import torch

        from cfnade.model.network import product, sum_rows
        from cfnade.model.rating_network import RatingNetwork, SampledProduct

        self.scale_, self.levels_ = ratings.scale, csr_array(ratings.levels.T)
        self.config_ = RatingConfig(
            self.levels_.shape[1], len(self.scale_), self.n_hidden, activation="sigmoid"
        )
        first = torch.Generator().manual_seed(self.random_state)
        network = RatingNetwork(self.config_, share=False, generator=first)
        network.start_bias(self.levels_)
        names, K = ("output_weight", "hidden_bias", "output_bias"), len(self.scale_)
        W, b, d = (network.get_parameter(name) for name in names)

        @torch.no_grad()
        def gradients(levels: csr_array, generator: torch.Generator) -> None:
            moved = [torch.zeros_like(weight) for weight in (W, b, d)]
            visible = levels
            for sign in (-1.0, 1.0):  # the data, then their reconstruction
                rows = table_rows(visible, K)
                p = torch.sigmoid(product(rows, W) + b)
                by_row = rows.tocsc()
                moved[0] += sign * sum_rows(by_row.indices, by_row.indptr[:-1], by_row.data, p)
                moved[1] += sign * p.sum(dim=0)
                moved[2] += sign * torch.from_numpy(np.diff(by_row.indptr))
                hidden = torch.bernoulli(p, generator=generator)
                products: Any = SampledProduct.apply(hidden, W, levels)  # type: ignore[no-untyped-call]
                scores = products + d.view(-1, K)[torch.from_numpy(levels.indices.astype(np.int64))]
                drawn = torch.multinomial(torch.softmax(scores, 1), 1, generator=generator) + 1
                visible = levels.copy()
                visible.data = drawn[:, 0].numpy().astype(np.uint8)
            for weight, gradient in zip((W, b, d), moved, strict=True):
                weight.grad = gradient / levels.nnz

        rated = self.levels_[np.flatnonzero(np.diff(self.levels_.indptr))]
        weights = self._train(rated, dict(zip(names, (W, b, d), strict=True)), gradients)
        self.weights_ = {**weights, "input_weight": weights["output_weight"]}
        return self

    def expected(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
        """See `RatingModel`."""
        network = NumpyRatingNetwork(self.config_, self.weights_)
        scores = network.scores(network.hidden(self.levels_), columns, rows)
        return np.asarray(softmax(scores, axis=1) @ self.scale_)
