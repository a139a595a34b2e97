"""IMF on several sources of feedback, with one weight for each (Li et al., 2010)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.baselines.imf import IMF
from cfnade.baselines.support import Iterative
from cfnade.data.events import EventLog
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError


class CollectiveIMF(Iterative):
    """IMF whose confidence adds up the sources: `c = 1 + alpha * sum over kinds of w_k r_k`.

    Each kind of event is a source with relative ratings r_k of its own, and all share the factors
    of users and items.

    Args:
        event_weights: w_k of each kind of event; kinds that are not named weigh 1.
        settings: Of the `IMF` that factorises the sum.
    """

    def __init__(self, event_weights: Mapping[str, float] | None = None, **settings: Any) -> None:
        """Store the settings."""
        known: Any = _Known()
        self.event_weights = dict(event_weights or {})
        self.imf = IMF(**settings, relative_rating=known)
        self.iterations = self.imf.iterations

    def fits(self, counts: Any, iterations: Sequence[int]) -> Iterator[Self]:
        """As `IMF.fits`, on `Interactions` with kinds of events."""
        log, shape = _log_of(counts), counts.counts.shape
        self.ratings_ = {
            kind: RelativeRating().fit(log.of_kind(kind).counts(shape)) for kind in log.kinds
        }
        for imf in self.imf.fits(self.histories(counts), iterations):
            yield self.copy_at(imf.iterations, imf=imf)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history, as `histories` gives them; see `Scorer`."""
        return self.imf.scores(histories)

    def histories(self, data: Interactions) -> CountMatrix:
        """What the events of each pair add to its confidence, (n_users, n_items)."""
        log = _log_of(data)
        total = csr_array(data.counts.shape)
        for kind in log.kinds:
            weight = self.event_weights.get(kind, 1.0)
            if weight > 0 and kind in self.ratings_:
                rated = self.ratings_[kind].transform(log.of_kind(kind).counts(data.counts.shape))
                total = total + weight * rated
        return as_count_matrix(total)


class _Known:
    """Relative ratings of counts that are relative ratings already."""

    def transform(self, counts: CountMatrix) -> CountMatrix:
        return counts


def _log_of(data: Any) -> EventLog:
    if not isinstance(data, Interactions) or data.log is None or not data.log.kinds:
        raise DataError(
            "the collective model needs a column with the kind of each event; name it as event_col"
        )
    return data.log
