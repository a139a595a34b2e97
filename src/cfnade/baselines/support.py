"""What several baselines share: checked input, optional libraries, fits with several stops."""

from __future__ import annotations

import copy
import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError, MissingExtraError


class Iterative(ABC):
    """A model that is trained for a number of iterations and can be copied on the way."""

    iterations: int

    @abstractmethod
    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        """Fit once and yield a fitted copy after each of these iterations, ascending.

        Each copy equals a model that was fitted for that many iterations, so choosing the
        number of iterations costs one fit.
        """

    def fit(self, counts: CountMatrix) -> Self:
        """Learn from sparse counts, (n_users, n_items); a count above 0 is a like."""
        for fitted in self.fits(counts, [self.iterations]):
            self.__dict__.update(fitted.__dict__)
        return self

    def copy_at(self, iterations: int, **learned: Any) -> Self:
        """A fitted copy after some iterations, with the attributes it learned."""
        fitted = copy.copy(self)
        fitted.__dict__.update(iterations=iterations, **learned)
        return fitted


def stretches(iterations: Sequence[int]) -> list[tuple[int, int]]:
    """Each stop with the iterations since the one before; stops must ascend from at least 1."""
    found = [(stop, stop - before) for before, stop in pairwise([0, *iterations])]
    if not found or min(length for _, length in found) < 1:
        raise ConfigError(f"iterations must be at least 1 and ascending, got {list(iterations)}")
    return found


def checked_histories(histories: CountMatrix, n_items: int) -> CountMatrix:
    """Histories in the package's form; refuses another number of items than the model's."""
    histories = as_count_matrix(histories)
    if histories.shape[1] != n_items:
        raise DataError(
            f"the model was fitted on {n_items} items, the histories have {histories.shape[1]}; "
            "columns must be the same items in the same order"
        )
    return histories


def plain_csr(counts: CountMatrix, values: Any, dtype: type = np.float32) -> csr_matrix[Any]:
    """The pairs with other values (one each, or one for all), in the form that libraries take."""
    data = np.empty(counts.nnz, dtype=dtype)
    data[:] = values
    indices, indptr = counts.indices.astype(np.int32), counts.indptr.astype(np.int32)
    return csr_matrix((data, indices, indptr), shape=counts.shape)


def rated_or_one(
    counts: CountMatrix, relative_rating: RelativeRating, *, weigh_counts: bool
) -> csr_matrix[Any]:
    """The pairs with their relative ratings as values, or with 1."""
    ratings = relative_rating.transform(counts)
    return plain_csr(ratings, ratings.data if weigh_counts else 1.0)


def library(module: str, purpose: str) -> Any:
    """Import a module of `implicit` or `irspack`, or say how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # irspack uses deprecated features of pydantic
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], "bench", purpose) from error
