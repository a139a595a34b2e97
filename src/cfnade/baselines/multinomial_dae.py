"""Mult-DAE (Liang et al. 2018): a denoising autoencoder with a multinomial likelihood, in torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cfnade.baselines.support import Iterative, checked_histories, stretches
from cfnade.beyond.direct import likes_of
from cfnade.checks import check_above_zero, check_at_least, check_share, check_whole
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.errors import MissingExtraError, TrainingError
from cfnade.threads import limited_threads


@dataclass(eq=False)
class MultinomialDAE(Iterative):
    """Scores `V tanh(W x + b) + d`, with x the user's likes divided by their length.

    "Variational Autoencoders for Collaborative Filtering" (WWW 2018), its denoising autoencoder
    with one hidden layer: it maximises `sum_i t_i log softmax(scores)_i`, t the likes, with
    dropout on x, by Adam. Trained in torch, scored in numpy. The same `random_state` gives the
    same weights on the same number of threads.

    Args:
        n_hidden: Hidden units.
        dropout: Share of the entries of x left out in training.
        learning_rate: Step size.
        weight_decay: L2 on the weights, as a part of the gradient.
        batch_size: Users per update.
        iterations: Passes over all users.
        random_state: Seed of the first weights, the order of users and dropout.
        n_threads: For torch; None uses all available ones.

    Attributes:
        weights_: W (n_items, n_hidden), b (n_hidden,), V (n_items, n_hidden) and d (n_items,).
    """

    n_hidden: int = 200
    dropout: float = 0.5
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch_size: int = 100
    iterations: int = 40
    random_state: int = 0
    n_threads: int | None = None
    weights_: tuple[NDArray[np.float32], ...] = field(init=False, repr=False)

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Train once and yield a fitted copy after each of these iterations; see `Iterative`."""
        check_whole("n_hidden", self.n_hidden, 1)
        check_whole("batch_size", self.batch_size, 1)
        check_at_least(0, weight_decay=self.weight_decay)
        check_above_zero(learning_rate=self.learning_rate)
        check_share(dropout=self.dropout)
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError("torch", "train", "the Mult-DAE baseline") from error
        likes = likes_of(as_count_matrix(counts))
        likes = likes[np.flatnonzero(np.diff(likes.indptr))]  # users who like something
        n_users, n_items = likes.shape
        generator = torch.Generator().manual_seed(self.random_state)

        def weight(*shape: int) -> torch.Tensor:  # Glorot's normal start
            spread = (2.0 / (n_items + self.n_hidden)) ** 0.5
            first: torch.Tensor = spread * torch.randn(shape, generator=generator)
            return first.requires_grad_()

        W, V = weight(n_items, self.n_hidden), weight(n_items, self.n_hidden)
        b = torch.zeros(self.n_hidden, requires_grad=True)
        d = torch.zeros(n_items, requires_grad=True)
        decayed: dict[str, Any] = {"params": [W, V], "weight_decay": self.weight_decay}
        adam = torch.optim.Adam([decayed, {"params": [b, d]}], lr=self.learning_rate, fused=True)

        def run_epoch() -> None:
            order = torch.randperm(n_users, generator=generator).numpy()
            for start in range(0, n_users, self.batch_size):
                t = torch.from_numpy(likes[order[start : start + self.batch_size]].toarray())
                x = torch.nn.functional.normalize(t, dim=1)
                keep = torch.rand(x.shape, generator=generator) >= self.dropout
                hidden = torch.tanh((x * keep / (1.0 - self.dropout)) @ W + b)
                log_probs = torch.log_softmax(hidden @ V.T + d, dim=1)  # (batch, n_items)
                loss = -(t * log_probs).sum(dim=1).mean()
                if not torch.isfinite(loss):
                    raise TrainingError(
                        "the loss of Mult-DAE is no longer finite; lower the learning rate "
                        f"(now {self.learning_rate:g})"
                    )
                adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                adam.step()

        for stop, n_more in stretches(iterations):
            with limited_threads(self.n_threads):
                for _ in range(n_more):
                    run_epoch()
            weights = tuple(each.detach().numpy().copy() for each in (W, b, V, d))
            yield self.copy_at(stop, weights_=weights)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; see `Scorer`."""
        W, b, V, d = self.weights_
        x = likes_of(checked_histories(histories, len(W)))
        lengths = np.diff(x.indptr)
        x.data /= np.sqrt(np.repeat(lengths, lengths)).astype(np.float32)
        hidden = np.tanh(x @ W + b)  # (n_users, n_hidden)
        return np.asarray(hidden @ V.T + d)
