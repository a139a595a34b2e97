"""What a network is and how it is trained: concrete values, nothing left to decide.

`cfnade.fit.settings` has what people set, and `cfnade.fit.plan` what follows from the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from cfnade.checks import (
    check_above_zero,
    check_at_least,
    check_bool,
    check_choice,
    check_number,
    check_whole,
)
from cfnade.errors import ConfigError

Activation: TypeAlias = Literal["tanh", "sigmoid", "relu", "silu", "identity"]
InputScale: TypeAlias = Literal["none", "alpha", "history"]
Optimizer: TypeAlias = Literal["adam", "sgd"]
Schedule: TypeAlias = Literal["constant", "linear"]
BiasStart: TypeAlias = Literal["zero", "share", "odds"]
Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Precision of products with V in training; sums, weights and gradients are always float32."""


MOST_ALPHA = 1e12
"""Sums of much larger confidences would overflow float32."""


@dataclass(frozen=True)
class ModelConfig:
    """What the network is: enough to run it, given its weights."""

    n_items: int
    """Number of items (M)."""

    n_hidden: int = 256
    """Hidden units of every layer (H; 256 in the paper)."""

    n_layers: int = 1
    """Hidden layers (1 in the paper; more make the deep version of Section 4)."""

    activation: Activation = "tanh"
    """Activation of the hidden layers (g; tanh in the paper)."""

    alpha: float = 30.0
    """Rate of confidence, c = 1 + alpha r (Eq. 6; 300 was best in the paper)."""

    input_scale: InputScale = "history"
    """Scale of a liked item's confidence as it enters the network. `none`: Eq. 9 as printed.
    `alpha`: divided by 1 + alpha, so that a large alpha does not saturate the hidden layer.
    `history`: divided further by the root of its sum over the history, so that long and short
    histories drive the hidden layer alike."""

    n_neighbours: int = 0
    """Neighbours of each item in the direct path `logits = d + V h + x B` (0 in the paper)."""

    def __post_init__(self) -> None:
        check_whole("n_items", self.n_items, 1)
        check_whole("n_hidden", self.n_hidden, 1)
        check_whole("n_layers", self.n_layers, 1)
        check_whole("n_neighbours", self.n_neighbours, 0)
        check_choice("activation", self.activation, get_args(Activation))
        check_choice("input_scale", self.input_scale, get_args(InputScale))
        check_at_least(0, alpha=self.alpha)
        if self.alpha > MOST_ALPHA:
            raise ConfigError(f"alpha must be at most {MOST_ALPHA:g}, got {self.alpha:g}")


@dataclass(frozen=True)
class RatingConfig:
    """What the network for ratings is (Section 3): it reads rows and predicts their columns."""

    n_columns: int
    """Items of a user-based network (M), users of an item-based one."""

    n_levels: int
    """Values of the rating scale (K)."""

    n_hidden: int = 500
    n_layers: int = 1
    n_factors: int = 0
    """Rank of W^k and V^k, the low-rank version; 0 keeps them whole."""

    def __post_init__(self) -> None:
        least = {"n_columns": 1, "n_levels": 1, "n_hidden": 1, "n_layers": 1, "n_factors": 0}
        for name, number in least.items():
            check_whole(name, getattr(self, name), number)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight by name; row `column * K + k` of a table is that of rating k."""
        n_rows, n_hidden = self.n_columns * self.n_levels, self.n_hidden
        width = self.n_factors or n_hidden
        shapes: dict[str, tuple[int, ...]] = {"input_weight": (n_rows, width)}
        shapes |= {"hidden_bias": (n_hidden,), "output_weight": (n_rows, width)}
        shapes |= {"output_bias": (n_rows,)}
        if self.n_factors:
            shapes |= {"input_mix": (width, n_hidden), "output_mix": (n_hidden, width)}
        for layer in range(self.n_layers - 1):
            shapes |= {f"deep_weight_{layer}": (n_hidden,) * 2, f"deep_bias_{layer}": (n_hidden,)}
        return shapes


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is trained; running it needs none of this."""

    optimizer: Optimizer = "adam"
    """`adam`, or the paper's `sgd`."""

    learning_rate: float = 5e-3
    """Step size (0.01 with SGD in the paper)."""

    schedule: Schedule = "constant"
    """`linear`: the step size rises over the first twentieth of `max_epochs` and falls to 0."""

    batch_size: int = 200
    """Users per update (200 in the paper)."""

    weight_decay: float = 0.0
    """L2 on every weight alike (0.01 in the paper)."""

    item_l2: float = 0.02
    """L2 on the rows of `like_weight` and `output_weight`, scaled by the item's watchers."""

    item_mean: bool = True
    """Average the loss over the items; False sums it, as Eq. 14 is printed."""

    context_share: float | None = 0.5
    """Share of the items in the context; None draws it for every update, as in Eq. 14."""

    bias_start: BiasStart = "share"
    """Start of the output bias: `zero`, the logit of each item's `share` of watchers, or the log
    `odds` of its confidence."""

    max_epochs: int = 200
    """Passes over all users at most."""

    validate_every: int = 2
    """Epochs between two looks at validation."""

    patience: int = 6
    """Stop after this many epochs without a better validation result."""

    precision: Precision = "float32"
    """Type of products with V; `bfloat16` is twice as fast if the CPU has instructions for it."""

    seed: int = 0
    """Seed of the first weights, the orderings, and the order of users."""

    @classmethod
    def of(cls, model: Any) -> TrainingConfig:
        """Settings of a model that has them by these names; its step size falls to 0."""
        names = ("learning_rate", "batch_size", "weight_decay", "max_epochs")
        given = {name: getattr(model, name) for name in names}
        return cls(schedule="linear", seed=model.random_state, **given)

    def updates_per_epoch(self, n_users: int) -> int:
        """Updates in a pass over the users."""
        return math.ceil(n_users / self.batch_size)

    def is_validated(self, epoch: int) -> bool:
        """Whether to look at validation after this epoch."""
        is_last = self.schedule == "linear" and epoch == self.max_epochs  # likely the best
        return epoch % min(self.validate_every, self.max_epochs) == 0 or is_last

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, get_args(Optimizer))
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("bias_start", self.bias_start, get_args(BiasStart))
        check_choice("precision", self.precision, get_args(Precision))
        check_bool("item_mean", self.item_mean)
        for name in ("batch_size", "max_epochs", "validate_every", "patience"):
            check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed, 0)
        check_above_zero(learning_rate=self.learning_rate)
        check_at_least(0, weight_decay=self.weight_decay, item_l2=self.item_l2)
        share = self.context_share
        if share is not None and not 0 <= check_number("context_share", share) < 1:
            raise ConfigError(f"context_share must be at least 0 and below 1, or None, got {share}")
