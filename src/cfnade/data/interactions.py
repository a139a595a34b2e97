"""Counts with the ids of their users and items: the result of ingest."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from cfnade.checks import check_at_least
from cfnade.data.events import Clock, EventLog, Weights
from cfnade.data.pairs import keys_of, pair_keys
from cfnade.errors import ConfigError, DataError

logger = logging.getLogger(__name__)

_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_CHUNK = 1 << 20  # numbers converted at a time, to save memory

CountMatrix: TypeAlias = csr_array
"""Counts, sparse, (n_users, n_items): float64, rows sorted, no duplicates, no stored zeros. Where
a model reads them, a count below 0 is a dislike."""


def as_count_matrix(matrix: Any, *, signed: bool = False) -> CountMatrix:
    """Bring any scipy sparse matrix, (n_users, n_items), into the form of `CountMatrix`.

    Duplicates are summed and zeros dropped. The input is not changed. Counts that are NaN or
    infinite raise `DataError`, and so do negative ones unless the counts are `signed`.
    """
    if not issparse(matrix):
        raise DataError(
            f"expected a scipy sparse matrix of counts, got {type(matrix).__name__}; "
            "wrap a dense array as scipy.sparse.csr_array(array)"
        )
    if len(matrix.shape) != 2:
        raise DataError(
            f"expected counts of shape (n_users, n_items), got {matrix.shape}; "
            "make one user a matrix of one row"
        )
    if matrix.dtype.kind == "c":
        raise DataError("Complex data not supported: counts are real numbers of at least 0")
    counts = csr_array(matrix, dtype=np.float64)
    bad = ~np.isfinite(counts.data)
    if not signed:
        bad |= counts.data < 0
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(counts.indptr, first, side="right")) - 1
        raise DataError(
            f"{int(bad.sum())} of {counts.nnz} counts are {'' if signed else 'negative, '}NaN or "
            f"infinite; the first is {counts.data[first]} at row {row}, column "
            f"{int(counts.indices[first])}; counts must be finite"
            f"{'' if signed else ' and at least 0'}"
        )
    if counts.has_canonical_format and (counts.data != 0).all():
        return counts
    counts = counts.copy()
    counts.sum_duplicates()
    counts.eliminate_zeros()
    return counts


def with_dislikes(counts: CountMatrix, dislikes: CountMatrix | None) -> csr_array:
    """Counts with a -1 for each dislike that has no count, (n_users, n_items)."""
    if dislikes is None:
        return counts
    disliked = as_count_matrix(dislikes - dislikes.multiply(counts.astype(bool)))
    disliked.data[:] = 1.0
    return csr_array(counts - disliked).sorted_indices()


@dataclass(frozen=True, eq=False)
class Interactions:
    """Who interacted with what, and how often; a user may have an empty row."""

    counts: CountMatrix
    """Interactions per pair, (n_users, n_items)."""

    user_ids: NDArray[Any]
    """The original id of each row, (n_users,)."""

    item_ids: NDArray[Any]
    """The original id of each column, (n_items,)."""

    item_names: NDArray[Any] | None = None
    """A readable name for each column, (n_items,), where one is known."""

    log: EventLog | None = None
    """The events behind the counts, where their times or kinds are known."""

    event_weights: Weights | None = None
    """What an event of each kind adds to the count of its pair; None counts all alike."""

    target_event: str | None = None
    """The kind of event to predict; None predicts any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", as_count_matrix(self.counts))
        expected = {"user_ids": self.n_users, "item_ids": self.n_items, "item_names": self.n_items}
        for field, length in expected.items():
            values = getattr(self, field)
            if values is None:
                continue
            if not isinstance(values, np.ndarray):
                object.__setattr__(self, field, as_objects(values))
            if len(values) != length:
                raise DataError(f"{field} has {len(values)} entries, the counts need {length}")
        if self.log is not None and self.log.n_entries:
            places = {"user": (self.log.user, self.n_users), "item": (self.log.item, self.n_items)}
            for role, (numbers, length) in places.items():
                if numbers.min() < 0 or numbers.max() >= length:
                    raise DataError(
                        f"the log has {role} numbers from {numbers.min()} to {numbers.max()}, "
                        f"the counts need 0 to {length - 1}"
                    )

    @classmethod
    def from_log(
        cls,
        log: EventLog,
        user_ids: NDArray[Any],
        item_ids: NDArray[Any],
        item_names: NDArray[Any] | None = None,
    ) -> Interactions:
        """Count the events of a log."""
        counts = log.counts((len(user_ids), len(item_ids)))
        return cls(counts, user_ids, item_ids, item_names, log)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Interactions:
        """Wrap a scipy sparse matrix; row and column numbers become the ids."""
        counts = as_count_matrix(matrix)
        n_users, n_items = counts.shape
        return cls(counts, np.arange(n_users), np.arange(n_items))

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return int(self.counts.shape[0])

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return int(self.counts.shape[1])

    @property
    def n_pairs(self) -> int:
        """Number of (user, item) pairs with a count above zero."""
        return int(self.counts.nnz)

    @property
    def clock(self) -> Clock | None:
        """What the times of the events are; None if they are unknown."""
        return None if self.log is None else self.log.clock

    @cached_property
    def item_index(self) -> dict[Hashable, int]:
        """Column of each item id."""
        return _index(self.item_ids, "item")

    @cached_property
    def user_index(self) -> dict[Hashable, int]:
        """Row of each user id."""
        return _index(self.user_ids, "user")

    def item_label(self, column: int) -> str:
        """The item's name if known, else its id."""
        labels = self.item_ids if self.item_names is None else self.item_names
        return str(labels[column])

    def with_item_names(self, names: Mapping[Hashable, str]) -> Interactions:
        """Add names by item id; an item without one gets its id as the name."""
        items = self.item_ids.tolist()
        if names and names.keys().isdisjoint(items):
            logger.warning(
                "none of the %d names matches an item: their ids look like %r, the items' like "
                "%r; write both alike",
                len(names),
                next(iter(names)),
                items[0],
            )
        labels = [names.get(item, str(item)) for item in items]
        return replace(self, item_names=np.array(labels, dtype=object))

    def weighed(self, weights: Weights | None, target: str | None = None) -> Interactions:
        """Weigh events by their kind, and name the kind to predict.

        Args:
            weights: One for each kind of event, 0 to ignore it, negative for a dislike; None
                counts all events alike.
            target: The kind to predict; None predicts any.

        Raises:
            ConfigError: If there are no kinds of events, or the names are not theirs.
        """
        if weights is None and target is None and self.event_weights is None:
            return replace(self, target_event=None)
        if not (weights is None or isinstance(weights, Mapping)):
            raise ConfigError(
                f"event weights are a number by kind of event, such as {{'view': 1, 'purchase': "
                f"10}}; got {weights!r:.60}"
            )
        if self.log is None or not self.log.kinds:
            raise ConfigError(
                "weights and a target need a column with the kind of each event; name it as "
                "event_col"
            )
        if weights is not None:  # kinds are text, whatever the type of their column
            weights = {str(kind): weight for kind, weight in weights.items()}
        if target is not None:
            target = str(target)
            self.log.of_kind(target)
            if weights is not None and not weights.get(target, 0.0) > 0.0:
                raise ConfigError(
                    f"the weight of the event to predict, {target!r}, must be above 0"
                )
        counts = self.log.counts(self.counts.shape, weights)
        if not counts.nnz:
            raise DataError("no pair has a count above 0 with these event weights")
        return replace(self, counts=counts, event_weights=weights, target_event=target)

    @cached_property
    def target_counts(self) -> CountMatrix:
        """Events of the kind to predict, (n_users, n_items); all counts without such a kind."""
        if self.target_event is None or self.log is None:
            return self.counts
        return as_count_matrix(self.log.of_kind(self.target_event).counts(self.counts.shape))

    @cached_property
    def dislikes(self) -> CountMatrix | None:
        """Size of the weighted sums below 0, (n_users, n_items); None if no weight is negative."""
        weights = self.event_weights
        if self.log is None or weights is None or min(weights.values()) >= 0:
            return None
        return as_count_matrix(self.log.dislikes(self.counts.shape, weights))

    @cached_property
    def unranked(self) -> CountMatrix:
        """Pairs that are not recommended, (n_users, n_items): all that have a count or a dislike.

        With a kind of event to predict: that have this event, or a dislike.
        """
        if self.dislikes is None:
            return self.target_counts
        return as_count_matrix(self.target_counts + self.dislikes)

    def with_floors(self, min_user_items: int = 0, min_item_users: int = 0) -> Interactions:
        """Drop users with few items and items with few users.

        Both floors are applied in turn until nothing changes, so every user and item of the result
        meets its floor (the k-core). A floor of 0 keeps all; 1 drops empty rows or columns.

        Args:
            min_user_items: Distinct items that a user must have.
            min_item_users: Distinct users that an item must have.

        Raises:
            ConfigError: If a floor is negative.
            DataError: If nothing is left.
        """
        check_at_least(0, min_user_items=min_user_items, min_item_users=min_item_users)
        pattern = csr_array(
            (np.ones(self.n_pairs), self.counts.indices, self.counts.indptr), self.counts.shape
        )
        users, items = np.ones(self.n_users, dtype=bool), np.ones(self.n_items, dtype=bool)
        while True:
            n_kept = users.sum() + items.sum()
            users &= pattern @ items >= min_user_items
            items &= pattern.T @ users >= min_item_users
            if users.sum() + items.sum() == n_kept:
                break
        if not (users.any() and items.any()):
            raise DataError(
                f"nothing is left with at least {min_user_items} items a user and "
                f"{min_item_users} users an item, of {self.n_users:,} users and "
                f"{self.n_items:,} items; lower the floors"
            )
        if users.all() and items.all():
            return self
        counts = self.counts[users][:, items]
        return replace(
            self,
            counts=counts,
            user_ids=self.user_ids[users],
            item_ids=self.item_ids[items],
            item_names=None if self.item_names is None else self.item_names[items],
            log=None if self.log is None else self.log.select(users, items),
        )

    def with_events(self, keep: NDArray[np.bool_]) -> Interactions:
        """Only some entries of the log, (n_entries,), with the same users and items.

        Raises:
            DataError: If there is no log.
        """
        if self.log is None:
            raise DataError("the data have no event log; name a column of times as time_col")
        log = self.log.subset(keep)
        return replace(self, counts=log.counts(self.counts.shape, self.event_weights), log=log)

    def without_targets(self, pairs: CountMatrix) -> Interactions:
        """All events but those to predict of some pairs, with the same users and items.

        Without a target event, these are all events of the pairs.
        """
        if self.target_event is None or self.log is None:
            return self.without_pairs(pairs)
        is_target = self.log.kind == self.log.kinds.index(self.target_event)
        return self.with_events(~(is_target & self._is_of(pairs, self.log)))

    def _is_of(self, pairs: CountMatrix, log: EventLog) -> NDArray[np.bool_]:
        """Whether each entry of a log is of one of some pairs, (n_entries,)."""
        return np.isin(pair_keys(log.user, log.item, self.n_items), keys_of(pairs))

    def without_pairs(self, pairs: CountMatrix) -> Interactions:
        """All events but those of some pairs, (n_users, n_items), with the same users and items."""
        kept = self.counts.tocoo()
        keep = ~np.isin(keys_of(self.counts), keys_of(pairs))
        counts = csr_array((kept.data[keep], (kept.row[keep], kept.col[keep])), kept.shape)
        log = self.log
        if log is not None:
            log = log.subset(~self._is_of(pairs, log))
        return replace(self, counts=counts, log=log)

    def describe(self) -> dict[str, Any]:
        """Sizes, and the spread of counts, items per user and users per item."""
        counts, n_cells = self.counts, self.n_users * self.n_items
        figures = self._sizes | {
            "density": self.n_pairs / n_cells if n_cells else 0.0,
            "share_of_counts_above_1": float((counts.data > 1).mean()) if counts.nnz else 0.0,
        }
        spreads = {
            "count": counts.data,
            "items_per_user": np.diff(counts.indptr),
            "users_per_item": np.bincount(counts.indices, minlength=self.n_items),
        }
        for name, values in spreads.items():
            if values.size:
                low, median, p99, high = np.percentile(values, [0, 50, 99, 100])
                mean = values.mean()
                spread = {"min": low, "median": median, "mean": mean, "p99": p99, "max": high}
                figures |= {f"{name}_{label}": float(value) for label, value in spread.items()}
        return figures if self.log is None else figures | self.log.describe()

    def fingerprint(self) -> dict[str, Any]:
        """Sizes and a checksum that identify the data.

        The checksum covers the counts in their order, the ids with their types (7 and "7" differ)
        and the event log if there is one, but not item names, which do not affect a model. It is
        the same on every machine and in every version.
        """
        digest = hashlib.sha256(f"{self.n_users} {self.n_items} {self.n_pairs}\n".encode())
        counts = self.counts
        forms = ((counts.indptr, "<i8"), (counts.indices, "<i8"), (counts.data, "<f8"))
        _digest_numbers(digest, forms)
        for ids in (self.user_ids, self.item_ids):
            for start in range(0, len(ids), _CHUNK):
                digest.update(_written(ids[start : start + _CHUNK]))
        if (log := self.log) is not None:
            digest.update(f"{log.n_entries} {log.clock} {log.kinds!r}\n".encode())
            columns = ((log.user, "<i8"), (log.item, "<i8"), (log.count, "<f8"))
            _digest_numbers(digest, (*columns, (log.time, "<f8"), (log.kind, "<i8")))
        if self.event_weights is not None or self.target_event is not None:
            weights = sorted((self.event_weights or {}).items())
            digest.update(f"{weights!r} {self.target_event!r}\n".encode())
        total = float(counts.data.sum())
        return self._sizes | {"sum_of_counts": total, "sha256": digest.hexdigest()}

    @property
    def _sizes(self) -> dict[str, Any]:
        return {"n_users": self.n_users, "n_items": self.n_items, "n_pairs": self.n_pairs}


def _digest_numbers(
    digest: hashlib._Hash, forms: Iterable[tuple[NDArray[Any] | None, str]]
) -> None:
    """Add arrays to a checksum, each in its form, a part at a time."""
    for numbers, form in forms:
        if numbers is None:
            continue
        for start in range(0, len(numbers), _CHUNK):
            digest.update(numbers[start : start + _CHUNK].astype(form).tobytes())


def _written(ids: NDArray[Any]) -> bytes:
    """One id per line: `repr` distinguishes types and contains no line break."""
    if ids.dtype.kind in "mM":
        values = [f"{ids.dtype.name} {value}" for value in ids.astype(np.int64).tolist()]
    else:
        values = [f"{type(value).__name__} {value!r}" for value in ids.tolist()]
    return "".join(f"{value}\n" for value in values).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, eq=False)
class Aligned:
    """A second set of counts in the rows and columns of a first, and what was left out."""

    counts: CountMatrix  # in the shape of the first, (n_users, n_items)
    n_unknown_user_pairs: int  # left out because of their user
    n_unknown_item_pairs: int  # left out because of their item; some pairs are in both
    n_dropped_pairs: int  # left out because of their user, their item or both


def align(test: Interactions, train: Interactions) -> Aligned:
    """Bring a separately read test set into the rows and columns of its train set.

    Pairs of users or items that the train set lacks are left out, and counted. If no pair is
    known, most likely because the ids have different types, this raises `DataError`.
    """
    # (test users,) and (test items,), -1 if unknown
    row_of = places_among(test.user_ids, train.user_ids, train.user_index)
    column_of = places_among(test.item_ids, train.item_ids, train.item_index)
    pairs = test.counts.tocoo()
    rows, columns = row_of[pairs.row], column_of[pairs.col]  # (n_pairs,) each
    known = (rows >= 0) & (columns >= 0)
    if test.n_pairs and not known.any():
        raise DataError(
            f"none of the {test.n_pairs:,} test pairs has a user and an item of the train set; "
            f"the test ids are like {_example(test)}, the train ids like {_example(train)}; "
            "write both with the same ids of the same type"
        )
    counts = csr_array((pairs.data[known], (rows[known], columns[known])), train.counts.shape)
    return Aligned(
        counts=as_count_matrix(counts),
        n_unknown_user_pairs=int((rows < 0).sum()),
        n_unknown_item_pairs=int((columns < 0).sum()),
        n_dropped_pairs=int((~known).sum()),
    )


def places_among(
    ids: NDArray[Any], known: NDArray[Any], index: Mapping[Hashable, int]
) -> NDArray[np.intp]:
    """Find the places of ids, (n,), among known ones, by their index; -1 for an unknown id.

    Ids are compared as text if one side is integers and the other text: in a CSV one id that is
    not an integer turns the whole column into text.
    """
    wanted = ids.tolist()
    if _is_text(ids) != _is_text(known):
        wanted = [str(value) for value in wanted]
        index = {str(value): place for value, place in index.items()}
    places = (index.get(value, -1) for value in wanted)
    return np.fromiter(places, dtype=np.intp, count=len(wanted))


def append_ids(known: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Known ids followed by new ones, (n_known + n_new,).

    If one side is text and the other integers, new ids take the known type, or raise `DataError`.
    Python objects hold both if no numpy type does.
    """
    if _is_text(known) and not _is_text(new):
        new = as_objects([str(value) for value in new.tolist()])
    elif _is_text(new) and _is_integer(known):
        wrong = [text for text in new.tolist() if not _PLAIN_INTEGER.fullmatch(text)]
        if wrong:
            raise DataError(
                f"the known ids are integers, like {known[0]}, but {wrong[0]!r} is not; "
                "write all with one type"
            )
        new = np.array([int(text) for text in new.tolist()])
    values = [*known.tolist(), *new.tolist()]
    kinds = {known.dtype.kind, new.dtype.kind}
    if "O" not in kinds and (len(kinds) == 1 or kinds <= {"i", "u"}):
        together = np.concatenate([known, new])
        if together.dtype.kind in kinds and together.tolist() == values:
            return together
    return as_objects(values)


def _is_text(ids: NDArray[Any]) -> bool:
    is_object = ids.dtype.kind == "O"
    return ids.dtype.kind in "UT" or (is_object and all(isinstance(i, str) for i in ids.tolist()))


def _is_integer(ids: NDArray[Any]) -> bool:
    is_object = ids.dtype.kind == "O"
    return ids.dtype.kind in "iu" or (is_object and all(type(i) is int for i in ids.tolist()))


def as_objects(values: Sequence[Any]) -> NDArray[Any]:
    """A one-dimensional array of unchanged Python values, even tuples."""
    return np.fromiter(values, dtype=object, count=len(values))


def _index(ids: NDArray[Any], kind: str) -> dict[Hashable, int]:
    index = {value: place for place, value in enumerate(ids.tolist())}
    if len(index) != len(ids):
        twice = next(value for place, value in enumerate(ids.tolist()) if index[value] != place)
        raise DataError(f"{kind} ids must be distinct; {twice!r} occurs more than once")
    return index


def _example(interactions: Interactions) -> str:
    user, item = interactions.user_ids[:1].tolist(), interactions.item_ids[:1].tolist()
    return " and ".join(map(repr, user + item))
