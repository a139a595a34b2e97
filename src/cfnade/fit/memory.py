"""What fitting and recommending need of memory, and how they are made to fit a limit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cfnade.beyond.direct import regression_bytes
from cfnade.errors import ConfigError
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.scorer import BLOCK_BYTES

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_INTERPRETER = 400 * 10**6  # Python with torch and the libraries beneath
_LEAST_BLOCK = 2**20
_PAIR_BYTES = 100  # counts, ratings and confidences of a pair, and what is made on the way
_WEIGHT_COPIES = 8  # weights, gradients, two of Adam, average, best, and two while items move
_FACTOR_COPIES = 3  # of users, of items, and what is made of them on the way
_WIDE_COPIES = 3  # what it is put together from, the whole, and one that is judged
_ANSWER_BYTES = 40  # id and score of a recommended item, and what is made on the way
_BLOCK_COPIES = 3  # scores, the direct path's part of them, and what selecting marks


def parse_bytes(limit: str | float) -> int:
    """Bytes of a limit such as `4GB`, `512 MiB` or 2e9.

    Raises:
        ConfigError: If it is none.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", str(limit).lower())
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or number <= 0:
        raise ConfigError(f"memory_limit must be a size such as 4GB or 512MiB, got {limit!r}")
    return int(number * (_BINARY if match[3] else _UNITS)[match[2]])


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that the parts of fitting take at most, and what was chosen to make them fit."""

    data: int
    """Counts, ratings and confidences."""

    weights: int
    """Of the network, and all that training keeps of them."""

    update: int
    """Of one update: logits of a batch."""

    direct: int
    """Of the regressions of the direct path; 0 without it."""

    wide: int
    """Of the whole network and what it is put together from; 0 if it is the one that is trained."""

    factors: int
    """Of the factorisation; 0 without it."""

    is_held: bool
    """Whether factors and the direct path are there while a network is trained."""

    block: int
    """Of the scores that are held at once when judging."""

    @property
    def total(self) -> int:
        """At the same time at most: updates, direct path, factors come one by one, or stay."""
        parts = (self.update, self.direct, self.factors)
        in_turn = sum(parts) if self.is_held else max(parts)
        return _INTERPRETER + self.data + self.weights + self.wide + in_turn + self.block

    def describe(self) -> str:
        """In one line."""
        parts = {
            "data": self.data,
            "weights": self.weights,
            "an update": self.update,
            "direct path": self.direct,
            "factors": self.factors,
            "the whole network": self.wide,
            "a block of scores": self.block,
        }
        return f"fitting takes about {_told(self.total, parts)}"


def plan_memory(
    n_users: int,
    n_pairs: int,
    model: ModelConfig,
    training: TrainingConfig,
    *,
    direct: bool,
    n_networks: int = 1,
    n_factors: int = 0,
    n_start: int = 0,
    is_judged_with_direct: bool = False,
    limit: int | None = None,
) -> MemoryPlan:
    """Estimate what fitting takes; with a limit, make it fit.

    To fit, fewer scores are held at once; then the direct path is left out.

    Args:
        n_users: With a history.
        n_pairs: Of users and items.
        model: The network.
        training: How it is trained.
        direct: Whether the direct path is asked for.
        n_networks: Trained, one after the other.
        n_factors: Hidden units that are added after training.
        n_start: Factors that training starts from.
        is_judged_with_direct: Whether the direct path is there while a network is trained.
        limit: Bytes.

    Returns:
        The plan.

    Raises:
        ConfigError: If it cannot fit.
    """
    n_items = model.n_items
    n_units = n_networks * model.n_hidden + n_factors
    share = training.context_share
    n_targets = n_items if share is None else int((1.0 - share) * n_items) + 1
    plan = MemoryPlan(
        data=_PAIR_BYTES * n_pairs,
        weights=4 * 3 * n_items * model.n_hidden * _WEIGHT_COPIES,
        update=4 * training.users_per_update(n_users) * n_targets * 2,
        direct=regression_bytes(n_users, n_items, n_pairs) if direct else 0,
        wide=0 if n_units == model.n_hidden else 4 * 3 * n_items * n_units * _WIDE_COPIES,
        factors=4 * (n_users + n_items) * max(n_factors, n_start) * _FACTOR_COPIES,
        is_held=n_start > 0 or is_judged_with_direct,
        block=2 * BLOCK_BYTES,
    )
    if limit is None:
        return plan
    for wanted in (plan, replace(plan, direct=0)):
        fitting = _with_smaller_block(wanted, limit)
        if fitting.total <= limit:
            return fitting
    raise ConfigError(
        f"{fitting.describe()}: more than the limit of {limit / 1e9:.1f} GB; allow more, or use "
        "fewer items, hidden units or users in a batch"
        + (", n_networks=1 or factors=False" if plan.wide else "")
        + (", or start_from_factors=False" if n_start else "")
    )


def _with_smaller_block(plan: MemoryPlan, limit: int) -> MemoryPlan:
    """Hold as many scores at once as the limit leaves room for, and a few at least."""
    too_much = max(0, plan.total - limit)
    return replace(plan, block=max(_LEAST_BLOCK, plan.block - too_much))


@dataclass(frozen=True)
class RecommendingPlan:
    """Bytes that the parts of recommending take at most."""

    weights: int
    """Of the network."""

    histories: int
    """Counts, and what is made of them."""

    answers: int
    """Ids and scores of all users."""

    block: int
    """Of the scores that are held at once, float32."""

    @property
    def total(self) -> int:
        """At the same time at most."""
        scores = _BLOCK_COPIES * self.block
        return _INTERPRETER + self.weights + self.histories + self.answers + scores

    def describe(self) -> str:
        """In one line."""
        parts = {
            "weights": self.weights,
            "histories": self.histories,
            "answers": self.answers,
            "a block of scores": _BLOCK_COPIES * self.block,
        }
        return f"recommending takes about {_told(self.total, parts)}"


def plan_recommending(
    n_users: int, n_pairs: int, n: int, model: ModelConfig, *, limit: int | None = None
) -> RecommendingPlan:
    """Estimate what recommending takes; with a limit, hold as many scores at once as fit.

    Args:
        n_users: To recommend for.
        n_pairs: Of users and items in their histories.
        n: Items for each user.
        model: The network.
        limit: Bytes.

    Returns:
        The plan.

    Raises:
        ConfigError: If not even the scores of one user fit.
    """
    per_item = 4 * 3 * model.n_hidden + 12 * model.n_neighbours
    plan = RecommendingPlan(
        weights=model.n_items * per_item,
        histories=_PAIR_BYTES // 4 * n_pairs,
        answers=_ANSWER_BYTES * n_users * n,
        block=BLOCK_BYTES,
    )
    if limit is None or plan.total <= limit:
        return plan
    one_user = 4 * model.n_items
    too_much = -(-(plan.total - limit) // _BLOCK_COPIES)
    plan = replace(plan, block=max(one_user, plan.block - too_much))
    if plan.total > limit:
        raise ConfigError(
            f"{plan.describe()}: more than the limit of {limit / 1e9:.1f} GB; allow more, or "
            "recommend for fewer users at a time"
        )
    return plan


def _told(total: int, parts: dict[str, int]) -> str:
    """Sizes in GB, in words."""
    told = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in parts.items() if size)
    return f"{total / 1e9:.1f} GB at most ({told})"
