"""The places of held-out items among a user's candidates, from which all metrics follow.

Scores are read once and no top-k list is built, so further metrics cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import CountMatrix
from cfnade.data.splitting import overlap
from cfnade.errors import ConfigError, DataError
from cfnade.scorer import Scorer, rows_per_block

Candidates: TypeAlias = Literal["unseen", "all"]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the users done and their number."""

# With few held-out items comparing is faster, with many sorting: the costs cross at 6 held-out
# items of 3,416 and at 14 of 17,348.
_SORT_ABOVE = 8


@dataclass(frozen=True)
class Places:
    """The place of each held-out item: somewhere in `n_above ... n_above + n_tied - 1`."""

    user: NDArray[np.int64]
    """The user of each pair, 0 ... n_users - 1, (n_pairs,). Every user has at least one."""

    n_above: NDArray[np.int64]
    """Candidates with a higher score, (n_pairs,)."""

    n_tied: NDArray[np.int64]
    """Candidates with the same score, the item itself included, (n_pairs,)."""

    n_candidates: NDArray[np.int64]
    """Ranked items of each user, (n_users,)."""

    @cached_property
    def n_held_out(self) -> NDArray[np.int64]:
        """Held-out items of each user, (n_users,)."""
        return np.bincount(self.user, minlength=self.n_candidates.size)

    def sum_by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up values of pairs, (n_pairs,), for each user, (n_users,)."""
        sums = np.bincount(self.user, weights=values, minlength=self.n_candidates.size)
        return np.asarray(sums, dtype=np.float64)


def place_held_out(
    scorer: Scorer,
    histories: CountMatrix,
    held_out: CountMatrix,
    *,
    candidates: Candidates = "unseen",
    block_size: int | None = None,
    progress: Progress | None = None,
) -> Places:
    """Find the places of the held-out items, scoring one block of users at a time.

    Arguments and errors are those of `evaluate`. Users are numbered as in `Evaluation.users`.
    """
    n_items = held_out.shape[1]
    if block_size is None:
        block_size = rows_per_block(n_items)
    _check(histories, held_out, candidates, block_size)
    n_held_out = np.diff(held_out.indptr)
    users = np.flatnonzero(n_held_out)
    n_above = np.empty(held_out.nnz, dtype=np.int64)
    n_tied = np.empty(held_out.nnz, dtype=np.int64)
    n_candidates = np.full(users.size, n_items, dtype=np.int64)
    if candidates == "unseen":
        n_candidates -= np.diff(histories.indptr)[users]
    for start in range(0, users.size, block_size):
        block = users[start : start + block_size]
        known = histories[block]
        ranked = _checked_scores(scorer, known, block)  # (n_block, n_items)
        if candidates == "unseen":
            ranked = ranked.copy()  # the original may belong to the scorer
            ranked[np.repeat(np.arange(block.size), np.diff(known.indptr)), known.indices] = -np.inf
        for row, user in enumerate(block):
            pairs = slice(held_out.indptr[user], held_out.indptr[user + 1])
            targets = ranked[row, held_out.indices[pairs]]
            n_above[pairs], n_tied[pairs] = count_above_and_tied(ranked[row], targets)
        if progress is not None:
            progress(min(start + block_size, users.size), users.size)
    user_of_pair = np.repeat(np.arange(users.size), n_held_out[users])
    return Places(user_of_pair, n_above, n_tied, n_candidates)


def count_above_and_tied(
    scores: NDArray[np.floating], targets: NDArray[np.floating]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the candidates that score higher than, and the same as, each target.

    Args:
        scores: Of one user's items, (n_items,); minus infinity if not a candidate.
        targets: Scores of the held-out items, (n_held_out,).
    """
    if targets.size > _SORT_ABOVE:
        ascending = np.sort(scores)
        n_above = scores.size - np.searchsorted(ascending, targets, side="right")
        n_at_least = scores.size - np.searchsorted(ascending, targets, side="left")
    else:
        n_above = np.array([np.count_nonzero(scores > target) for target in targets])
        n_at_least = np.array([np.count_nonzero(scores >= target) for target in targets])
    return n_above, n_at_least - n_above


def _check(histories: CountMatrix, held_out: CountMatrix, candidates: str, block_size: int) -> None:
    if candidates not in ("unseen", "all"):
        raise ConfigError(f"candidates must be 'unseen' or 'all', got {candidates!r}")
    if block_size < 1:
        raise ConfigError(f"block_size must be at least 1 user, got {block_size}")
    if histories.shape != held_out.shape:
        raise DataError(
            f"histories are {histories.shape}, held-out counts {held_out.shape}; both need the "
            "same users and items in the same order"
        )
    if held_out.nnz == 0:
        raise DataError("there are no held-out pairs to evaluate on; hold some out first")
    if candidates == "unseen":
        both = overlap(histories, held_out)
        if both.nnz:
            user = int(np.flatnonzero(np.diff(both.indptr))[0])
            raise DataError(
                f"{both.nnz} of {held_out.nnz} held-out pairs are in the histories too, the first "
                f"is row {user}, column {int(both.indices[0])}; drop them from one side, or rank "
                "all items with candidates='all'"
            )


def _checked_scores(
    scorer: Scorer, histories: CountMatrix, users: NDArray[np.int64]
) -> NDArray[np.floating]:
    name = type(scorer).__name__
    scores: NDArray[Any] = np.asarray(scorer.scores(histories))
    if scores.shape != histories.shape:
        raise DataError(
            f"{name} returned scores of shape {scores.shape} for histories of shape "
            f"{histories.shape}; a Scorer gives one score per user and item"
        )
    is_finite = np.isfinite(scores)
    if not is_finite.all():
        row = int(np.argmin(is_finite.all(axis=1)))
        bad = np.flatnonzero(~is_finite[row])
        raise DataError(
            f"{name} gave {bad.size} of {scores.shape[1]} items a score that is NaN or infinite "
            f"for user row {users[row]}, the first is {scores[row, bad[0]]} for column {bad[0]}; "
            "check how it was trained"
        )
    return scores if np.issubdtype(scores.dtype, np.floating) else scores.astype(np.float64)
