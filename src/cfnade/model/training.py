"""Training: epochs of updates on random splits (Eq. 14), early stopping, checkpoints."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from cfnade.checkpoints import damaged, load_checkpoint, save_checkpoint
from cfnade.checks import check_whole
from cfnade.errors import ArtifactError, ConfigError, TrainingError
from cfnade.model.batches import Exchange, RowsInMemory, TrainingRows, first_bias
from cfnade.model.config import ModelConfig, RatingConfig, TrainingConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.model.network import ITEM_WEIGHTS, CFNADENetwork, InputLayer
from cfnade.model.objective import OutputLayer, soften_dislikes
from cfnade.model.optimizer import RowOptimizer
from cfnade.model.ordering import draw_window, split_batch

_WARM_UP = 0.05  # share of a linear schedule's updates over which the step size rises
_ORDER_UPDATES = 50  # updates at least with one order of the items: a new one moves all weights


Network = TypeVar("Network")
"""A trained network, in numpy."""


@dataclass(frozen=True)
class Look:
    """One look at validation."""

    mpr: float | None
    """In percent; None for ratings."""

    cost: float | None = None
    """What early stopping minimises; None if that is MPR."""


Validate = Callable[[NumpyNetwork], Look]
"""Judges a network on validation."""


@dataclass(frozen=True)
class Epoch:
    """One pass over all users."""

    number: int
    """From 1."""

    loss: float
    """Eq. 14 per user and item, averaged over the updates."""

    validation_mpr: float | None
    """In percent; None without a look at validation, and for ratings."""

    seconds: float
    """Since training began, over all resumed runs."""

    validation_cost: float | None = None
    """What early stopping minimises, if that is not MPR."""

    @property
    def cost(self) -> float | None:
        """What early stopping minimises; None without a look at validation."""
        return self.validation_mpr if self.validation_cost is None else self.validation_cost


@dataclass(frozen=True)
class Trained(Generic[Network]):
    """The result of training."""

    network: Network
    """With the weights of the best epoch."""

    best_epoch: int
    """The last one if there was no validation."""

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
    checkpoint_seconds: float = 0.0,
    resume: bool = False,
    resume_key: Mapping[str, Any] | None = None,
) -> Trained[NumpyNetwork]:
    """Fit the network to relative ratings.

    All randomness of an epoch follows from the seed and the epoch's number, so a resumed run ends
    in the same weights as an uninterrupted one.

    Args:
        model: What the network is.
        training: How to train it.
        ratings: Relative ratings of the training pairs, -1 for dislikes, sparse,
            (n_users, n_items), or any other source of users.
        start: Weights to start from, by name; None draws them (`first_weights`).
        trained_items: Train W, V and d of these items only, (n_items,); all else stays the same to
            the bit. None trains all weights.
        exchange: Adds up the gradients of several processes that call this together; None trains
            alone. All end with the same weights; the first one keeps the checkpoints.
        validate: Judges the network every `validate_every` epochs, for early stopping; without it
            all `max_epochs` are run.
        on_epoch: Called after every epoch.
        on_step: Called after every update with its number in the epoch and their total.
        checkpoint: Folder to update after an epoch.
        checkpoint_seconds: Time between two checkpoints at least; 0 keeps one after every epoch.
        resume: Continue from that checkpoint.
        resume_key: What else must be the same to resume, as JSON.

    Returns:
        The best network and all epochs.

    Raises:
        TrainingError: If the loss is no longer finite; the last good checkpoint is kept.
    """
    run = _Run(model, training, ratings, start, trained_items, exchange, resume_key)
    return run_epochs(
        run,
        validate=validate,
        on_epoch=on_epoch,
        on_step=on_step,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
    )


def run_epochs(
    run: Run[Network],
    *,
    validate: Callable[[Network], Look] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 0.0,
    resume: bool = False,
) -> Trained[Network]:
    """Train a network of any kind; arguments as in `train`."""
    if resume and checkpoint is None:
        raise ConfigError("resuming needs the folder of the checkpoint")
    if resume and checkpoint is not None:
        run.load(checkpoint)
        run.exchange.check_same([len(run.epochs), run.n_updates], f"the checkpoint in {checkpoint}")
    kept = time.perf_counter()
    while not run.is_finished:
        started = time.perf_counter()
        loss = run.epoch(on_step, checkpoint)
        number = len(run.epochs) + 1
        mpr = cost = None
        if validate is not None and run.training.is_validated(number):
            look = validate(run.current_network())
            mpr, cost = look.mpr, look.cost
        earlier = run.epochs[-1].seconds if run.epochs else 0.0
        seconds = earlier + time.perf_counter() - started
        epoch = Epoch(number, loss, mpr, seconds, cost)
        run.finish_epoch(epoch)
        is_due = time.perf_counter() - kept >= checkpoint_seconds
        if checkpoint is not None and run.exchange.is_first and is_due:
            run.save(checkpoint)
            kept = time.perf_counter()
        if on_epoch is not None:
            on_epoch(epoch)
    return run.outcome()


def first_weights(
    model: ModelConfig, training: TrainingConfig, ratings: csr_array | TrainingRows
) -> dict[str, NDArray[np.float32]]:
    """The weights that training starts from by default, by name: random, and the first bias."""
    network = _first_network(model, training, _rows(model, ratings))
    return {name: weight.detach().numpy() for name, weight in network.named_parameters()}


def _first_network(
    model: ModelConfig, training: TrainingConfig, rows: TrainingRows
) -> CFNADENetwork:
    network = CFNADENetwork(model, torch.Generator().manual_seed(training.seed))
    with torch.no_grad():
        network.output_bias.copy_(torch.from_numpy(first_bias(training.bias_start, rows)))
    return network


def _rows(model: ModelConfig, ratings: csr_array | TrainingRows) -> TrainingRows:
    return RowsInMemory(ratings, model.alpha) if isinstance(ratings, csr_array) else ratings


class Run(ABC, Generic[Network]):
    """The state of one training run, whatever is trained: epochs, the best of them, checkpoints."""

    def __init__(
        self,
        model: ModelConfig | RatingConfig,
        training: TrainingConfig,
        network: nn.Module,
        optimizer: RowOptimizer,
        n_rows: int,
        resume_key: Mapping[str, Any] | None = None,
    ) -> None:
        self.training = training
        self.n_steps = training.updates_per_epoch(n_rows)  # in an epoch
        self.network, self.optimizer = network, optimizer
        self._settings = model
        self.resume_key = dict(resume_key or {})
        self.exchange = Exchange()
        self.best = self._copy()
        self.best_epoch = 0
        self.n_updates = 0
        self.epochs: list[Epoch] = []

    @abstractmethod
    def _updates(self, rng: np.random.Generator) -> Iterator[float]:
        """Make the updates of an epoch; yields the loss of each."""

    @abstractmethod
    def _network(self, trained: Mapping[str, Tensor]) -> Network:
        """A network in numpy, with these weights."""

    @abstractmethod
    def _data_identity(self) -> list[Any]:
        """What identifies the data, as JSON."""

    def _restore_order(self) -> None:
        """Put all weights in their own order."""

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done, or the best one is too long ago."""
        n_epochs = len(self.epochs)
        is_looked_at = bool(self.epochs) and self.epochs[-1].cost is not None
        out_of_patience = is_looked_at and n_epochs - self.best_epoch >= self.training.patience
        return n_epochs >= self.training.max_epochs or out_of_patience

    def epoch(self, on_step: Callable[[int, int], None] | None, checkpoint: Path | None) -> float:
        """Train for one epoch and return the mean loss; see `train`."""
        rng = np.random.default_rng([self.training.seed, len(self.epochs) + 1])
        n_steps, total = self.n_steps, 0.0
        for step, loss in enumerate(self._updates(rng), start=1):
            self._check_finite(loss, step, checkpoint)
            total += loss
            if on_step is not None:
                on_step(step, n_steps)
        if not all(math.isfinite(weight.sum()) for weight in self._weights().values()):
            self._check_finite(math.nan, n_steps, checkpoint)
        return total / max(n_steps, 1)

    def _check_finite(self, loss: float, step: int, checkpoint: Path | None) -> None:
        """Raise `TrainingError` if the loss of an update is no longer finite."""
        if math.isfinite(loss):
            return
        n_done, kept = len(self.epochs), "no checkpoint was kept"
        if checkpoint is not None and n_done:
            kept = f"the last good checkpoint, of epoch {n_done}, is in {checkpoint}"
        raise TrainingError(
            f"the loss became {loss} in epoch {n_done + 1}, update {step} of {self.n_steps}, at "
            f"learning rate {self.training.learning_rate}; {kept}; try a smaller learning rate"
        )

    def _learning_rate(self) -> float:
        """Step size of the next update."""
        training = self.training
        if training.schedule == "constant":
            return training.learning_rate
        n_steps = training.max_epochs * self.n_steps
        rise = min(1.0, (self.n_updates + 1) / max(1.0, _WARM_UP * n_steps))
        fall = max(0.0, 1.0 - self.n_updates / n_steps)
        return training.learning_rate * rise * fall

    def current_network(self) -> Network:
        """The network with the present weights, for validation; shares their memory."""
        self._restore_order()
        return self._network(self._weights())

    def finish_epoch(self, epoch: Epoch) -> None:
        """Keep the weights if they are the best so far."""
        earlier = [e.cost for e in self.epochs if e.cost is not None]
        self.epochs.append(epoch)
        if epoch.cost is not None and epoch.cost < min(earlier, default=math.inf):
            self._restore_order()
            self.best_epoch, self.best = epoch.number, self._copy()

    def outcome(self) -> Trained[Network]:
        """The best network; that of the last epoch if none was validated."""
        self._restore_order()
        if self.best_epoch == 0:  # stopped before the first look at validation
            return Trained(self.current_network(), len(self.epochs), self.epochs)
        return Trained(self._network(self.best), self.best_epoch, self.epochs)

    def _weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.network.named_parameters()}

    def _copy(self) -> dict[str, Tensor]:
        return {name: weight.clone() for name, weight in self._weights().items()}

    def save(self, folder: Path) -> None:
        """Write all that a later run needs to continue."""
        self._restore_order()
        arrays = {name: tensor.detach().numpy() for name, tensor in self._tensors().items()}
        save_checkpoint(
            folder,
            arrays,
            {
                **self._identity(),
                "best_epoch": self.best_epoch,
                "n_updates": self.n_updates,
                "epochs": [asdict(epoch) for epoch in self.epochs],
            },
        )

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint of the same run."""
        arrays, state = load_checkpoint(folder)
        for key, value in self._identity().items():
            if state.get(key) != value:
                raise ArtifactError(
                    f"the checkpoint in {folder} was made with other {key}: {state.get(key)}, "
                    f"now {value}; use the same settings and data, or start without resuming"
                )
        parts: dict[str, dict[str, Tensor]] = {}
        try:
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            if _forms(tensors) != _forms(self._tensors()):
                raise ValueError("its arrays are not those of this network")
            for key, tensor in tensors.items():
                part, name = key.split("/", 1)
                parts.setdefault(part, {})[name] = tensor
            self.network.load_state_dict(parts["weights"])
            self.optimizer.state = parts.get("optimizer", {})
            self.best = parts["best"]
            self.best_epoch, self.n_updates = state["best_epoch"], state["n_updates"]
            self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
            check_whole("best_epoch", self.best_epoch, 0)
            if self.best_epoch > len(self.epochs):
                raise ValueError("its best epoch is none of its epochs")
            if self.n_updates != len(self.epochs) * self.n_steps:
                raise ValueError("its updates are not those of its epochs")
            for number, epoch in enumerate(self.epochs, start=1):
                _check_epoch(epoch, number)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise damaged(folder, ValueError(reason)) from error

    def _tensors(self) -> dict[str, Tensor]:
        """What changes in training, by part and name."""
        parts = {"weights": self._weights(), "best": self.best, "optimizer": self.optimizer.state}
        return {
            f"{part}/{name}": tensor
            for part, named in parts.items()
            for name, tensor in named.items()
        }

    def _identity(self) -> dict[str, Any]:
        """What a resumed run must share to end like an uninterrupted one."""
        training = asdict(self.training)
        for name in ("patience", "validate_every"):  # these may change
            del training[name]
        if self.training.schedule == "constant":
            del training["max_epochs"]
        return {
            "model": asdict(self._settings),
            "training": training,
            "data": self._data_identity(),
            **self.resume_key,
        }


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def _check_epoch(epoch: Epoch, number: int) -> None:
    """Refuse an epoch from a file that no training could have had."""
    figures = [epoch.loss, epoch.seconds]
    figures += [cost for cost in (epoch.validation_mpr, epoch.validation_cost) if cost is not None]
    if epoch.number != number or not all(isinstance(figure, float | int) for figure in figures):
        raise ValueError(f"its epoch {number} is none")


class _Run(Run[NumpyNetwork]):
    """The state of one training run of implicit CF-NADE."""

    network: CFNADENetwork

    def __init__(
        self,
        model: ModelConfig,
        training: TrainingConfig,
        ratings: csr_array | TrainingRows,
        start: Mapping[str, NDArray[np.float32]] | None = None,
        trained_items: NDArray[np.bool_] | None = None,
        exchange: Exchange | None = None,
        resume_key: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.rows = _rows(model, ratings)
        # Scaled for a mean over users and items: the same strength suits data of any size.
        l2 = training.item_l2 / (max(self.rows.n_users, 1) * model.n_items)
        self.l2 = torch.from_numpy(2.0 * l2 * self.rows.n_watchers).float()[:, None]
        network = _first_network(model, training, self.rows)
        if start is not None:
            network.load_state_dict({n: torch.tensor(np.array(w)) for n, w in start.items()})
        self.is_trained: Tensor | None = None  # by item, as a factor, (n_items, 1)
        moving = training
        if trained_items is not None:
            self.is_trained = torch.from_numpy(trained_items).float()[:, None]
            moving = replace(training, weight_decay=0.0)  # it is in the gradients then
        optimizer = RowOptimizer(dict(network.named_parameters()), moving)
        super().__init__(model, training, network, optimizer, self.rows.n_users, resume_key)
        self.exchange = exchange or self.exchange
        self._arranged: tuple[int, NDArray[np.int64], InputLayer, OutputLayer] | None = None

    def _updates(self, rng: np.random.Generator) -> Iterator[float]:
        number = len(self.epochs) + 1
        batches = self.rows.batches(self.training, number, rng)
        place_of, input_layer, output_layer = self._arrange(number)
        for likes, n_users in batches:
            places = place_of[likes.indices].astype(likes.indices.dtype)
            batch = csr_array((likes.data, places, likes.indptr), shape=likes.shape)
            yield self._update(batch, input_layer, output_layer, rng, n_users)

    def _update(
        self,
        batch: csr_array,
        input_layer: InputLayer,
        output_layer: OutputLayer,
        rng: np.random.Generator,
        n_users: int | None = None,
    ) -> float:
        """One update on one random split of the items, shared by the batch.

        Processes that share a batch of `n_users` draw the same random numbers and add up their
        gradients.
        """
        training, n_items = self.training, self.model.n_items
        window = draw_window(n_items, training.context_share, rng)
        context, known_targets = split_batch(batch, window)
        entered = input_layer.forward(context, window).requires_grad_()
        hidden = self.network.hidden_of(entered)
        share = batch.shape[0] / (n_users or batch.shape[0])  # of the mean over the batch
        scale = share / n_items if training.item_mean else share
        costs = soften_dislikes(known_targets)
        gradient = output_layer.gradient(hidden.detach(), window, costs, scale)
        self.network.zero_grad()
        (hidden * gradient.hidden).sum().backward()  # with a gradient given, torch imports sympy
        assert entered.grad is not None
        within = {n: w.grad for n, w in self.network.named_parameters() if w.grad is not None}
        gradients = {
            **input_layer.gradient(entered.grad, self.exchange),
            "output_weight": gradient.output_weight,
            "output_bias": gradient.output_bias,
            **within,
        }
        loss = torch.tensor(share * gradient.loss, dtype=torch.float64)
        targets = [gradient.output_weight[places] for places in window.target_places]
        self.exchange.add_up([*targets, gradient.output_bias, *within.values(), loss])
        inputs, outputs = window.context_places, window.target_places
        rows = {"like_weight": inputs, "dislike_weight": inputs}
        rows |= {"output_weight": outputs, "output_bias": outputs}
        if training.optimizer == "sgd":  # moves all rows, by weight decay
            for name, places in rows.items():
                for others in outputs if places is inputs else inputs:
                    gradients[name][others] = 0.0
            rows = {}
        self._add_l2(gradients, rows)
        if self.is_trained is not None:
            gradients = self._of_trained_items(gradients, self.is_trained)
        self.optimizer.step(gradients, rows, self._learning_rate())
        self.n_updates += 1
        return float(loss) / n_items

    @torch.no_grad()
    def _add_l2(self, gradients: Mapping[str, Tensor], rows: Mapping[str, list[slice]]) -> None:
        """Add the gradient of L2 to the rows that move, scaled up for those that do not."""
        if self.training.item_l2 == 0:
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

        A row without a gradient stays the same to the bit, with Adam as with SGD.
        """
        kept = {}
        for name in ("like_weight", "output_weight", "output_bias"):
            weight = self.network.get_parameter(name)
            gradient = gradients[name].add_(weight, alpha=self.training.weight_decay)
            kept[name] = gradient.mul_(is_trained if gradient.dim() == 2 else is_trained[:, 0])
        return kept

    def _arrange(self, epoch: int) -> tuple[NDArray[np.int64], InputLayer, OutputLayer]:
        """Put the items in the random order of an epoch; with few users, several epochs share it.

        This moves all that has a row per item: weights and the optimiser's state.

        Returns:
            The place of each item, (n_items,), and the layers, whose rows are in that order.
        """
        group = (epoch - 1) // math.ceil(_ORDER_UPDATES / max(self.n_steps, 1))
        if self._arranged is None or self._arranged[0] != group:
            self._restore_order()
            rng = np.random.default_rng([self.training.seed, 0, group])
            order = rng.permutation(self.model.n_items)  # the item at each place
            self._move_rows(order)
            network = self.network
            self._arranged = (
                group,
                np.argsort(order),
                InputLayer(network.like_weight, network.dislike_weight, self.model),
                OutputLayer(network.output_weight, network.output_bias, self.training.precision),
            )
        return self._arranged[1:]

    def _restore_order(self) -> None:
        """Put the items back in their own order."""
        if self._arranged is not None:
            self._move_rows(self._arranged[1])
            self._arranged = None

    @torch.no_grad()
    def _move_rows(self, order: NDArray[np.int64]) -> None:
        """Row k becomes what was row `order[k]`."""
        rows = torch.from_numpy(order)
        self.l2 = self.l2[rows]
        if self.is_trained is not None:
            self.is_trained = self.is_trained[rows]
        for name in ITEM_WEIGHTS:
            weight = self.network.get_parameter(name)
            weight.data = weight.data[rows]
            weight.grad = None
            for key in (f"mean/{name}", f"square/{name}"):
                if key in self.optimizer.state:
                    self.optimizer.state[key] = self.optimizer.state[key][rows]

    def _network(self, trained: Mapping[str, Tensor]) -> NumpyNetwork:
        weights = {name: weight.numpy() for name, weight in trained.items()}
        return NumpyNetwork(self.model, weights)

    def _data_identity(self) -> list[Any]:
        return self.rows.identity()
