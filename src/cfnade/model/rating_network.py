"""CF-NADE for ratings in torch, for training (Section 3): Eq. 1-4 and the ordinal cost.

All that is large is sparse: a batch touches W^k of the ratings in its contexts, and V^k of its
targets.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from cfnade.model.config import RatingConfig
from cfnade.model.network import ACTIVATIONS, product, sum_rows
from cfnade.model.rating_inference import table_rows

_TABLES = ("input_weight", "output_weight", "output_bias")  # W, V and d, by column and rating
_FIRST = 0.01  # spread of the first weights of the tables
_PRIOR = 10.0  # ratings of everybody that are added to those of a column, for the first bias


@dataclass(frozen=True)
class RatingBatch:
    """Rows whose ratings are split into context and targets at random (o of Eq. 1)."""

    context: csr_array
    """Ratings from 1 to K, sparse, (n_rows, n_columns)."""

    targets: csr_array
    """Likewise."""

    weight: NDArray[np.float32]
    """D / (D - i + 1) of each target's row, (n_targets,), as in orderless NADE."""


def draw_batch(levels: csr_array, rng: np.random.Generator) -> RatingBatch:
    """Split the ratings of each row: of D, a uniform number from 0 to D - 1 is the context.

    Args:
        levels: Ratings from 1 to K, sparse, (n_rows, n_columns); no row is empty.
        rng: Source of randomness.
    """
    n_rated = np.diff(levels.indptr)
    row = np.repeat(np.arange(len(n_rated)), n_rated)
    place = np.empty(len(row), dtype=np.int64)  # of each rating in the random order of its row
    place[np.argsort(row + rng.random(len(row)))] = np.arange(len(row)) - levels.indptr[row]
    n_context = (rng.random(len(n_rated)) * n_rated).astype(np.int64)
    is_target = place >= n_context[row]

    def part(keep: NDArray[np.bool_]) -> csr_array:
        ends = np.concatenate([[0], np.cumsum(keep)])[levels.indptr]
        return csr_array((levels.data[keep], levels.indices[keep], ends), levels.shape)

    weight = (n_rated / (n_rated - n_context)).astype(np.float32)[row[is_target]]
    return RatingBatch(part(~is_target), part(is_target), weight)


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
            spread = _FIRST if name in _TABLES else shape[0] ** -0.5
            first = torch.zeros(shape)
            if len(shape) == 2:
                first.normal_(0.0, spread, generator=generator)
            self.register_parameter(name, nn.Parameter(first))

    def forward(self, batch: RatingBatch) -> Tensor:
        """Scores of the targets for every rating, (n_targets, K)."""
        config, g = self.config, ACTIVATIONS[self.config.activation]
        weights: dict[str, Any] = dict(self.named_parameters())
        rows = table_rows(batch.context, config.n_levels, share=self.share)
        indices, starts = (torch.from_numpy(each) for each in (rows.indices, rows.indptr[:-1]))
        entered = F.embedding_bag(indices, weights["input_weight"], starts, mode="sum")
        if config.n_factors:
            entered = entered @ weights["input_mix"]
        hidden = g(entered + weights["hidden_bias"])
        for layer in range(config.n_layers - 1):
            deep = weights[f"deep_weight_{layer}"], weights[f"deep_bias_{layer}"]
            hidden = g(F.linear(hidden, *deep))
        if config.n_factors:
            hidden = hidden @ weights["output_mix"]
        scores = sampled_product(hidden, weights["output_weight"], batch.targets)
        d = weights["output_bias"].view(-1, config.n_levels)
        scores = scores + d[torch.from_numpy(batch.targets.indices.astype(np.int64))]
        return torch.cumsum(scores, dim=1) if self.share else scores

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


def effective_weights(
    weights: dict[str, NDArray[np.float32]], n_levels: int, *, share: bool
) -> dict[str, NDArray[np.float32]]:
    """The weights as `NumpyRatingNetwork` has them: W^k, V^k and d^k themselves."""
    found = dict(weights)
    for name in _TABLES if share else ():
        table = weights[name]
        steps = table.reshape(-1, n_levels, *table.shape[1:])
        found[name] = np.cumsum(steps, axis=1).reshape(table.shape)
    return found


def rating_cost(scores: Tensor, level: Tensor, ordinal_weight: float) -> Tensor:
    """Cost of each target: the negative log-likelihood of Eq. 2, the ordinal cost, or a mix.

    The ordinal cost says that ratings nearer to the true one are likelier, as two Plackett-Luce
    lists: from the true rating down to the lowest, and up to the highest.

    Args:
        scores: s^k, (n_targets, K).
        level: The true rating from 0 to K - 1, (n_targets,).
        ordinal_weight: From 0, the likelihood alone, to 1, the ordinal cost alone.

    Returns:
        (n_targets,).
    """
    likelihood = F.cross_entropy(scores, level, reduction="none")
    if ordinal_weight == 0:
        return likelihood
    k, true = torch.arange(scores.shape[1]), level[:, None]
    down = torch.logcumsumexp(scores, dim=1) - scores
    up = torch.logcumsumexp(scores.flip(1), dim=1).flip(1) - scores
    lists = (down * (k <= true) + up * (k >= true)).sum(dim=1)
    return ordinal_weight * lists + (1.0 - ordinal_weight) * likelihood


def sampled_product(hidden: Tensor, table: Tensor, targets: csr_array) -> Tensor:
    """Products of the hidden layer with the K rows of each target's column.

    Args:
        hidden: (n_rows, width).
        table: (n_columns K, width).
        targets: The pairs to compute, sparse, (n_rows, n_columns); values do not count.

    Returns:
        (n_targets, K).
    """
    found: Tensor = _SampledProduct.apply(hidden, table, targets)
    return found


class _SampledProduct(torch.autograd.Function):
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
