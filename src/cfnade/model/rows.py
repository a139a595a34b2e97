"""Where training gets its users from, batch by batch: a matrix in memory, or anything like it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.feedback import confidence
from cfnade.model.config import TrainingConfig
from cfnade.model.exchange import Part
from cfnade.model.network import CFNADENetwork
from cfnade.model.start import start_bias


class TrainingRows(Protocol):
    """Users and the confidence of their likes."""

    @property
    def n_users(self) -> int:
        """How many there are with any like, over all processes."""
        ...

    @property
    def n_watchers(self) -> NDArray[np.integer]:
        """How many of them like each item, (n_items,)."""
        ...

    def start(self, network: CFNADENetwork, training: TrainingConfig) -> None:
        """Give a network with random weights the output bias that is asked for, in place."""
        ...

    def batches(
        self, training: TrainingConfig, epoch: int, rng: np.random.Generator
    ) -> Iterator[tuple[csr_array, Part]]:
        """Every user once, in batches of a random order; draws from `rng` before it returns.

        Yields:
            Confidence of the likes of this process's users, sparse, (n_here, n_items), at least
            one of them, and which users of the batch they are. All processes get as many batches.
        """
        ...

    def identity(self) -> list[Any]:
        """What tells these users from others, as JSON can hold it: for resuming."""
        ...


class RowsInMemory:
    """All users in one sparse matrix."""

    def __init__(self, ratings: csr_array, alpha: float) -> None:
        """Turn relative ratings, (n_users, n_items), into confidences."""
        self.users = np.flatnonzero(np.diff(ratings.indptr))  # the others have nothing to teach
        self.confidence = csr_array(
            (confidence(ratings.data, alpha), ratings.indices, ratings.indptr), ratings.shape
        )

    @property
    def n_users(self) -> int:
        """How many have any like."""
        return int(self.users.size)

    @property
    def n_watchers(self) -> NDArray[np.integer]:
        """How many of them like each item, (n_items,)."""
        return np.bincount(self.confidence.indices, minlength=self.confidence.shape[1])

    def start(self, network: CFNADENetwork, training: TrainingConfig) -> None:
        """Give a network with random weights the output bias that is asked for, in place."""
        start_bias(network, training, self.confidence)

    def batches(
        self, training: TrainingConfig, epoch: int, rng: np.random.Generator
    ) -> Iterator[tuple[csr_array, Part]]:
        """Every user once, in a random order; see `TrainingRows`."""
        users = rng.permutation(self.users)
        size = training.users_per_update(users.size)
        chosen = (users[start : start + size] for start in range(0, users.size, size))
        return ((self.confidence[batch], Part(0, batch.size)) for batch in chosen)

    def identity(self) -> list[Any]:
        """Shape and checksum."""
        pairs = self.confidence
        digest = hashlib.sha256()
        for array in (pairs.indptr, pairs.indices, pairs.data):
            digest.update(np.ascontiguousarray(array).data)
        return [*pairs.shape, digest.hexdigest()]
