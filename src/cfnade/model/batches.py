"""Where training gets its users from, and how several processes share them: two small seams.

`RowsInMemory` and `Exchange` are the usual ones. `cfnade.scale` has users on disk and processes
that add up their gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.ratings import confidence, likes_alone, share_logit
from cfnade.model.config import BiasStart, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor


class TrainingRows(Protocol):
    """Users and the confidence of their likes, and of their dislikes if any are known."""

    n_users: int
    """Users with any like, over all processes."""

    n_watchers: NDArray[np.integer]
    """Users who like each item, (n_items,)."""

    def total_confidence(self) -> NDArray[np.floating]:
        """Sum of the confidences of each item's likes, (n_items,)."""
        ...

    def batches(
        self, training: TrainingConfig, epoch: int, rng: np.random.Generator
    ) -> Iterator[tuple[csr_array, int]]:
        """Every user once, in batches of random order; draws from `rng` before it returns.

        Yields:
            Confidence of the likes of this process's users, sparse, (n_here, n_items), at least
            one user, and the number of users in the whole batch, over all processes. All processes
            get the same number of batches. A value -c is a dislike with confidence c.
        """
        ...

    def identity(self) -> list[Any]:
        """What identifies this data, as JSON: a resumed run must have the same."""
        ...


class RowsInMemory:
    """All users in one sparse matrix."""

    def __init__(self, ratings: csr_array, alpha: float) -> None:
        """Turn relative ratings, (n_users, n_items), into confidences; below 0 for dislikes.

        Users without a like are left out, whatever they dislike.
        """
        likes = likes_alone(ratings)
        self.users = np.flatnonzero(np.diff(likes.indptr))
        self.n_users = int(self.users.size)
        self.n_watchers: NDArray[np.integer] = np.bincount(likes.indices, minlength=likes.shape[1])
        self.confidence = csr_array(
            (confidence(ratings.data, alpha), ratings.indices, ratings.indptr), ratings.shape
        )

    def total_confidence(self) -> NDArray[np.floating]:
        """Sum of the confidences of each item's likes, (n_items,)."""
        pairs = likes_alone(self.confidence)
        return np.asarray(np.bincount(pairs.indices, pairs.data, pairs.shape[1]), np.float64)

    def batches(
        self, training: TrainingConfig, epoch: int, rng: np.random.Generator
    ) -> Iterator[tuple[csr_array, int]]:
        """Every user once, in a random order; see `TrainingRows`."""
        users, size = rng.permutation(self.users), training.batch_size
        chosen = (users[start : start + size] for start in range(0, users.size, size))
        return ((self.confidence[batch], batch.size) for batch in chosen)

    def identity(self) -> list[Any]:
        """Shape and checksum."""
        return identity_of(self.confidence)


def identity_of(pairs: csr_array) -> list[Any]:
    """Shape and checksum of a sparse matrix, as JSON."""
    digest = hashlib.sha256()
    for array in (pairs.indptr, pairs.indices, pairs.data):
        digest.update(np.ascontiguousarray(array).data)
    return [*pairs.shape, digest.hexdigest()]


def first_bias(start: BiasStart, rows: TrainingRows) -> NDArray[np.floating]:
    """The output bias to start from, (n_items,); see `TrainingConfig.bias_start`."""
    if start == "share":
        return share_logit(rows.n_watchers, rows.n_users)
    if start == "odds":
        n_others = rows.n_users - rows.n_watchers
        odds: NDArray[np.float64] = (rows.total_confidence() + 0.5) / (n_others + 0.5)
        return np.log(odds)
    return np.zeros(len(rows.n_watchers))


class Exchange:
    """Adds up what several processes found on their parts of a batch; this one is alone.

    `cfnade.scale.process_group.Together` is that of several processes.
    """

    is_first = True
    """Whether this process keeps the checkpoints."""

    n_bytes = 0
    """Bytes that this process sent."""

    n_earlier_starts = 0
    """Earlier starts of the same job; only the first process knows them."""

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in place.

        Args:
            tensors: Contiguous, of the same shapes in the same order everywhere.
        """

    def add_up_rows(
        self, rows: Tensor, values: Sequence[Tensor], n_rows: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Sum arrays of which each process has some rows; only those rows travel.

        Args:
            rows: Rows that this process has, ascending, (n_here,).
            values: Those rows of each array, (n_here, n_columns) each.
            n_rows: Of the whole arrays.

        Returns:
            The rows that any process has, ascending, (n_any,), and their sums, (n_any, n_columns)
            each.
        """
        return rows, list(values)

    def check_same(self, numbers: Sequence[int], what: str) -> None:
        """Make sure that all processes have the same numbers.

        Args:
            numbers: Of the same length everywhere.
            what: Where they are from, for the message.

        Raises:
            TrainingError: In all processes, if one of them differs from the first.
        """
