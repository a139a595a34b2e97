"""A saved model made ready to serve: requests become queries, answers become JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.dials import Dials
from cfnade.answer.explain import as_numbers
from cfnade.answer.filters import ItemSets
from cfnade.answer.recommend import Query
from cfnade.answer.rerank import Reranking
from cfnade.data.addresses import IMAGE, origins
from cfnade.data.item_features import WORDS
from cfnade.data.item_search import ItemSearch
from cfnade.data.moments import MixedZonesError, expected_time
from cfnade.errors import ConfigError, DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.serve import wire
from cfnade.serve.problems import RequestError

MOST_HOSTS = 20
"""Hosts of pictures that the page's policy names."""

MOST_FILTERS, MOST_VALUES = 3, 100
"""Columns of categories that the page offers as filters, and values of one."""

MOST_LIMITED = 6
"""Columns of categories by which the page can limit a list."""

Columns: TypeAlias = NDArray[np.int64]
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]
"""Identifies one state of a folder."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that answers requests; never changed, only replaced."""

    model: ImplicitCFNADE
    name: str
    """Name of its folder."""
    stamp: Stamp
    """State of the folder when it was loaded."""
    version: str
    """First digits of the checksum in `model.json`."""
    loaded_at: str
    """Time of loading, in UTC."""

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.model.catalogue_)

    @cached_property
    def ids(self) -> list[Any]:
        """Each item's id."""
        return list(self.model.catalogue_.ids.tolist())

    @cached_property
    def items(self) -> list[dict[str, Any]]:
        """Each item's id and name for JSON, and the addresses of its page and picture if known."""
        names = self.model.catalogue_.names
        pairs = zip(self.ids, self.ids if names is None else names.tolist(), strict=True)
        found = [{"item": _as_json(item), "name": str(name)} for item, name in pairs]
        for kind, by_column in self.model.catalogue_.addresses.items():
            for column, address in by_column.items():
                found[column][kind] = address
        return found

    @cached_property
    def image_sources(self) -> str:
        """Hosts of the pictures as the page's policy names them; schemes alone if they are many."""
        hosts = origins(self.model.catalogue_.addresses.get(IMAGE, {}).values())
        if len(hosts) > MOST_HOSTS:
            hosts = {host.split("//")[0] for host in hosts}
        return " ".join(sorted(hosts))

    @cached_property
    def filters(self) -> dict[str, list[str]]:
        """Values of each column of categories that has few enough to choose from."""
        few = [c for c, values in self._values.items() if len(values) <= MOST_VALUES]
        return {name: sorted(self._values[name]) for name in few[:MOST_FILTERS]}

    @cached_property
    def categories(self) -> list[str]:
        """Columns of categories that several items share, however many values they have."""
        features = self.model.catalogue_.features
        if features is None:
            return []
        n_items = np.bincount(features.matrix.indices, minlength=features.n_features)
        shared = {features.columns[column] for column in features.column[n_items > 1]}
        return [name for name in self._values if name in shared][:MOST_LIMITED]

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        """Values of each column of categories that has more than one."""
        features = self.model.catalogue_.features
        if features is None:
            return {}
        values: dict[str, list[str]] = {name: [] for name in features.columns}
        for column, value in zip(*features.named, strict=True):
            values[features.columns[column]].append(value)
        forms = features.form_of
        return {c: found for c, found in values.items() if forms.get(c) != WORDS and len(found) > 1}

    @cached_property
    def column_of(self) -> dict[str, int]:
        """Column of each id as text; an id that is text wins over another that reads the same."""
        columns = {str(item): column for column, item in enumerate(self.ids)}
        columns.update({item: c for c, item in enumerate(self.ids) if isinstance(item, str)})
        return columns

    @cached_property
    def search(self) -> ItemSearch:
        """Finds items by name or id."""
        names = [item["name"] for item in self.items]
        n_watchers = self.model.scorer_.relative_rating.n_watchers
        return ItemSearch(names, [str(item) for item in self.ids], n_watchers)

    @property
    def is_calibrated(self) -> bool:
        """Whether it gives probabilities."""
        return self.model.calibrator_ is not None

    def columns(self, items: Iterable[str | int]) -> tuple[list[int], list[str]]:
        """Columns of the known items, and the unknown items."""
        texts = [str(item) for item in items]
        known = [self.column_of[item] for item in texts if item in self.column_of]
        return known, [item for item in texts if item not in self.column_of]

    # Answers, as docs/json.md describes them -----------------------------------------------------

    def recommend(self, requests: Sequence[wire.RecommendRequest]) -> list[dict[str, Any]]:
        """Answer requests together, in one pass; see `wire.Recommendations`."""
        read = [self._query(request) for request in requests]
        answers = self.model.answers_.recommend([query for query, _ in read])
        return [
            {**answer.to_json(self.items.__getitem__), "unknown": list(dict.fromkeys(unknown))}
            for answer, (_, unknown) in zip(answers, read, strict=True)
        ]

    def check(self, requests: Sequence[wire.RecommendRequest]) -> None:
        """Raise a RequestError if this model cannot do what dials and filters ask for."""
        try:
            for request in requests:
                self._reranking(request)
                self._filters(request)
        except DataError as error:
            raise _unknown_category(error) from None
        except ConfigError as error:
            message, _, fix = str(error).partition("; ")
            raise RequestError(409, "conflicting_dials", message, fix or "change one") from None

    def explain(self, request: wire.ExplainRequest) -> dict[str, Any] | None:
        """Explain an item, see `wire.ExplainedItem`; None if it is unknown."""
        column = self.column_of.get(str(request.item))
        if column is None:
            return None
        query, unknown = self._query(request)
        effects = self.model.answers_.effects(query, np.array([column]))
        return {**effects.explained(0, column, self.items.__getitem__), "unknown": unknown}

    def similar(self, request: wire.SimilarRequest) -> dict[str, Any] | None:
        """Find similar items, see `wire.Similar`; None if the item is unknown."""
        column = self.column_of.get(str(request.item))
        if column is None:
            return None
        only, exclude, unknown = self._filters(request)
        filters = (None if only is None else ItemSets(only), ItemSets(np.append(exclude, column)))
        asked = np.array([column])
        ((columns, similarities),) = self.model.answers_.similar_items(asked, request.n, *filters)
        found = [
            {**self.items[place], "similarity": similarity}
            for place, similarity in zip(columns.tolist(), as_numbers(similarities), strict=True)
        ]
        unknown = list(dict.fromkeys(unknown))
        return {**self.items[column], "similar": found, "unknown": unknown}

    def counts(self, request: wire.HistoryRequest) -> dict[str, float]:
        """The history of a request as counts, weighed by times and kinds; below 0 for a dislike.

        Raises:
            RequestError: If a time cannot be read, times are written with and without a zone, or a
                kind is unknown; the message does not repeat it.
        """
        reader = self.model.answers_.reader
        kinds = {kind for e in request.history.values() if isinstance(e, dict) for kind in e}
        if not kinds <= reader.kinds:
            names = ", ".join(map(repr, sorted(reader.kinds)))
            known = f"its events are {names}" if names else "it was fitted without kinds of events"
            message = f"history: the model does not know an event; {known}"
            fix = "see event_weights of the model in /v1/model, or send counts without kinds"
            raise RequestError(404, "unknown_event", message, fix)
        try:
            counts: dict[str, float] = reader.counts(request.history)
        except MixedZonesError as error:
            message, _, fix = str(error).partition("; ")
            raise RequestError(422, "invalid_time", f"history: {message}", fix) from None
        except DataError:
            message = f"history: a time must be {expected_time(reader.clock)}"
            fix = "see the clock of the model in /v1/model, or send counts without times"
            raise RequestError(422, "invalid_time", message, fix) from None
        return counts

    def _query(self, request: wire.HistoryRequest) -> tuple[Query, list[str]]:
        """The query of a request, and its unknown items."""
        fields: dict[str, Any] = {}
        counts, answers = self.counts(request), self.model.answers_
        fields["liked"], fields["counts"], unknown = self._by_column(counts)
        dislikes = request.dislikes(answers.dislike_weight)
        if request.is_detailed:
            negative = [item for item, count in counts.items() if count < 0]
            dislikes = dict.fromkeys(negative, answers.full_dislike) | dislikes
        if dislikes:
            fields["disliked"], fields["confidences"], more = self._by_column(dislikes)
            unknown += more if request.disliked else []
        if isinstance(request, wire.RecommendRequest):
            fields["only"], fields["exclude"], more = self._filters(request)
            unknown += more
            fields["reranking"], more = self._reranking(request)
            unknown += more
            for name in ("n", "include_seen", "explain", "spread"):
                fields[name] = getattr(request, name)
            owned = None if request.include_seen else answers.owned(request.history)
            if owned is not None:  # other items of the history are candidates
                fields["include_seen"] = True
                columns = self.columns([str(item) for item in owned])[0]
                fields["exclude"] = np.union1d(fields["exclude"], columns).astype(np.int64)
        return Query(**fields), unknown

    def _reranking(self, request: wire.RecommendRequest) -> tuple[Reranking | None, list[str]]:
        """What the dials change, and their unknown items."""
        asked = request.dials
        if asked is None:
            return None, []
        unknown = self.columns([*asked.pin, *asked.boost])[1]

        def by_id(values: dict[str, Any]) -> dict[Any, Any]:
            known = {item: value for item, value in values.items() if item in self.column_of}
            return {self.ids[self.column_of[item]]: value for item, value in known.items()}

        pin = asked.pin
        if not isinstance(pin, dict):
            pin = {str(item): place for place, item in enumerate(pin, start=1)}
            if len(pin) < len(asked.pin):
                raise ConfigError("an item is pinned twice; name each once")
        dials = Dials(
            popularity=asked.popularity,
            diversity=asked.diversity,
            pin=by_id(pin),
            boost=by_id(asked.boost),
            boost_category=asked.boost_category,
            at_most=asked.at_most,
        )
        return self.model.answers_.reranking(dials, request.n, "raise"), unknown

    def _filters(self, request: wire.FilteredRequest) -> tuple[Columns | None, Columns, list[str]]:
        """Columns of `only` (None for all) and of `exclude`, and the unknown items."""
        excluded, unknown = self._chosen(request.exclude)
        if request.only is None:
            return None, excluded, unknown
        chosen, more = self._chosen(request.only)
        return chosen, excluded, unknown + more

    def _chosen(self, items: list[str | int] | dict[str, Any]) -> tuple[Columns, list[str]]:
        """Columns of items by id or by category, and the unknown ids."""
        if isinstance(items, dict) and items:
            try:
                return self.model.catalogue_.with_features(items), []
            except DataError as error:
                raise _unknown_category(error) from None
        known, unknown = self.columns(list(items))
        return np.array(known, dtype=np.int64), unknown

    def _by_column(
        self, values: dict[str, float]
    ) -> tuple[Columns, NDArray[np.float64], list[str]]:
        """Known items with a value above 0, in the order of columns; and the unknown items."""
        places = map(self.column_of.get, values, repeat(-1))
        columns = np.fromiter(places, dtype=np.int64, count=len(values))
        value = np.fromiter(values.values(), dtype=np.float64, count=len(values))
        is_known = columns >= 0
        unknown = [] if is_known.all() else [i for i in values if i not in self.column_of]
        kept = np.flatnonzero(is_known & (value > 0))
        kept = kept[np.argsort(columns[kept])]
        return columns[kept], value[kept], unknown


def _unknown_category(error: DataError) -> RequestError:
    fix = "see the categories of the items that the model was fitted with"
    return RequestError(404, "unknown_category", str(error)[:300], fix)


def _as_json(item: Any) -> str | int | float | bool:
    """An id for JSON: numbers and text unchanged, anything else as text."""
    if isinstance(item, (bool, int, str)):
        return item
    if isinstance(item, (float, np.floating)) and math.isfinite(item):
        return float(item)
    return str(item)
