"""Adam and SGD on the rows of the weights that an update has a gradient for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam

from cfnade.model.config import TrainingConfig

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class RowOptimizer:
    """Moves some rows of the weights in place; the other rows and their state stay the same.

    An update has gradients for the context's rows of W and A and the targets' rows of V and d.
    Moving only these halves the memory traffic, which limits the speed of small batches.
    """

    def __init__(self, weights: Mapping[str, Tensor], training: TrainingConfig) -> None:
        self.training = training
        self.weights = dict(weights)
        self.state: dict[str, Tensor] = {}
        if training.optimizer == "adam":
            self.state["n_steps"] = torch.zeros(())
            for name, weight in weights.items():
                self.state[f"mean/{name}"] = torch.zeros_like(weight)
                self.state[f"square/{name}"] = torch.zeros_like(weight)

    @torch.no_grad()
    def step(
        self, gradients: Mapping[str, Tensor], rows: Mapping[str, list[slice]], rate: float
    ) -> None:
        """Move the weights against their gradients.

        Args:
            gradients: By the weight's name, of the weight's shape.
            rows: Which rows to move, by the weight's name; all where not given.
            rate: Step size.
        """
        everything = [slice(None)]
        names = [(name, at) for name in gradients for at in rows.get(name, everything)]
        weights = [self.weights[name].data[at] for name, at in names]
        by_weight = [gradients[name][at] for name, at in names]
        decay = self.training.weight_decay
        if self.training.optimizer == "sgd":
            for weight, gradient in zip(weights, by_weight, strict=True):
                weight.sub_(gradient.add(weight, alpha=decay), alpha=rate)
            return
        adam(
            weights,
            by_weight,
            [self.state[f"mean/{name}"][at] for name, at in names],
            [self.state[f"square/{name}"][at] for name, at in names],
            [],
            [self.state["n_steps"].clone() for _ in names],
            fused=True,
            amsgrad=False,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            lr=rate,
            weight_decay=decay,
            eps=_EPSILON,
            maximize=False,
        )
        self.state["n_steps"] += 1
