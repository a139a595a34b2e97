"""What goes over the wire: requests as they are checked, answers as they are documented.

Names are those of the JSON that the commands write, docs/json.md.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)
from pydantic_core import PydanticKnownError

from cfnade.serve.problems import RequestError
from cfnade.serve.service_settings import Limits


def _whole(value: Any) -> Any:
    """JSON does not tell 7.0 from 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
ItemId = str | Whole
"""An item's id; it is compared as text, so 7 and "7" are the same item."""

Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)]
"""Confidence of a dislike; the network computes in float32, which far larger ones would leave."""


class Asked(BaseModel):
    """What all requests have in common: no field that is not known, no type that is not meant."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _one_stranger_is_enough(cls, told: Any) -> Any:
        """Leave out all fields that are not known but one: a body may have a hundred thousand."""
        if not isinstance(told, dict) or told.keys() <= cls.model_fields.keys():
            return told
        stranger = next(name for name in told if name not in cls.model_fields)
        known = {name: told[name] for name in told.keys() & cls.model_fields.keys()}
        return {**known, stranger: None}


class Evidence(Asked):
    """What is known of somebody. Nothing of it is kept."""

    history: dict[str, Count] = Field(
        default_factory=dict, description="Counts by item id; 0 says nothing."
    )
    disliked: list[ItemId] | dict[str, Weight] = Field(
        default_factory=list,
        description="Items known to be disliked, to weigh as much as the surest like; "
        "or confidences from 1 to a million by item id.",
    )

    def dislikes(self) -> dict[str, float | None]:
        """Confidences by id as text; None for the strongest there is."""
        if isinstance(self.disliked, dict):
            return dict(self.disliked)
        return {str(item): None for item in self.disliked}

    def check(self) -> None:
        """See that nothing is both liked and disliked.

        Raises:
            RequestError: If something is.
        """
        if any(self.history.get(item, 0) > 0 for item in self.dislikes()):
            raise RequestError(
                409,
                "liked_and_disliked",
                "an item is both in the history and disliked",
                "leave it out of one of them",
            )


class RecommendRequest(Evidence):
    """Whom to recommend for, and what."""

    n: Annotated[int, Field(ge=1), BeforeValidator(_whole)] = Field(
        default=10, description="Items to give at most; fewer if fewer may be."
    )
    exclude: list[ItemId] = Field(default_factory=list, description="Never to recommend.")
    only: list[ItemId] | None = Field(default=None, description="To choose from; null for all.")
    include_seen: bool = Field(
        default=False, description="Recommend what is in the history as well."
    )
    explain: bool = Field(
        default=False, description="Tell which items of the history speak for each."
    )
    spread: bool = Field(default=False, description="Tell how the scores of all items spread.")


class BatchRequest(Asked):
    """Many at once."""

    requests: list[RecommendRequest]


class ExplainRequest(Evidence):
    """An item to explain, recommended or not."""

    item: ItemId


class SimilarRequest(Asked):
    """An item whose like are asked for."""

    item: ItemId
    n: Annotated[int, Field(ge=1), BeforeValidator(_whole)] = Field(
        default=10, description="Items to give at most; fewer if fewer may be."
    )
    exclude: list[ItemId] = Field(default_factory=list, description="Never to give.")
    only: list[ItemId] | None = Field(default=None, description="To choose from; null for all.")


class LookupRequest(Asked):
    """Items whose names are asked for."""

    items: list[ItemId]


class Item(BaseModel):
    """An item as people know it."""

    item: str | int | float | bool = Field(description="Its id.")
    name: str = Field(description="Its name; the id where there is none.")


class Effect(Item):
    """What an entry of the history does for an item: the value with it, less that without it."""

    liked: bool = Field(description="False for what was given as disliked.")
    logit: float
    probability: float
    calibrated: float | None = Field(
        default=None, description="Of the honest probability, if the model has one."
    )


class Recommendation(Item):
    """An item that is recommended."""

    probability: float = Field(description="The network's sigmoid: ranks, but is too large.")
    calibrated: float | None = Field(
        default=None, description="An honest probability, if the model has one."
    )
    because: list[Effect] | None = Field(
        default=None, description="With explain: at most three items that speak most for it."
    )


class Spread(BaseModel):
    """How the logits of all items that may be recommended spread: a histogram."""

    low: float | None = Field(description="Where the first bin begins; null if there is no item.")
    high: float | None = Field(description="Where the last one ends.")
    counts: list[int] = Field(description="Items in each bin, all of one width.")


class Recommendations(BaseModel):
    """The answer to `RecommendRequest`, best first."""

    recommendations: list[Recommendation]
    unknown: list[str] = Field(description="Items of the request that the model does not know.")
    spread: Spread | None = None


class Batch(BaseModel):
    """The answer to `BatchRequest`, in its order."""

    answers: list[Recommendations]


class Explanation(Item):
    """The answer to `ExplainRequest`."""

    logit: float
    probability: float
    effects: list[Effect] = Field(description="Of all entries, largest first, whatever the sign.")
    unknown: list[str]


class SimilarItem(Item):
    """An item like another."""

    similarity: float = Field(description="A cosine.")


class Similar(Item):
    """The answer to `SimilarRequest`, most alike first."""

    similar: list[SimilarItem]
    unknown: list[str]


class Items(BaseModel):
    """Items that were searched for, or looked up by id."""

    items: list[Item]
    n_found: int = Field(description="All that there are, also those beyond n.")
    unknown: list[str] = Field(description="Ids asked for that the model does not know.")


class ModelInfo(BaseModel):
    """The model that answers now, and what may be asked of it."""

    name: str
    version: str = Field(description="The first figures of the checksum of its model.json.")
    loaded_at: str
    n_items: int
    has_names: bool
    is_calibrated: bool
    network: dict[str, Any]
    metrics: dict[str, Any]
    refused: str | None = Field(description="Why the newest model in the folder was not taken.")
    limits: dict[str, int]
    cfnade_version: str


class State(BaseModel):
    """Whether the service lives, or takes requests."""

    status: str


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="For programs; does not change.")
    message: str = Field(description="For people.")
    fix: str = Field(description="What to do about it.")


class Error(BaseModel):
    """The answer to a request that cannot be answered."""

    error: ErrorDetail


@dataclass(frozen=True)
class Requests:
    """The requests with a service's limits built in, so that its document tells them too."""

    recommend: type[RecommendRequest]
    batch: type[BatchRequest]
    explain: type[ExplainRequest]
    similar: type[SimilarRequest]
    lookup: type[LookupRequest]

    @classmethod
    def with_limits(cls, limits: Limits) -> Requests:
        """Classes of the same names that refuse more."""

        def at_most(model: type[BaseModel], name: str, most: int) -> tuple[Any, Any]:
            told = copy(model.model_fields[name])
            if name == "n":
                start = Field(default=min(told.default, most), description=told.description)
                return Annotated[int, Field(ge=1, le=most), BeforeValidator(_whole)], start
            kinds = [_limited(kind, most) for kind in _kinds(told.annotation)]
            return Annotated[reduce(or_, kinds), _no_more_than(most)], told

        entries = {
            name: at_most(Evidence, name, limits.history) for name in ("history", "disliked")
        }
        filters = {
            "n": at_most(SimilarRequest, "n", limits.n),
            "exclude": at_most(SimilarRequest, "exclude", limits.filter_items),
            "only": at_most(SimilarRequest, "only", limits.filter_items),
        }

        def limited(model: type[BaseModel], **changes: Any) -> Any:
            return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **changes)

        recommend = limited(RecommendRequest, **entries, **filters)
        each: Any = list[recommend]  # type: ignore[valid-type]
        many: Any = Annotated[_limited(each, limits.batch), _no_more_than(limits.batch)]
        return cls(
            recommend,
            limited(BatchRequest, requests=(many, ...)),
            limited(ExplainRequest, **entries),
            limited(SimilarRequest, **filters),
            limited(LookupRequest, items=at_most(LookupRequest, "items", limits.history)),
        )


def _limited(kind: Any, most: int) -> Any:
    """A list or object of at most so many entries; a list is given up at its first fault."""
    if kind is NoneType:
        return kind
    if get_origin(kind) is list:
        return Annotated[kind, Field(max_length=most, fail_fast=True)]
    return Annotated[kind, Field(max_length=most)]


def _no_more_than(most: int) -> BeforeValidator:
    """Looks at the length before any entry is: an object's entries are else all checked first."""

    def check(told: Any) -> Any:
        if isinstance(told, dict | list) and len(told) > most:
            kind = "Dictionary" if isinstance(told, dict) else "List"
            found = {"field_type": kind, "max_length": most, "actual_length": len(told)}
            raise PydanticKnownError("too_long", found)
        return told

    return BeforeValidator(check)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
