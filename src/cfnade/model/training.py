"""Training: epochs of updates on random splits, early stopping, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from cfnade.errors import ArtifactError, ConfigError, TrainingError
from cfnade.model.checkpoint import (
    load_checkpoint,
    save_checkpoint,
)
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.exchange import Alone, Exchange, Part
from cfnade.model.inference import NumpyNetwork
from cfnade.model.input_layer import InputLayer
from cfnade.model.network import ITEM_WEIGHTS, CFNADENetwork
from cfnade.model.objective import OutputLayer
from cfnade.model.optimizer import RowOptimizer
from cfnade.model.ordering import Window, draw_window, split_batch
from cfnade.model.rows import RowsInMemory, TrainingRows

_RISE = 0.05  # share of a schedule's updates over which the step size rises
_AVERAGE_EVERY = 5  # updates: an average of the weights moves slowly, and reads all of them


@dataclass(frozen=True)
class Look:
    """What a look at validation found."""

    mpr: float
    """In percent."""

    cost: float | None = None
    """What the best epoch has least of; None if that is MPR."""


Validate = Callable[[NumpyNetwork], Look]
"""Judges a network on validation."""


@dataclass(frozen=True)
class Epoch:
    """What one pass over all users came to."""

    number: int
    """From 1."""

    loss: float
    """Eq. 14 per user and item, averaged over the updates."""

    validation_mpr: float | None
    """In percent; None if validation was not looked at."""

    seconds: float
    """Since training began, over all resumed runs."""

    validation_cost: float | None = None
    """What the best epoch has least of, if that is not MPR."""

    @property
    def cost(self) -> float | None:
        """What the best epoch has least of; None if validation was not looked at."""
        return self.validation_mpr if self.validation_cost is None else self.validation_cost


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
    ratings: csr_array | TrainingRows,
    *,
    start: Mapping[str, NDArray[np.float32]] | None = None,
    trained_items: NDArray[np.bool_] | None = None,
    exchange: Exchange | None = None,
    validate: Validate | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    told: Mapping[str, Any] | None = None,
) -> Trained:
    """Fit the network to relative ratings.

    Every random choice of an epoch follows from the seed and the epoch's number, so a run that
    is resumed ends in the same weights as one that was never interrupted.

    Args:
        model: What the network is.
        training: How to train it.
        ratings: Relative ratings of the training pairs, sparse, (n_users, n_items); or where to
            get the users from, batch by batch.
        start: Weights to start from, by name; they are copied. None draws them.
        trained_items: Move the rows of W, V and d of these items alone, (n_items,); all else rests
            as it is, to the bit. None trains all weights.
        exchange: How several processes that call this together add up their gradients; None
            trains alone. All get the same weights; the first keeps the checkpoints.
        validate: Judges the network after every `validate_every` epochs, by what `choose_by` says,
            for early stopping; without it all `max_epochs` are run.
        on_epoch: Called after every epoch.
        on_step: Called after every update with its number in the epoch and how many there are.
        checkpoint: Folder that is kept up to date after every epoch.
        resume: Go on from that checkpoint.
        told: What else must be the same to resume, as JSON can hold it: where the run starts from,
            what it is judged with.

    Returns:
        The best network and how it came about.

    Raises:
        TrainingError: If the loss is no longer finite; the last good checkpoint is kept.
    """
    if resume and checkpoint is None:
        raise ConfigError("resuming needs the folder of the checkpoint")
    run = _Run(model, training, ratings, start, trained_items, exchange, told)
    if resume and checkpoint is not None:
        run.load(checkpoint)
        run.exchange.check_same([len(run.epochs), run.n_updates], f"the checkpoint in {checkpoint}")
    while not run.is_finished:
        started = time.perf_counter()
        loss = run.epoch(on_step, checkpoint)
        number = len(run.epochs) + 1
        look = None
        if validate is not None and training.is_validated(number, run.rows.n_users):
            look = validate(run.averaged_network())
        seconds = run.seconds + time.perf_counter() - started
        epoch = Epoch(number, loss, None, seconds)
        if look is not None:
            epoch = replace(epoch, validation_mpr=look.mpr, validation_cost=look.cost)
        run.finish_epoch(epoch, is_best=validate is None or run.is_best(epoch))
        if checkpoint is not None and run.exchange.is_first:
            run.save(checkpoint)
        if on_epoch is not None:
            on_epoch(epoch)
    return run.outcome()


def as_rows(model: ModelConfig, ratings: csr_array | TrainingRows) -> TrainingRows:
    """Where training gets its users from."""
    return RowsInMemory(ratings, model.alpha) if isinstance(ratings, csr_array) else ratings


def first_network(
    model: ModelConfig, training: TrainingConfig, rows: TrainingRows
) -> CFNADENetwork:
    """The network that training starts from unless other weights are given: random weights."""
    network = CFNADENetwork(model, torch.Generator().manual_seed(training.seed))
    rows.start(network, training)
    return network


def first_weights(
    model: ModelConfig, training: TrainingConfig, ratings: csr_array | TrainingRows
) -> dict[str, NDArray[np.float32]]:
    """The weights of `first_network` by name, to change before they are given to `train`."""
    network = first_network(model, training, as_rows(model, ratings))
    return {name: weight.detach().numpy() for name, weight in network.named_parameters()}


class _Run:
    """The moving parts of one training run."""

    def __init__(
        self,
        model: ModelConfig,
        training: TrainingConfig,
        ratings: csr_array | TrainingRows,
        start: Mapping[str, NDArray[np.float32]] | None = None,
        trained_items: NDArray[np.bool_] | None = None,
        exchange: Exchange | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.training = model, training
        self.told = dict(told or {})
        self.exchange = exchange or Alone()
        self.rows = as_rows(model, ratings)
        self.patience = training.patience_for(self.rows.n_users)
        self.item_l2 = training.item_l2_for(
            int(self.rows.n_watchers.sum()), self.rows.n_users, model.n_items
        )
        l2 = self.item_l2 / (max(self.rows.n_users, 1) * model.n_items)  # for a mean of both
        self.l2 = torch.from_numpy(2.0 * l2 * self.rows.n_watchers).float()[:, None]
        self.network = first_network(model, training, self.rows)
        if start is not None:
            self.network.load_state_dict({n: torch.tensor(np.array(w)) for n, w in start.items()})
        self.is_trained: Tensor | None = None  # by item, as a factor, (n_items, 1)
        moving = training
        if trained_items is not None:
            self.is_trained = torch.from_numpy(trained_items).float()[:, None]
            moving = replace(training, weight_decay=0.0)  # it is in the gradients then
        self.optimizer = RowOptimizer(dict(self.network.named_parameters()), moving)
        self.average = {
            name: weight.detach().clone() for name, weight in self.network.named_parameters()
        }
        self.best = {name: weight.clone() for name, weight in self.average.items()}
        self.best_epoch = 0
        self.n_updates = self.n_averaged = 0
        self.epochs: list[Epoch] = []

    @property
    def seconds(self) -> float:
        return self.epochs[-1].seconds if self.epochs else 0.0

    @property
    def is_finished(self) -> bool:
        n_epochs = len(self.epochs)
        is_looked_at = bool(self.epochs) and self.epochs[-1].validation_mpr is not None
        out_of_patience = is_looked_at and n_epochs - self.best_epoch >= self.patience
        return n_epochs >= self.training.max_epochs or out_of_patience

    def epoch(self, on_step: Callable[[int, int], None] | None, checkpoint: Path | None) -> float:
        """One pass over all users; the mean loss per user and item."""
        number = len(self.epochs) + 1
        rng = np.random.default_rng([self.training.seed, number])
        batches = self.rows.batches(self.training, number, rng)
        n_steps = self.n_steps
        total = 0.0
        with self._in_random_order(rng) as place_of:
            network = self.network
            layers = (
                InputLayer(network.like_weight, network.dislike_weight, self.model),
                OutputLayer(network.output_weight, network.output_bias),
            )
            for step, (likes, part) in enumerate(batches):
                places = place_of[likes.indices].astype(likes.indices.dtype)
                batch = csr_array((likes.data, places, likes.indptr), shape=likes.shape)
                loss = self._update(batch, *layers, rng, part)
                if not math.isfinite(loss):
                    told = _diverged(number, step + 1, n_steps, loss, self, checkpoint)
                    raise TrainingError(told)
                total += loss
                if on_step is not None:
                    on_step(step + 1, n_steps)
            self._update_average()
        if not all(bool(weight.isfinite().all()) for weight in self.network.parameters()):
            raise TrainingError(_diverged(number, n_steps, n_steps, math.nan, self, checkpoint))
        return total / max(n_steps, 1)

    def _update(
        self,
        batch: csr_array,
        input_layer: InputLayer,
        output_layer: OutputLayer,
        rng: np.random.Generator,
        part: Part | None = None,
    ) -> float:
        """One update on one random split of the items, shared by the batch.

        Processes that share the batch draw the same for all of it, and add up what they find.
        """
        training, n_items = self.training, self.model.n_items
        part = part or Part(0, batch.shape[0])
        window = draw_window(n_items, training.context_share, rng)
        context, target_likes = split_batch(batch, window)
        entered = input_layer.forward(context, window).requires_grad_()
        hidden = self.network.hidden_of(entered)
        if training.dropout > 0:
            drawn = rng.random((part.n_users, self.model.n_hidden), dtype=np.float32)
            kept = drawn[part.first : part.first + batch.shape[0]] >= training.dropout
            hidden = hidden * torch.from_numpy(kept) / (1.0 - training.dropout)
        gradient = output_layer.gradient(hidden.detach(), window, target_likes, training.zero_share)
        share = batch.shape[0] / part.n_users  # of the mean over the batch
        scale = share / n_items if training.item_mean else share
        self.network.zero_grad()
        hidden.backward(gradient.hidden.mul_(scale))
        assert entered.grad is not None
        within = {n: w.grad for n, w in self.network.named_parameters() if w.grad is not None}
        gradients = {
            **input_layer.gradient(entered.grad, self.exchange),
            "output_weight": gradient.output_weight.mul_(scale),
            "output_bias": gradient.output_bias.mul_(scale),
            **within,
        }
        loss = torch.tensor(share * gradient.loss, dtype=torch.float64)
        targets = [gradient.output_weight[places] for places in window.target_places]
        self.exchange.add_up([*targets, gradient.output_bias, *within.values(), loss])
        rows = _rows_looked_at(window) if training.optimizer == "adam" else {}
        self._add_l2(gradients, rows)
        if self.is_trained is not None:
            gradients = self._of_trained_items(gradients, self.is_trained)
        self.optimizer.step(gradients, rows, self._learning_rate())
        self.n_updates += 1
        if self.n_updates - self.n_averaged == _AVERAGE_EVERY:
            self._update_average()
        return float(loss) / n_items

    @property
    def n_steps(self) -> int:
        """Updates in an epoch."""
        return self.training.updates_per_epoch(self.rows.n_users)

    def _learning_rate(self) -> float:
        """Step size of the next update."""
        training = self.training
        if training.schedule == "constant":
            return training.learning_rate
        n_steps = training.max_epochs * self.n_steps
        rise = min(1.0, (self.n_updates + 1) / max(1.0, _RISE * n_steps))
        fall = max(0.0, 1.0 - self.n_updates / n_steps)
        return training.learning_rate * rise * fall

    @torch.no_grad()
    def _add_l2(self, gradients: Mapping[str, Tensor], rows: Mapping[str, list[slice]]) -> None:
        """Add the gradient of L2; on the rows that are moved it makes up for the others."""
        if self.item_l2 == 0:
            return
        for name in ("like_weight", "output_weight"):
            weight = self.network.get_parameter(name)
            places = rows.get(name, [slice(None)])
            n_moved = sum(len(range(*at.indices(len(weight)))) for at in places)
            for at in places:
                scale = len(weight) / n_moved
                gradients[name][at].addcmul_(weight[at], self.l2[at], value=scale)

    @torch.no_grad()
    def _of_trained_items(
        self, gradients: Mapping[str, Tensor], is_trained: Tensor
    ) -> dict[str, Tensor]:
        """Gradients by W, V and d of the trained items alone, weight decay included.

        A row that never had a gradient rests to the bit, with Adam as with SGD.
        """
        kept = {}
        for name in ("like_weight", "output_weight", "output_bias"):
            weight = self.network.get_parameter(name)
            gradient = gradients[name].add_(weight, alpha=self.training.weight_decay)
            kept[name] = gradient.mul_(is_trained if gradient.dim() == 2 else is_trained[:, 0])
        return kept

    @torch.no_grad()
    def _update_average(self) -> None:
        """Move the running average towards the weights, faster while there are few of them."""
        decay = 0.0
        if self.training.weight_average > 0:
            early = (1 + self.n_updates) / (10 + self.n_updates)
            decay = min(self.training.weight_average, early) ** (self.n_updates - self.n_averaged)
        averages = [self.average[name] for name, _ in self.network.named_parameters()]
        torch._foreach_lerp_(averages, list(self.network.parameters()), 1.0 - decay)
        self.n_averaged = self.n_updates

    @contextmanager
    def _in_random_order(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Bring the items into a random order, and back at the end; gives each item's place in it.

        All that has a row for each item is moved: weights, their average, what the optimiser
        keeps of them.
        """
        order = rng.permutation(self.model.n_items)  # the item at each place
        place_of = np.argsort(order)
        self._move_rows(order)
        try:
            yield place_of
        finally:
            self._move_rows(place_of)

    @torch.no_grad()
    def _move_rows(self, order: NDArray[np.int64]) -> None:
        """Row k becomes what was row `order[k]`, of all that has a row for each item."""
        rows = torch.from_numpy(order)
        self.l2 = self.l2[rows]
        if self.is_trained is not None:
            self.is_trained = self.is_trained[rows]
        for name in ITEM_WEIGHTS:
            weight = self.network.get_parameter(name)
            weight.data = weight.data[rows]
            weight.grad = None
            self.average[name] = self.average[name][rows]
            for key in (f"mean/{name}", f"square/{name}"):
                if key in self.optimizer.state:
                    self.optimizer.state[key] = self.optimizer.state[key][rows]

    def averaged_network(self) -> NumpyNetwork:
        """The network with the averaged weights, for validation; shares their memory."""
        return self._network(self.average)

    def is_best(self, epoch: Epoch) -> bool:
        """Whether an epoch has less of what counts than all before."""
        earlier = (e.cost for e in self.epochs if e.cost is not None)
        return epoch.cost is not None and epoch.cost < min(earlier, default=math.inf)

    def finish_epoch(self, epoch: Epoch, *, is_best: bool) -> None:
        """Keep the weights if they are the best so far."""
        self.epochs.append(epoch)
        if is_best:
            self.best_epoch = epoch.number
            self.best = {name: weight.clone() for name, weight in self.average.items()}

    def outcome(self) -> Trained:
        if self.best_epoch == 0:  # resumed to be shorter, before validation was ever looked at
            return Trained(self._network(self.average), len(self.epochs), self.epochs)
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
            "optimizer": self.optimizer.state,
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
        self.optimizer.load(parts.get("optimizer", {}))
        self.average, self.best = parts["average"], parts["best"]
        self.best_epoch, self.n_updates = state["best_epoch"], state["n_updates"]
        self.n_averaged = self.n_updates
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a resumed run to end as an uninterrupted one would."""
        training = asdict(self.training)
        for name in ("patience", "validate_every"):  # a run may be made longer, or watched closer
            del training[name]
        if self.training.schedule == "constant":
            del training["max_epochs"]
        if self.training.choose_by is None:
            del training["choose_by"]  # as in checkpoints from before there was a choice
        return {
            "model": asdict(self.model),
            "training": training,
            "data": self.rows.identity(),
            **self.told,
        }


def _rows_looked_at(window: Window) -> dict[str, list[slice]]:
    """The rows that a split has anything to say about, by weight."""
    context, targets = window.context_places, window.target_places
    return {
        "like_weight": context,
        "dislike_weight": context,
        "output_weight": targets,
        "output_bias": targets,
    }


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
