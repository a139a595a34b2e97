"""Memory that fitting and recommending take, and how they stay within a limit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cfnade.errors import ConfigError
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.scorer import BLOCK_BYTES

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_INTERPRETER = 400 * 10**6  # Python with torch and the libraries beneath
_LEAST_BLOCK = 2**20
_PAIR_BYTES = 100  # counts, ratings and confidences of a pair, and copies on the way
_WEIGHT_COPIES = 8  # weights, gradients, two of Adam, average, best, and two while items move
_FACTOR_COPIES = 3  # of users, of items, and copies on the way
_JUDGED_COPIES = 3  # of the scores of held-out users: network, direct path, their sum
_ANSWER_BYTES = 40  # id and score of a recommended item, and copies on the way
_BLOCK_COPIES = 3  # scores, the direct path's part of them, and the marks of the selection


def parse_bytes(limit: str | float) -> int:
    """Bytes of a limit such as `4GB`, `512 MiB` or 2e9.

    Raises:
        ConfigError: If it is not a size.
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
    """Bytes that the parts of fitting take at most."""

    data: int
    """Counts, ratings and confidences."""

    weights: int
    """Weights, and all copies that training keeps."""

    update: int
    """Logits of one batch."""

    direct: int
    """Regressions of the direct path."""

    factors: int
    """The factorisation that training starts from."""

    judged: int
    """Scores of the held-out users."""

    block: int
    """Scores that are ranked at once."""

    @classmethod
    def of(
        cls,
        n_users: int,
        n_pairs: int,
        model: ModelConfig,
        training: TrainingConfig,
        *,
        direct: int = 0,
        n_factors: int = 0,
        judged_users: int = 0,
    ) -> MemoryPlan:
        """Estimate what fitting takes.

        Args:
            n_users: With a history.
            n_pairs: Of users and items.
            model: The network.
            training: How it is trained.
            direct: Bytes of the direct path; 0 without it.
            n_factors: That training starts from.
            judged_users: Held-out users.
        """
        share, n_items = training.context_share, model.n_items
        n_targets = n_items if share is None else int((1.0 - share) * n_items) + 1
        return cls(
            data=_PAIR_BYTES * n_pairs,
            weights=4 * 3 * n_items * model.n_hidden * _WEIGHT_COPIES,
            update=4 * training.batch_size * n_targets * 2,
            direct=direct,
            factors=4 * (n_users + n_items) * n_factors * _FACTOR_COPIES,
            judged=4 * judged_users * n_items * _JUDGED_COPIES,
            block=2 * BLOCK_BYTES,
        )

    @property
    def total(self) -> int:
        """At the same time at most."""
        in_turn = max(self.update, self.factors)
        held = self.data + self.weights + self.direct + self.judged + self.block
        return _INTERPRETER + held + in_turn

    def describe(self) -> str:
        """In one line."""
        parts = {
            "data": self.data,
            "weights": self.weights,
            "an update": self.update,
            "direct path": self.direct,
            "factors": self.factors,
            "held-out users": self.judged,
            "a block of scores": self.block,
        }
        return f"fitting takes about {_sizes(self.total, parts)}"


def make_fit(plan: MemoryPlan, limit: int) -> MemoryPlan:
    """Stay within a limit: rank fewer scores at once, then leave the direct path out.

    Raises:
        ConfigError: If that is not enough.
    """
    for wanted in (plan, replace(plan, direct=0)):
        too_much = max(0, wanted.total - limit)
        smaller = replace(wanted, block=max(_LEAST_BLOCK, wanted.block - too_much))
        if smaller.total <= limit:
            return smaller
    raise ConfigError(
        f"{smaller.describe()}: more than the limit of {limit / 1e9:.1f} GB; allow more, or use "
        "fewer items, hidden units or users in a batch"
        + (", or recipe__start='random'" if plan.factors else "")
    )


@dataclass(frozen=True)
class RecommendingPlan:
    """Bytes that the parts of recommending take at most."""

    weights: int
    """Of the network."""

    histories: int
    """Counts, and copies on the way."""

    answers: int
    """Ids and scores of all users."""

    block: int
    """Scores that are held at once, float32."""

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
        return f"recommending takes about {_sizes(self.total, parts)}"


def plan_recommending(
    n_users: int, n_pairs: int, n: int, model: ModelConfig, *, limit: int | None = None
) -> RecommendingPlan:
    """Estimate what recommending takes; with a limit, hold as many scores at once as fit.

    Args:
        n_users: To recommend for.
        n_pairs: In their histories.
        n: Items for each user.
        model: The network.
        limit: Bytes.

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


def _sizes(total: int, parts: dict[str, int]) -> str:
    sizes = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in parts.items() if size)
    return f"{total / 1e9:.1f} GB at most ({sizes})"
