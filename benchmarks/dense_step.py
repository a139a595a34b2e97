"""A plain training step of Eq. 14 in PyTorch, to compare the engine with.

Dense like and confidence vectors, every item in input and output, a random ordering for each
user's context, automatic derivatives, Adam over all weights.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits


class DenseStep:
    """Holds the weights and makes one update at a time."""

    def __init__(
        self, n_items: int, n_hidden: int, alpha: float, *, one_context: bool = False
    ) -> None:
        """Draw the weights; with `one_context` a batch shares its context, as in the engine."""

        def weight(*shape: int, std: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape) * std)

        self.alpha, self.one_context = alpha, one_context
        self.W = weight(n_items, n_hidden, std=n_hidden**-0.5)
        self.A = weight(n_items, n_hidden, std=0.0)
        self.b = weight(n_hidden, std=0.0)
        self.V = weight(n_items, n_hidden, std=0.1 * n_hidden**-0.5)
        self.d = weight(n_items, std=0.0)
        weights = [self.W, self.A, self.b, self.V, self.d]
        self.optimizer = torch.optim.Adam(weights, lr=1e-3, fused=True)

    def step(self, ratings: csr_array) -> float:
        """One update on a batch of relative ratings, (n_users, n_items)."""
        rating = torch.from_numpy(ratings.toarray().astype(np.float32))
        n_users, n_items = rating.shape
        like = (rating > 0).float()
        confidence = 1.0 + self.alpha * rating
        in_context = _contexts(1 if self.one_context else n_users, n_items).expand(n_users, -1)
        known = like * confidence / (1.0 + self.alpha) * in_context
        unknown = (1.0 - like) * in_context / n_items
        hidden = torch.tanh(self.b + known @ self.W + unknown @ self.A)
        logits = hidden @ self.V.T + self.d
        cost = binary_cross_entropy_with_logits(logits, like, confidence, reduction="none")
        n_targets = n_items - in_context.sum(dim=1)
        loss = (n_items / n_targets * (cost * (1.0 - in_context)).sum(dim=1)).mean() / n_items
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def _contexts(n_users: int, n_items: int) -> Tensor:
    """Half of the items for each user, at random."""
    return (torch.rand(n_users, n_items) < 0.5).float()
