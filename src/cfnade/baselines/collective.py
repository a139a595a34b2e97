"""IMF on several sources of feedback, with one weight for each (Li et al., 2010)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from scipy.sparse import csr_array

from cfnade.baselines.imf import IMF
from cfnade.data.events import EventLog
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError


@dataclass(eq=False)
class CollectiveIMF(IMF):
    """IMF whose confidence adds up the sources: `c = 1 + alpha * sum over kinds of w_k r_k`.

    Each kind of event is a source with relative ratings r_k of its own, and all share the factors
    of users and items.

    Args:
        event_weights: w_k of each kind of event; kinds that are not named weigh 1.
    """

    event_weights: Mapping[str, float] = field(default_factory=dict)
    ratings_: dict[str, RelativeRating] = field(init=False, repr=False)

    def fits(self, counts: Any, iterations: Sequence[int]) -> Iterator[Self]:
        """As `IMF.fits`, on `Interactions` with kinds of events."""
        log = _log_of(counts)
        shape = counts.counts.shape
        ratings = {
            kind: RelativeRating().fit(log.of_kind(kind).counts(shape)) for kind in log.kinds
        }
        evidence = self._evidence(counts, ratings)
        unchanged: Any = _Unchanged()
        for fitted in replace(self, relative_rating=unchanged)._fits(evidence, iterations):
            fitted.ratings_ = ratings
            yield fitted

    def _fits(self, evidence: CountMatrix, iterations: Sequence[int]) -> Iterator[Self]:
        yield from super().fits(evidence, iterations)

    def histories(self, data: Interactions) -> CountMatrix:
        """What the events of each pair add to its confidence, (n_users, n_items)."""
        return self._evidence(data, self.ratings_)

    def _evidence(self, data: Interactions, ratings: Mapping[str, RelativeRating]) -> CountMatrix:
        log = _log_of(data)
        total = csr_array(data.counts.shape)
        for kind in log.kinds:
            weight = self.event_weights.get(kind, 1.0)
            if weight > 0 and kind in ratings:
                rated = ratings[kind].transform(log.of_kind(kind).counts(data.counts.shape))
                total = total + weight * rated
        return as_count_matrix(total)


class _Unchanged:
    """Stands where relative ratings would be computed: they are known already."""

    def transform(self, counts: CountMatrix) -> CountMatrix:
        return counts


def _log_of(data: Any) -> EventLog:
    if not isinstance(data, Interactions) or data.log is None or not data.log.kinds:
        raise DataError(
            "the collective model needs a column with the kind of each event; name it as event_col"
        )
    return data.log
