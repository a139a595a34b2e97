"""The output layer (Eq. 10) and the objective: the orderless, confidence-weighted cost (Eq. 14)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from cfnade.model.config import Precision
from cfnade.model.inference import with_values
from cfnade.model.ordering import Window

_LOSS_USERS = 8  # users on whom the loss is estimated: softplus costs more than all else


@dataclass(frozen=True)
class OutputGradient:
    """Loss and gradients of one split, summed over the targets, averaged over users."""

    loss: float
    """Eq. 14, estimated on some users of the batch."""

    hidden: Tensor
    """Gradient by the hidden layer, (n_users, n_hidden)."""

    output_weight: Tensor
    """By V, (n_items, n_hidden); only the rows of the targets count."""

    output_bias: Tensor
    """By d, (n_items,); only the targets count."""


class OutputLayer:
    """Eq. 14 and its gradients, by hand, in as few passes over the logits as possible.

    With targets T of all items M, a batch of users and logits z = d + V h (Eq. 10), the cost is
    `M / |T| * mean over users of sum over T of c * cross_entropy(sigmoid(z), t)`.

    Nearly all targets are unobserved: like 0, confidence 1, cost softplus(z), gradient sigmoid(z).
    A like of confidence c costs c softplus(-z), with gradient c (sigmoid(z) - 1); a known dislike
    c softplus(z), with gradient c sigmoid(z). So the logits are turned into sigmoids in place, and
    the few known pairs are overwritten; no dense array of likes or confidences exists.

    The products may be in bfloat16, with sums and weights in float32: see `Precision`.
    """

    def __init__(
        self, output_weight: Tensor, output_bias: Tensor, precision: Precision = "float32"
    ) -> None:
        self.V, self.d = output_weight.detach(), output_bias.detach()
        self._dtype = torch.bfloat16 if precision == "bfloat16" else self.V.dtype
        self._rounded = self.V
        if self._dtype != self.V.dtype:
            self._rounded = torch.empty_like(self.V, dtype=self._dtype)
        self._logits = self._rounded.new_empty(0)
        self._by_weight = torch.zeros_like(self.V)
        self._by_bias = torch.zeros_like(self.d)

    def gradient(
        self, hidden: Tensor, window: Window, known_targets: csr_array, scale: float = 1.0
    ) -> OutputGradient:
        """Compute the loss and the gradients of one split.

        Args:
            hidden: (n_users, n_hidden).
            window: The targets; the rows of V are in the order of the epoch.
            known_targets: Confidence of the liked targets, -c for a dislike with confidence c,
                sparse, (n_users, n_targets).
            scale: Multiplies the gradients.

        Returns:
            The gradients; the next call overwrites their arrays.
        """
        n_users, n_targets = hidden.shape[0], window.n_targets
        logits = self._buffer(n_targets, n_users)  # (n_targets, n_users): contiguous products
        V, h = self._rounded, hidden.to(self._dtype)
        for numbers, places in window.blocks():
            if V is not self.V:
                V[places] = self.V[places]
            d = self.d[places, None].to(self._dtype)
            torch.addmm(d, V[places], h.T, out=logits[numbers])
        user, item, signed = _pairs(known_targets, hidden.dtype)
        c, t = signed.abs(), (signed > 0).to(hidden.dtype)  # (n_pairs,) each
        z = logits[item, user].to(hidden.dtype)  # (n_pairs,)
        loss = _sampled_loss(logits, user, z, signed) * window.n_items / n_targets
        by_logits = logits.sigmoid_()
        by_logits[item, user] = (c * (torch.sigmoid(z) - t)).to(self._dtype)
        scale *= window.n_items / n_targets / n_users
        scaled = (scale * hidden).to(self._dtype)
        by_hidden, ones = torch.zeros_like(hidden), scaled.new_ones(n_users, 1)
        for numbers, places in window.blocks():
            block = by_logits[numbers]
            by_hidden += block.T @ V[places]
            _product_into(self._by_weight[places], block, scaled)
            self._by_bias[places] = (block @ ones)[:, 0]  # a sum of rows; torch.sum is slow
            self._by_bias[places].mul_(scale)
        return OutputGradient(loss, by_hidden.mul_(scale), self._by_weight, self._by_bias)

    def _buffer(self, n_targets: int, n_users: int) -> Tensor:
        if self._logits.numel() < n_targets * n_users:
            self._logits = self._rounded.new_empty(n_targets * n_users)
        return self._logits[: n_targets * n_users].view(n_targets, n_users)


def soften_dislikes(known_targets: csr_array) -> csr_array:
    """Let a dislike of confidence c cost as one of confidence sqrt(c).

    The full confidence separates dislikes from likes best, but the ranking of all other items
    suffers (docs/decisions/0039).

    Args:
        known_targets: As for `OutputLayer.gradient`, (n_users, n_targets).

    Returns:
        The same; itself without dislikes.
    """
    signed = known_targets.data
    if not (signed < 0).any():
        return known_targets
    return with_values(known_targets, np.where(signed < 0, -np.sqrt(np.abs(signed)), signed))


def _product_into(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Write `left @ right` to `out`, which may have a wider type."""
    if out.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left @ right)


def _sampled_loss(logits: Tensor, user: Tensor, z: Tensor, signed: Tensor) -> float:
    """Loss per user of the first few users of a batch, whose order is random; not yet scaled.

    Args:
        logits: (n_targets, n_users).
        user: Of each known pair, (n_pairs,).
        z: Its logit, (n_pairs,).
        signed: Its confidence c, or -c of a dislike, (n_pairs,).
    """
    n_users = min(_LOSS_USERS, logits.shape[1])
    is_sampled = user < n_users
    z, signed = z[is_sampled], signed[is_sampled]
    sampled = logits[:, :n_users].to(z.dtype)
    zeros = F.softplus(sampled).sum() - F.softplus(z).sum()
    known = (signed.abs() * F.softplus(torch.where(signed > 0, -z, z))).sum()
    return float(zeros + known) / n_users


def _pairs(known: csr_array, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """User, item and signed confidence of each known pair, (n_pairs,) each."""
    user: NDArray[np.int64] = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    item = torch.from_numpy(known.indices.astype(np.int64))
    return torch.from_numpy(user), item, torch.from_numpy(known.data).to(dtype)
