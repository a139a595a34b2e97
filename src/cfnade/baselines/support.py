"""What several baselines share: checked input, optional libraries, fits with several stops."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from scipy.sparse import csr_matrix

from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError, MissingExtraError
from cfnade.threads import available_threads


class Iterative(Protocol):
    """A model that is trained for a number of iterations and can be copied on the way."""

    iterations: int

    def fits(self, counts: CountMatrix, iterations: Sequence[int]) -> Iterator[Any]:
        """Fit once and yield a fitted copy after each of these iterations, ascending.

        Each copy equals a model that was fitted for that many iterations, so choosing the
        number of iterations costs one fit.
        """
        ...


Model = TypeVar("Model", bound=Iterative)


def fit_to_end(model: Model, counts: CountMatrix) -> Model:
    """Fit a model for its own number of iterations."""
    for fitted in model.fits(counts, [model.iterations]):
        model.__dict__.update(fitted.__dict__)
    return model


def copy_at(model: Model, iterations: int, **learned: Any) -> Model:
    """A fitted copy of a model after some iterations, with the attributes it learned."""
    fitted = copy.copy(model)
    fitted.__dict__.update(iterations=iterations, **learned)
    return fitted


def check_stops(iterations: Sequence[int]) -> None:
    """Refuse stops that do not ascend from at least 1."""
    if not iterations or any(a >= b for a, b in pairwise([0, *iterations])):
        raise ConfigError(f"iterations must be at least 1 and ascending, got {list(iterations)}")


def checked_histories(histories: CountMatrix, n_items: int) -> CountMatrix:
    """Histories in the package's form.

    Raises:
        DataError: If they have another number of items than the model.
    """
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
    """Import a module of `implicit` or `irspack`.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # irspack uses deprecated features of pydantic
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], "bench", purpose) from error


def threads_or_all(n_threads: int | None) -> int:
    """The number of threads; None stands for all available ones."""
    return available_threads() if n_threads is None else n_threads
