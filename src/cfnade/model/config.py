"""Settings of the network and of its training, and the two presets: `default` and `paper`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from cfnade.checks import check_bool, check_choice, check_number, check_whole
from cfnade.data.feedback import check_alpha
from cfnade.errors import ConfigError

Activation: TypeAlias = Literal["tanh", "sigmoid", "relu", "silu", "identity"]
InputScale: TypeAlias = Literal["none", "alpha", "history"]
Optimizer: TypeAlias = Literal["adam", "sgd"]
Schedule: TypeAlias = Literal["constant", "linear"]
BiasStart: TypeAlias = Literal["zero", "share", "odds"]

MANY_WATCHERS = 130
LARGE_PART = 0.03
"""Watchers of an item on average, and their part of all users, from which they say enough about it
to hold it but loosely."""


@dataclass(frozen=True)
class ModelConfig:
    """What the network is: enough to run it, given its weights."""

    n_items: int
    """Items the network knows (M)."""

    n_hidden: int = 256
    """Hidden units of every layer (H; 256 in the paper)."""

    n_layers: int = 1
    """Hidden layers (1 in the paper; more follow the first as in Section 4's deep version)."""

    activation: Activation = "tanh"
    """Activation of the hidden layers (g; tanh in the paper)."""

    alpha: float = 30.0
    """Rate of confidence, c = 1 + alpha r (Eq. 6; 300 was best in the paper)."""

    input_scale: InputScale = "history"
    """Factor on the confidence of a liked item as it enters the network: `none` is Eq. 9 as
    printed; `alpha` divides by 1 + alpha, the same model class with `like_weight` in other
    units, in which a large alpha does not saturate the hidden layer; `history` divides that
    further by the square root of its sum over the user's liked context items, so that long
    and short histories drive the hidden layer alike."""

    n_neighbours: int = 0
    """Items whose likes speak for each item directly, beside `V h`: `logits = d + V h + x B`, with
    so many entries in each column of B. Added after training, see `cfnade.beyond.readout`; 0 in the
    paper."""

    n_linear: int = 0
    """How many of the hidden units, the last ones, carry the scores of a matrix factorisation.
    Added after training, see `cfnade.beyond.units`; 0 in the paper."""

    @property
    def n_own(self) -> int:
        """Hidden units that were trained: all but the linear ones."""
        return self.n_hidden - self.n_linear

    def __post_init__(self) -> None:
        check_whole("n_items", self.n_items, 1)
        check_whole("n_hidden", self.n_hidden, 1)
        check_whole("n_layers", self.n_layers, 1)
        check_whole("n_neighbours", self.n_neighbours, 0)
        check_whole("n_linear", self.n_linear, 0)
        if self.n_linear and (self.n_own < 1 or self.n_layers > 1):
            raise ConfigError(
                f"n_linear must be below n_hidden, in a network of one layer, got {self.n_linear}"
            )
        check_choice("activation", self.activation, get_args(Activation))
        check_choice("input_scale", self.input_scale, get_args(InputScale))
        check_alpha(self.alpha)


_PATIENCE, _PATIENCE_UPDATES = 6, 200
_LOOK_EVERY, _LOOK_UPDATES = 2, 50


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is trained; none of it is needed to run it."""

    optimizer: Optimizer = "adam"
    """`adam`, or the paper's `sgd`."""

    learning_rate: float = 5e-3
    """Step size (0.01 with SGD in the paper)."""

    schedule: Schedule = "constant"
    """How the step size changes: `linear` rises to it over the first twentieth of `max_epochs`
    and falls to 0 at their end. It gets further in a number of epochs that is known beforehand."""

    batch_size: int | None = None
    """Users per update (200 in the paper). None takes 200, or an eighth of the users where they are
    few: with fewer updates in an epoch, training would be given up before it has begun."""

    weight_decay: float = 0.0
    """L2 on every weight alike, as a part of the gradient (0.01 in the paper)."""

    item_l2: float | None = None
    """L2 on the item rows of `like_weight` and `output_weight`, scaled by the item's number of
    watchers, for a loss summed over users and items: the same number suits data of any size.
    None takes what suits data of that density (`usual_item_l2`); `fit` looks around it."""

    item_mean: bool = True
    """Average the loss over the items; False sums it, as Eq. 14 is printed. It matters to SGD and
    to the strength of L2, hardly to Adam."""

    context_share: float | None = 0.5
    """Share of the items given as context; None draws it anew for every update, as in Eq. 14."""

    zero_share: float = 1.0
    """Share of the targets on which unobserved items are looked at: below 1 updates are cheaper
    and noisier, and as large on average."""

    dropout: float = 0.25
    """Share of the hidden units left out, per user and update."""

    weight_average: float = 0.99
    """Decay of the running average of the weights that is used in place of the last ones; 0
    uses the last ones."""

    bias_start: BiasStart = "share"
    """Where the output bias starts: at `zero`; at the logit of each item's `share` of watchers; at
    its `odds` of confidence, the best there is without `V h`. From the others it takes hundreds
    of updates to get there: with many users `odds` saves most of the first epoch."""

    max_epochs: int = 200
    """Passes over all users at most."""

    validate_every: int | None = None
    """Look at validation after every so many epochs; None looks after two, and on few users after
    as many as make 50 updates, or a quarter of all epochs: a look costs as much as an epoch or
    two."""

    patience: int | None = None
    """Stop after this many epochs without a better validation MPR; None waits for six, and on few
    users for as many as make 200 updates: at first a network may get worse before it gets
    better."""

    choose_by: str | None = None
    """Metric that the number of epochs, the strength of L2 and the readout are chosen by, such as
    `ndcg@20`; None goes by MPR, and in the readout by MPR divided by nDCG@100. What is searched
    around a fit, by `tune` or in a comparison, goes by MPR."""

    seed: int = 0
    """Of the first weights, the orderings, the order of users and dropout."""

    def item_l2_for(self, n_pairs: int, n_users: int, n_items: int) -> float:
        """Strength of `item_l2` for data of this size."""
        if self.item_l2 is not None:
            return self.item_l2
        return usual_item_l2(n_pairs, n_users, n_items)

    def users_per_update(self, n_users: int) -> int:
        """Users per update, of so many."""
        if self.batch_size is not None:
            return self.batch_size
        return min(200, max(16, n_users // 8))

    def updates_per_epoch(self, n_users: int) -> int:
        """Updates in a pass over so many users."""
        return math.ceil(n_users / self.users_per_update(n_users))

    def patience_for(self, n_users: int) -> int:
        """Epochs to wait for a better one, with so many users."""
        if self.patience is not None:
            return self.patience
        return max(_PATIENCE, self._epochs_of(_PATIENCE_UPDATES, n_users))

    def is_validated(self, epoch: int, n_users: int) -> bool:
        """Whether validation is looked at after this epoch, with so many users."""
        every = self.validate_every
        if every is None:
            several = max(_LOOK_EVERY, min(self.max_epochs // 4, self.patience_for(n_users)))
            every = min(max(_LOOK_EVERY, self._epochs_of(_LOOK_UPDATES, n_users)), several)
        is_last = self.schedule == "linear" and epoch == self.max_epochs  # the best, most likely
        return epoch % min(every, self.max_epochs) == 0 or is_last

    def _epochs_of(self, n_updates: int, n_users: int) -> int:
        """Epochs that take so many updates."""
        return math.ceil(n_updates / max(self.updates_per_epoch(n_users), 1))

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, get_args(Optimizer))
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("bias_start", self.bias_start, get_args(BiasStart))
        check_bool("item_mean", self.item_mean)
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size, 1)
        check_whole("max_epochs", self.max_epochs, 1)
        for name in ("validate_every", "patience"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed, 0)
        if check_number("learning_rate", self.learning_rate) <= 0:
            raise ConfigError(f"learning_rate must be above 0, got {self.learning_rate}")
        for name in ("weight_decay", "item_l2"):
            value = getattr(self, name)
            if (name, value) != ("item_l2", None) and check_number(name, value) < 0:
                raise ConfigError(f"{name} must be at least 0, got {value}")
        for name in ("dropout", "weight_average"):
            if not 0 <= check_number(name, getattr(self, name)) < 1:
                raise ConfigError(
                    f"{name} must be at least 0 and below 1, got {getattr(self, name)}"
                )
        if not 0 < check_number("zero_share", self.zero_share) <= 1:
            raise ConfigError(f"zero_share must be above 0 and at most 1, got {self.zero_share}")
        share = self.context_share
        if share is not None and not 0 <= check_number("context_share", share) < 1:
            raise ConfigError(
                f"context_share must be at least 0 and below 1, or None, got {self.context_share}"
            )


_PAPER: dict[str, Any] = {
    "n_hidden": 256,
    "n_layers": 1,
    "n_networks": 1,
    "start_from_factors": False,
    "activation": "tanh",
    "alpha": 300.0,
    "input_scale": "alpha",
    "direct": False,
    "factors": False,
    "popularity_tilt": 0.0,
    "optimizer": "sgd",
    "learning_rate": 0.01,
    "batch_size": 200,
    "weight_decay": 0.01,
    "item_l2": 0.0,
    "item_mean": False,
    "context_share": None,
    "dropout": 0.0,
    "weight_average": 0.0,
    "bias_start": "share",
    "validate_every": 2,
    "patience": 20,
}

PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": _PAPER}
"""Settings by name. `default` is what the dataclasses above say; `paper` is what the paper states
and what had to be fixed to make that train, see docs/decisions/0003-paper-preset.md."""


ITEM_L2 = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Strengths of `item_l2` that are looked at."""


def usual_item_l2(n_pairs: int, n_users: int, n_items: int) -> float:
    """The strength of `item_l2` that suits data of this size, of `ITEM_L2`.

    Items with many watchers, or with a good part of all users, are known well and held loosely.
    """
    n_watchers = n_pairs / max(n_items, 1)
    is_known_well = n_watchers >= MANY_WATCHERS or n_watchers >= LARGE_PART * n_users
    return 0.02 if is_known_well else 0.8
