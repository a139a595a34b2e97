"""CF-NADE for ratings in torch, for training (Section 3): Eq. 1-4 and the ordinal cost.

All that is large is sparse: a batch touches W^k of the ratings in its contexts, and V^k of its
targets.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from cfnade.data.pairs import pairs_where, rows_of
from cfnade.model.config import RatingConfig
from cfnade.model.network import product, sum_rows
from cfnade.model.rating_inference import table_rows

TABLES = ("input_weight", "output_weight", "output_bias")
"""W, V and d, which have a row for each column and rating."""

_FIRST = 0.01  # spread of the first weights of the tables
_PRIOR = 10.0  # ratings of everybody that are added to those of a column, for the first bias


def draw_split(
    levels: csr_array, rng: np.random.Generator
) -> tuple[csr_array, csr_array, NDArray[np.float32]]:
    """Split the ratings of each row at random: of D, a uniform number below D is the context.

    Args:
        levels: Ratings from 1 to K, sparse, (n_rows, n_columns); no row is empty.
        rng: Source of randomness.

    Returns:
        Context and targets (o of Eq. 1 before and from position i on), like `levels`, and the
        D / (D - i + 1) of each target's row, (n_targets,), as in orderless NADE.
    """
    n_rated, row = np.diff(levels.indptr), rows_of(levels)
    place = np.empty(len(row), dtype=np.int64)  # of each rating in the random order of its row
    place[np.argsort(row + rng.random(len(row)))] = np.arange(len(row)) - levels.indptr[row]
    n_context = (rng.random(len(n_rated)) * n_rated).astype(np.int64)
    is_target = place >= n_context[row]
    weight = (n_rated / (n_rated - n_context)).astype(np.float32)[row[is_target]]
    return pairs_where(levels, ~is_target), pairs_where(levels, is_target), weight


class RatingNetwork(nn.Module):
    """Holds all weights and computes the scores s^k of a batch's targets (Eq. 3).

    With sharing between ratings the tables hold the steps from one rating to the next: W^k of
    Eq. 4 is the sum of the first k, and so are V^k and d^k.
    """

    def __init__(
        self, config: RatingConfig, *, share: bool, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.config, self.share = config, share
        for name, shape in config.weight_shapes().items():
            spread = _FIRST if name in TABLES else shape[0] ** -0.5
            first = torch.zeros(shape)
            if len(shape) == 2:
                first.normal_(0.0, spread, generator=generator)
            self.register_parameter(name, nn.Parameter(first))

    def forward(self, context: csr_array, targets: csr_array) -> Tensor:
        """Scores of the targets for every rating, (n_targets, K), given those of the context."""
        config, weights = self.config, dict(self.named_parameters())
        rows = table_rows(context, config.n_levels, share=self.share)
        entered = product(rows, weights["input_weight"])
        if config.n_factors:
            entered = entered @ weights["input_mix"]
        hidden = torch.tanh(entered + weights["hidden_bias"])
        for layer in range(config.n_layers - 1):
            U, b = weights[f"deep_weight_{layer}"], weights[f"deep_bias_{layer}"]
            hidden = torch.tanh(F.linear(hidden, U, b))
        if config.n_factors:
            hidden = hidden @ weights["output_mix"]
        scores = self.scores(hidden, targets)
        return torch.cumsum(scores, dim=1) if self.share else scores

    def scores(self, hidden: Tensor, targets: csr_array) -> Tensor:
        """`d + V h` of the targets without sharing, (n_targets, K)."""
        weights = dict(self.named_parameters())
        products: Tensor = _SampledProduct.apply(hidden, weights["output_weight"], targets)
        d = weights["output_bias"].view(-1, self.config.n_levels)
        return products + d[torch.from_numpy(targets.indices.astype(np.int64))]

    def start_bias(self, levels: csr_array) -> None:
        """Start from the log of each column's frequencies, pulled to those of everybody."""
        n_columns, K = self.config.n_columns, self.config.n_levels
        places = table_rows(levels, K).indices
        counts = np.bincount(places, minlength=n_columns * K).reshape(n_columns, K)
        frequencies = counts + _PRIOR * (counts.sum(axis=0) + 1.0) / (counts.sum() + K)
        bias = np.log(frequencies / frequencies.sum(axis=1, keepdims=True))
        steps = np.diff(bias, axis=1, prepend=0.0) if self.share else bias
        with torch.no_grad():
            self.get_parameter("output_bias").copy_(torch.from_numpy(steps.ravel()))


def rating_cost(scores: Tensor, level: Tensor, ordinal_weight: float) -> Tensor:
    """Cost of each target: the negative log-likelihood of Eq. 2, the ordinal cost, or a mix.

    The ordinal cost says that ratings nearer to the true one are likelier, as two Plackett-Luce
    lists: from the true rating down to the lowest, and up to the highest.

    Args:
        scores: s^k, (n_targets, K).
        level: The true rating from 0 to K - 1, (n_targets,).
        ordinal_weight: From 0, the likelihood alone, to 1, the ordinal cost alone.
    """
    likelihood = F.cross_entropy(scores, level, reduction="none")
    if ordinal_weight == 0:
        return likelihood
    k, true = torch.arange(scores.shape[1]), level[:, None]
    down = torch.logcumsumexp(scores, dim=1) - scores
    up = torch.logcumsumexp(scores.flip(1), dim=1).flip(1) - scores
    lists = (down * (k <= true) + up * (k >= true)).sum(dim=1)
    return ordinal_weight * lists + (1.0 - ordinal_weight) * likelihood


class _SampledProduct(torch.autograd.Function):
    """Products of hidden layers with the K rows of each target's column, (n_targets, K)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, targets: csr_array) -> Tensor:
        ctx.save_for_backward(hidden, table)
        K = len(table) // targets.shape[1]
        columns = (targets.indices.astype(np.int64)[:, None] * K + np.arange(K)).ravel()
        ctx.starts, ctx.columns = K * targets.indptr.astype(np.int64), columns
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls its sparse matrices a beta
            pattern = torch.sparse_csr_tensor(
                torch.from_numpy(ctx.starts),
                torch.from_numpy(columns),
                torch.zeros(len(columns), dtype=table.dtype),
                (len(hidden), len(table)),
                check_invariants=False,
            )
            found = torch.sparse.sampled_addmm(pattern, hidden, table.T, beta=0.0)
        scores: Tensor = found.values().view(-1, K)
        return scores

    @staticmethod
    def backward(ctx: Any, *by_scores: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden, table = ctx.saved_tensors
        by_row = csr_array(
            (by_scores[0].reshape(-1).numpy(), ctx.columns, ctx.starts), (len(hidden), len(table))
        )
        by_column = by_row.tocsc()
        by_table = sum_rows(by_column.indices, by_column.indptr[:-1], by_column.data, hidden)
        return product(by_row, table), by_table, None
