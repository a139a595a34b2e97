"""Memory that fitting and recommending take, and how they stay within a limit."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace

from cfnade.errors import ConfigError
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.scorer import BLOCK_BYTES

logger = logging.getLogger(__name__)

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
        """Estimate what fitting takes; `direct` is the bytes of the direct path."""
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
        held = self.data + self.weights + self.direct + self.judged + self.block
        return _INTERPRETER + held + max(self.update, self.factors)

    def describe(self) -> str:
        """In one line."""
        parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in vars(self).items() if size)
        return f"fitting takes about {self.total / 1e9:.1f} GB at most ({parts})"

    def within(self, limit: int) -> MemoryPlan:
        """Stay within a limit: rank fewer scores at once, then leave the direct path out.

        Raises:
            ConfigError: If that is not enough.
        """
        for wanted in (self, replace(self, direct=0)):
            too_much = max(0, wanted.total - limit)
            smaller = replace(wanted, block=max(_LEAST_BLOCK, wanted.block - too_much))
            if smaller.total <= limit:
                return smaller
        raise ConfigError(
            f"{smaller.describe()}: more than the limit of {limit / 1e9:.1f} GB; allow more, or "
            "use fewer items, hidden units or users in a batch"
            + (", or recipe__start='random'" if self.factors else "")
        )


def recommending_block(n_users: int, n_pairs: int, n: int, model: ModelConfig, limit: int) -> int:
    """Bytes of scores to hold at once when recommending, within a limit.

    Args:
        n_users: To recommend for.
        n_pairs: In their histories.
        n: Items for each user.
        model: The network.
        limit: Bytes.

    Raises:
        ConfigError: If not even the scores of one user fit.
    """
    weights = model.n_items * (4 * 3 * model.n_hidden + 12 * model.n_neighbours)
    answers = _ANSWER_BYTES * n_users * n
    fixed = _INTERPRETER + weights + _PAIR_BYTES // 4 * n_pairs + answers
    block = min(BLOCK_BYTES, max(4 * model.n_items, (limit - fixed) // _BLOCK_COPIES))
    total = fixed + _BLOCK_COPIES * block
    message = f"recommending takes about {total / 1e9:.1f} GB at most"
    if total > limit:
        raise ConfigError(
            f"{message}: more than the limit of {limit / 1e9:.1f} GB; allow more, or recommend "
            "for fewer users at a time"
        )
    logger.info("%s", message)
    return block
