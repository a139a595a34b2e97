"""Training: epochs of updates on random splits, early stopping, checkpoints."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from cfnade.data.feedback import confidence, popularity_logit
from cfnade.errors import ArtifactError, ConfigError, TrainingError
from cfnade.model.checkpoint import (
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.model.network import CFNADENetwork
from cfnade.model.objective import weighted_nll
from cfnade.model.ordering import draw_context, split_batch

Validate = Callable[[NumpyNetwork], float]
"""Gives the validation MPR of a network, in percent: lower is better."""


@dataclass(frozen=True)
class Epoch:
    """What one pass over all users came to."""

    number: int
    """From 1."""

    loss: float
    """Eq. 14 per user and item, averaged over the updates."""

    validation_mpr: float | None
    """In percent; None without validation."""

    seconds: float
    """Since training began, over all resumed runs."""


@dataclass(frozen=True)
class Trained:
    """The outcome of training."""

    network: NumpyNetwork
    """With the weights of the best epoch."""

    best_epoch: int
    """Whose weights these are; the last one if there was no validation."""

    epochs: list[Epoch] = field(repr=False)
    """All epochs that were run."""


def train(
    model: ModelConfig,
    training: TrainingConfig,
    ratings: csr_array,
    *,
    validate: Validate | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Trained:
    """Fit the network to relative ratings.

    Every random choice of an epoch follows from the seed and the epoch's number, so a run that
    is resumed ends in the same weights as one that was never interrupted.

    Args:
        model: What the network is.
        training: How to train it.
        ratings: Relative ratings of the training pairs, sparse, (n_users, n_items).
        validate: Judges the network after every epoch, for early stopping; without it all
            `max_epochs` are run.
        on_epoch: Called after every epoch.
        on_step: Called after every update with its number in the epoch and how many there are.
        checkpoint: Folder that is kept up to date after every epoch.
        resume: Go on from that checkpoint.

    Returns:
        The best network and how it came about.

    Raises:
        TrainingError: If the loss is no longer finite; the last good checkpoint is kept.
    """
    if resume and checkpoint is None:
        raise ConfigError("resuming needs the folder of the checkpoint")
    run = _Run(model, training, ratings)
    if resume and checkpoint is not None:
        run.load(checkpoint)
    while not run.is_finished:
        started = time.perf_counter()
        loss = run.epoch(on_step, checkpoint)
        number = len(run.epochs) + 1
        mpr = None
        if validate is not None and training.is_validated(number):
            mpr = validate(run.averaged_network())
        seconds = run.seconds + time.perf_counter() - started
        epoch = Epoch(number, loss, mpr, seconds)
        run.finish_epoch(epoch, is_best=validate is None or run.is_best(mpr))
        if checkpoint is not None:
            run.save(checkpoint)
        if on_epoch is not None:
            on_epoch(epoch)
    return run.outcome()


class _Run:
    """The moving parts of one training run."""

    def __init__(self, model: ModelConfig, training: TrainingConfig, ratings: csr_array) -> None:
        self.model, self.training = model, training
        n_pairs_of = np.diff(ratings.indptr)
        self.users = np.flatnonzero(n_pairs_of)  # the others have nothing to teach
        self.confidence = csr_array(
            (confidence(ratings.data, model.alpha), ratings.indices, ratings.indptr), ratings.shape
        )
        self.n_watchers = np.bincount(ratings.indices, minlength=model.n_items)
        generator = torch.Generator().manual_seed(training.seed)
        self.network = CFNADENetwork(model, generator)
        if training.bias_start:
            self._start_bias()
        self.optimizer = _optimizer(self.network, training)
        self.l2 = torch.from_numpy(2 * training.item_l2 * self.n_watchers).float()[:, None]
        self.average = {
            name: weight.detach().clone() for name, weight in self.network.named_parameters()
        }
        self.best = {name: weight.clone() for name, weight in self.average.items()}
        self.best_epoch = 0
        self.n_updates = 0
        self.epochs: list[Epoch] = []

    @property
    def seconds(self) -> float:
        return self.epochs[-1].seconds if self.epochs else 0.0

    @property
    def is_finished(self) -> bool:
        n_epochs = len(self.epochs)
        is_looked_at = bool(self.epochs) and self.epochs[-1].validation_mpr is not None
        out_of_patience = is_looked_at and n_epochs - self.best_epoch >= self.training.patience
        return n_epochs >= self.training.max_epochs or out_of_patience

    def epoch(self, on_step: Callable[[int, int], None] | None, checkpoint: Path | None) -> float:
        """One pass over all users; the mean loss per user and item."""
        number = len(self.epochs) + 1
        rng = np.random.default_rng([self.training.seed, number])
        users = rng.permutation(self.users)
        n_steps = math.ceil(users.size / self.training.batch_size)
        total = 0.0
        for step in range(n_steps):
            batch = users[step * self.training.batch_size :][: self.training.batch_size]
            loss = self._update(self.confidence[batch], rng)
            if not math.isfinite(loss):
                raise TrainingError(_diverged(number, step + 1, n_steps, loss, self, checkpoint))
            total += loss
            if on_step is not None:
                on_step(step + 1, n_steps)
        if not all(bool(weight.isfinite().all()) for weight in self.network.parameters()):
            raise TrainingError(_diverged(number, n_steps, n_steps, math.nan, self, checkpoint))
        return total / max(n_steps, 1)

    def _update(self, batch: csr_array, rng: np.random.Generator) -> float:
        """One update on one random split of the items, shared by the batch."""
        training, n_items = self.training, self.model.n_items
        in_context = draw_context(n_items, training.context_share, rng)
        context, target_likes = split_batch(batch, in_context)
        hidden = self.network.hidden(context, in_context)
        if training.dropout > 0:
            kept = rng.random(hidden.shape, dtype=np.float32) >= training.dropout
            hidden = hidden * torch.from_numpy(kept) / (1.0 - training.dropout)
        targets = np.flatnonzero(~in_context)
        logits = self.network.logits(hidden, targets)
        loss = weighted_nll(logits, target_likes, n_items)
        self.optimizer.zero_grad()
        (loss / n_items if training.item_mean else loss).backward()
        if training.item_l2 > 0:
            for weight in (self.network.like_weight, self.network.output_weight):
                assert weight.grad is not None
                weight.grad.addcmul_(weight.detach(), self.l2)
        self.optimizer.step()
        self.n_updates += 1
        self._update_average()
        return float(loss.detach()) / n_items

    @torch.no_grad()
    def _update_average(self) -> None:
        """Move the running average towards the weights, faster while there are few of them."""
        decay = min(self.training.weight_average, (1 + self.n_updates) / (10 + self.n_updates))
        if self.training.weight_average == 0:
            decay = 0.0
        averages = [self.average[name] for name, _ in self.network.named_parameters()]
        torch._foreach_lerp_(averages, list(self.network.parameters()), 1.0 - decay)

    @torch.no_grad()
    def _start_bias(self) -> None:
        """With nothing but the bias, an item's probability is its share of watchers."""
        self.network.output_bias.copy_(torch.from_numpy(popularity_logit(self.confidence)))

    def averaged_network(self) -> NumpyNetwork:
        """The network with the averaged weights, for validation; shares their memory."""
        return self._network(self.average)

    def is_best(self, mpr: float | None) -> bool:
        """Whether a validation MPR is lower than all before."""
        earlier = (e.validation_mpr for e in self.epochs if e.validation_mpr is not None)
        return mpr is not None and mpr < min(earlier, default=math.inf)

    def finish_epoch(self, epoch: Epoch, *, is_best: bool) -> None:
        """Keep the weights if they are the best so far."""
        self.epochs.append(epoch)
        if is_best:
            self.best_epoch = epoch.number
            self.best = {name: weight.clone() for name, weight in self.average.items()}

    def outcome(self) -> Trained:
        return Trained(self._network(self.best), self.best_epoch, self.epochs)

    def _network(self, trained: Mapping[str, Tensor]) -> NumpyNetwork:
        weights = {name: weight.numpy() for name, weight in trained.items()}
        return NumpyNetwork(self.model, weights)

    def save(self, folder: Path) -> None:
        """Write everything that a later run needs to go on from here."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "weights": dict(self.network.named_parameters()),
            "average": self.average,
            "best": self.best,
            "optimizer": optimizer_tensors(self.optimizer),
        }
        tensors = {
            f"{part}/{name}": tensor.detach()
            for part, named in parts.items()
            for name, tensor in named.items()
        }
        save_checkpoint(
            folder,
            tensors,
            {
                **self._identity(),
                "best_epoch": self.best_epoch,
                "n_updates": self.n_updates,
                "epochs": [asdict(epoch) for epoch in self.epochs],
            },
        )

    def load(self, folder: Path) -> None:
        """Go on where a checkpoint left off, if it is of the same run."""
        tensors, state = load_checkpoint(folder)
        for key, value in self._identity().items():
            if state.get(key) != value:
                raise ArtifactError(
                    f"the checkpoint in {folder} was made with other {key}: {state.get(key)}, "
                    f"now {value}; use the same settings and data, or start without resuming"
                )
        parts: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            part, name = key.split("/", 1)
            parts.setdefault(part, {})[name] = tensor
        self.network.load_state_dict(parts["weights"])
        restore_optimizer(self.optimizer, parts.get("optimizer", {}))
        self.average, self.best = parts["average"], parts["best"]
        self.best_epoch, self.n_updates = state["best_epoch"], state["n_updates"]
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a resumed run to end as an uninterrupted one would."""
        training = asdict(self.training)
        del training["max_epochs"], training["patience"]  # a run may be made longer
        pairs = self.confidence
        digest = hashlib.sha256()
        for array in (pairs.indptr, pairs.indices, pairs.data):
            digest.update(np.ascontiguousarray(array).data)
        return {
            "model": asdict(self.model),
            "training": training,
            "data": [*pairs.shape, digest.hexdigest()],
        }


def _optimizer(network: CFNADENetwork, training: TrainingConfig) -> torch.optim.Optimizer:
    rate, decay = training.learning_rate, training.weight_decay
    if training.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), lr=rate, weight_decay=decay)
    return torch.optim.Adam(network.parameters(), lr=rate, weight_decay=decay, fused=True)


def _diverged(
    epoch: int, step: int, n_steps: int, loss: float, run: _Run, checkpoint: Path | None
) -> str:
    kept = "no checkpoint was kept"
    if checkpoint is not None and run.epochs:
        kept = f"the last good checkpoint, of epoch {len(run.epochs)}, is in {checkpoint}"
    return (
        f"the loss became {loss} in epoch {epoch}, update {step} of {n_steps}, at learning rate "
        f"{run.training.learning_rate}; {kept}; try a smaller learning rate"
    )
