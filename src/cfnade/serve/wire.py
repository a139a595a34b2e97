"""What goes over the wire: requests as they are checked, answers as they are documented.

The names are those of docs/json.md.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    create_model,
    model_validator,
)
from pydantic_core import PydanticKnownError

from cfnade.answer.dials import MOST
from cfnade.answer.rerank import N_CANDIDATES
from cfnade.serve.problems import RequestError
from cfnade.serve.service_settings import RequestLimits


def _whole(value: Any) -> Any:
    """In JSON 7.0 and 7 are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
ItemId = str | Whole
"""An item's id, compared as text: 7 and "7" are the same item."""

Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_ISO = {"anyOf": [{"format": "date"}, {"format": "date-time"}]}
When = (
    Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=40, json_schema_extra=_ISO)]
    | None
)
"""A time in terms of the model's clock: a number, or ISO text; null for the latest."""

MAX_TIMES = 1_000
"""Pairs of count and time of one item."""

MAX_KINDS = 100
"""Kinds of events of one item."""


def _form(value: Any) -> str:
    """Which of the forms an entry has, so that errors are about that one alone."""
    return "kinds" if isinstance(value, dict) else _form_of_events(value)


def _form_of_events(value: Any) -> str:
    if not isinstance(value, list | tuple):
        return "count"
    return "event" if value and not isinstance(value[0], list | tuple) else "events"


Event = Annotated[tuple[Count, When], Strict(False)]  # JSON has lists alone
Events = (
    Annotated[Count, Tag("count")]
    | Annotated[Event, Tag("event")]
    | Annotated[list[Event], Field(max_length=MAX_TIMES, fail_fast=True), Tag("events")]
)
"""A count; or a count and its time, or several such pairs."""

Kind = Annotated[str, Field(max_length=200)]
ByKind = dict[Kind, Annotated[Events, Discriminator(_form_of_events)]]
Entry = Annotated[
    Events | Annotated[ByKind, Field(max_length=MAX_KINDS), Tag("kinds")], Discriminator(_form)
]
"""The events of one item, or those of each kind."""

Weight = Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)]
"""Confidence of a dislike; much larger values would overflow float32."""

Added = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
"""A tilt or a boost of a score."""

Category = Annotated[str, Field(max_length=200)]
"""A column of the items' table, or one of its values."""

AtLeastOne = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
MAX_CATEGORIES = 100
"""Columns of categories in one request, and values of each."""

Values = Category | Annotated[list[Category], Field(max_length=MAX_CATEGORIES, fail_fast=True)]
"""A value of a column of the items table, or several."""


DISLIKES_EFFORT = 1 << 14
"""Work for the probabilities of a history with dislikes: two passes over all items."""


class StrictRequest(BaseModel):
    """Base of all requests: unknown fields and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_extra_unknown_fields(cls, fields: Any) -> Any:
        """Keep one unknown field only, as a body may have a hundred thousand of them."""
        if not isinstance(fields, dict) or fields.keys() <= cls.model_fields.keys():
            return fields
        extra = next(name for name in fields if name not in cls.model_fields)
        known = {name: fields[name] for name in fields.keys() & cls.model_fields.keys()}
        return {**known, extra: None}


class HistoryRequest(StrictRequest):
    """What is known of a user. Nothing of it is stored."""

    history: dict[str, Entry] = Field(
        default_factory=dict,
        description="Counts by item id; 0 is the same as absent. With times: [count, when] or a "
        "list of such pairs, where `when` is a number in terms of the model's clock, ISO text if "
        "the clock is seconds, or null for the latest. If the model knows kinds of events: any of "
        "these by kind.",
    )
    disliked: list[ItemId] | dict[str, Weight] = Field(
        default_factory=list,
        description="Disliked items, which together weigh as much as the strongest like, or each "
        "of them if the model was trained with dislikes; or confidences from 1 to a million by id.",
    )

    @property
    def is_detailed(self) -> bool:
        """Whether an entry of the history has a time or kinds of events."""
        return any(isinstance(entry, list | tuple | dict) for entry in self.history.values())

    def dislikes(self, weight: Callable[[int], float]) -> dict[str, float]:
        """Confidences by id as text; of ids alone `weight` by their number."""
        if isinstance(self.disliked, dict):
            return dict(self.disliked)
        items = list(dict.fromkeys(map(str, self.disliked)))
        return dict.fromkeys(items, weight(len(items)))

    def check(self) -> None:
        """Raise a RequestError if an item is both liked and disliked."""
        if any(_has_events(self.history.get(item, 0)) for item in map(str, self.disliked)):
            message = "an item is both in the history and disliked"
            raise RequestError(409, "liked_and_disliked", message, "remove it from one of them")


def _has_events(entry: Any) -> bool:
    if isinstance(entry, dict):
        return any(map(_has_events, entry.values()))
    if not isinstance(entry, list | tuple):
        return bool(entry > 0)
    return any(count > 0 for count, _ in (entry if isinstance(entry, list) else [entry]))


class FilteredRequest(StrictRequest):
    """How many items are wanted, and of which."""

    n: Annotated[int, Field(ge=1), BeforeValidator(_whole)] = Field(
        default=10, description="Maximum number of items in the answer."
    )
    exclude: list[ItemId] | dict[Category, Values] = Field(
        default_factory=list,
        description="Items to leave out: ids, or values by column of the items table.",
    )
    only: list[ItemId] | dict[Category, Values] | None = Field(
        default=None,
        description="Items to choose from: ids, or values by column of the items table, such as "
        '{"genre": "drama"}; an item must have one of the values in each column. Null for all.',
    )

    @property
    def names_categories(self) -> bool:
        """Whether a filter is by category."""
        return isinstance(self.exclude, dict) or isinstance(self.only, dict)


class DialsRequest(StrictRequest):
    """What to prefer in a list apart from taste; see docs/guides/dials.md."""

    popularity: Added = Field(
        default=0.0,
        description="Times log(1 + users who have the item), added to each score; below 0 for "
        "lesser known items.",
    )
    diversity: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="How different the items are: 0 changes nothing."
    )
    pin: list[ItemId] | dict[str, AtLeastOne] = Field(
        default_factory=list, description="Items to list first, or places from 1 by item id."
    )
    boost: dict[str, Added] = Field(
        default_factory=dict, description="Numbers to add to scores, by item id."
    )
    boost_category: dict[Category, dict[Category, Added]] = Field(
        default_factory=dict,
        description="Numbers to add to the scores of a category, by column and value.",
    )
    at_most: dict[Category, AtLeastOne] = Field(
        default_factory=dict, description="Most items of each category in a list, by column."
    )

    def effort(self, n: int) -> int:
        """Work for a list of n items, in units of `RecommendRequest.effort`."""
        is_chosen = self.diversity > 0 or bool(self.at_most)
        chosen = 16 * max(N_CANDIDATES, 3 * n) + 64 * n if is_chosen else 0
        return chosen + 16 * len(self.boost)


class RecommendRequest(FilteredRequest, HistoryRequest):
    """A history to recommend for, and filters."""

    include_seen: bool = Field(default=False, description="Recommend items of the history as well.")
    explain: bool = Field(default=False, description="Add the likes that speak most for each item.")
    spread: bool = Field(default=False, description="Add the histogram of all scores.")
    dials: DialsRequest | None = Field(
        default=None, description="Popularity, diversity, pins, boosts and limits by category."
    )

    def effort(self) -> int:
        """Work beyond the pass of the network: effects to compute, ids to look up."""
        n_entries = len(self.history) + len(self.disliked)
        n_effects = n_entries * self.n if self.explain else 0
        shift = DISLIKES_EFFORT if self.disliked else 0
        n_filtered = len(self.exclude) + len(self.only or ())
        dials = 0 if self.dials is None else self.dials.effort(self.n)
        return n_effects + n_entries + n_filtered + dials + shift


class BatchRequest(StrictRequest):
    """Several requests at once."""

    requests: list[RecommendRequest]


class ExplainRequest(HistoryRequest):
    """An item to explain, recommended or not."""

    item: ItemId


class SimilarRequest(FilteredRequest):
    """An item to find similar items for."""

    item: ItemId


class LookupRequest(StrictRequest):
    """Ids of items to name."""

    items: list[ItemId]


class Item(BaseModel):
    """An item with its name."""

    item: str | int | float | bool = Field(description="Its id.")
    name: str = Field(description="Its name; the id if it has none.")
    link: str | None = Field(
        default=None, description="Address of its page, of http or https; absent if unknown."
    )
    image: str | None = Field(default=None, description="Address of its picture, likewise.")


class ItemEffect(Item):
    """Effect of an entry of the history on an item: the value with it, minus without it."""

    liked: bool = Field(description="False for a disliked entry.")
    score: float = Field(description="Change of the score.")
    probability: float | None = Field(description="Change of the probability; null if none.")
    shared: dict[str, list[str]] | None = Field(
        default=None,
        description="What it has in common with the item: values by column of the items table, "
        "if the model has one.",
    )


class Recommendation(Item):
    """A recommended item."""

    score: float = Field(description="What ranks: a logit, with what dials add to it.")
    probability: float | None = Field(
        description="Calibrated; null without a calibrator and for items of the history."
    )
    because: list[ItemEffect] | None = Field(
        default=None, description="With explain: at most three items that speak most for it."
    )


class Spread(BaseModel):
    """A histogram of the scores of all items that may be recommended."""

    low: float | None = Field(description="Start of the first bin; null if there is no item.")
    high: float | None = Field(description="End of the last bin.")
    counts: list[int] = Field(description="Items in each bin; all bins are equally wide.")


class Recommendations(BaseModel):
    """Recommended items, best first."""

    recommendations: list[Recommendation]
    unknown: list[str] = Field(description="Items of the request that the model does not know.")
    spread: Spread | None = None


class Batch(BaseModel):
    """One answer for each request, in their order."""

    answers: list[Recommendations]


class RepeatParts(BaseModel):
    """What the score of an item of the history is made of: from_count + from_item."""

    count: float = Field(description="As the model reads it: recent events may weigh more.")
    from_count: float = Field(description="What the count adds.")
    from_item: float = Field(
        description="What the item adds: how often people come back to it, or how often the event "
        "to predict follows, and how many people have it."
    )
    above: float = Field(description="Share of the items with a lower from_item.")


class ExplainedItem(Item):
    """An item with the effect of each entry of the history."""

    score: float
    probability: float | None
    in_history: bool = Field(description="Items of the history have no probability.")
    repeat: RepeatParts | None = Field(
        description="Of an item of the history; null if the model does not score repeats."
    )
    effects: list[ItemEffect] = Field(description="Largest change of the score first.")
    unknown: list[str]


class SimilarItem(Item):
    """An item like another."""

    similarity: float = Field(description="A cosine.")


class Similar(Item):
    """Items like the one of the request, most similar first."""

    similar: list[SimilarItem]
    unknown: list[str]


class FoundItems(BaseModel):
    """Items that were searched for or looked up by id."""

    items: list[Item]
    n_found: int = Field(description="Number of matches, including those beyond n.")
    unknown: list[str] = Field(description="Ids that the model does not know.")


class ModelInfo(BaseModel):
    """The model in use, and the limits of a request."""

    name: str
    version: str = Field(description="First digits of the checksum in its model.json.")
    loaded_at: str
    n_items: int
    has_names: bool
    is_calibrated: bool
    clock: str | None = Field(
        description="What times in a history are: seconds since 1970, a number or an order."
    )
    filters: dict[str, list[str]] = Field(
        description="Values of columns of the items table that have few, to choose from in `only`."
    )
    categories: list[str] = Field(
        description="Columns of the items table by which `at_most` can limit a list: those whose "
        "categories several items share."
    )
    event_weights: dict[str, float] | None = Field(
        description="Weights of the kinds of events that a history may name."
    )
    target_event: str | None = Field(description="The kind of event that the model predicts.")
    network: dict[str, Any]
    metrics: dict[str, Any]
    refused: str | None = Field(description="Why the newest model in the folder was refused.")
    limits: dict[str, int]
    cfnade_version: str


class State(BaseModel):
    """State of the service."""

    status: str


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="For programs; does not change.")
    message: str = Field(description="For people.")
    fix: str = Field(description="What to do about it.")


class Error(BaseModel):
    """The answer to a failed request."""

    error: ErrorDetail


class Requests:
    """The requests with a service's limits built in, so that its document shows them."""

    def __init__(self, limits: RequestLimits) -> None:
        lengths = dict.fromkeys(("history", "disliked", "items"), limits.history)
        lengths |= dict.fromkeys(("exclude", "only", "boost"), limits.filter_items)
        lengths |= dict.fromkeys(("boost_category", "at_most"), MAX_CATEGORIES)
        lengths["pin"] = limits.n
        lengths["requests"] = limits.batch

        def limited(model: type[BaseModel], **kinds: Any) -> Any:
            """A class of the same name with these limits."""
            fields: dict[str, Any] = {}
            for name, field in model.model_fields.items():
                if name == "n":
                    n = Field(default=min(field.default, limits.n), description=field.description)
                    whole: Any = Annotated[int, Field(ge=1, le=limits.n), BeforeValidator(_whole)]
                    fields[name] = (whole, n)
                elif name in lengths:
                    kind = kinds.get(name, field.annotation)
                    fields[name] = (_at_most(lengths[name], kind), copy(field))
                elif name in kinds:
                    fields[name] = (kinds[name], copy(field))
            return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)

        by_value: Any = _at_most(MAX_CATEGORIES, dict[Category, Added])
        dials = limited(DialsRequest, boost_category=dict[Category, by_value])
        self.recommend: type[RecommendRequest] = limited(RecommendRequest, dials=dials | None)
        self.batch: type[BatchRequest] = limited(BatchRequest, requests=list[self.recommend])  # type: ignore[name-defined]
        self.explain: type[ExplainRequest] = limited(ExplainRequest)
        self.similar: type[SimilarRequest] = limited(SimilarRequest)
        self.lookup: type[LookupRequest] = limited(LookupRequest)


def _at_most(most: int, kind: Any) -> Any:
    """A list or object, or a union of them, of limited length; a list ends at its first error."""

    def check(value: Any) -> Any:
        # Before the entries: pydantic checks all entries of an object before its length.
        if isinstance(value, dict | list) and len(value) > most:
            kind = "Dictionary" if isinstance(value, dict) else "List"
            found = {"field_type": kind, "max_length": most, "actual_length": len(value)}
            raise PydanticKnownError("too_long", found)
        return value

    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    limits = {dict: Field(max_length=most), list: Field(max_length=most, fail_fast=True)}
    limited = [
        Annotated[one, limits[get_origin(one)]] if get_origin(one) in limits else one  # None
        for one in kinds
    ]
    return Annotated[reduce(or_, limited), BeforeValidator(check)]
