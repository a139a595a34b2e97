"""A table of users as a model reads it: their histories, and what is not to be recommended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from cfnade.answer.recommend import Answers
from cfnade.beyond.recency import recent_counts
from cfnade.data.catalogue import Unknown
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import CountMatrix, Interactions, with_dislikes


@dataclass(frozen=True, eq=False)
class UserTable:
    """The users of a table; `ImplicitCFNADE.histories` and `owned` describe what is read."""

    answers: Answers
    data: Interactions
    """With the model's weights of the kinds of events."""
    unknown: Unknown = "raise"
    """What to do about items that the model does not know."""

    @classmethod
    def of(cls, answers: Answers, source: Any, unknown: Unknown = "raise") -> UserTable:
        """Read a table; raises `DataError` if it cannot be used."""
        return cls(answers, weighed(answers, read_interactions(source)), unknown)

    @property
    def user_ids(self) -> NDArray[Any]:
        """Ids of the users, (n_users,)."""
        return self.data.user_ids

    @cached_property
    def histories(self) -> CountMatrix:
        """Counts as the model reads them, below 0 for dislikes, (n_users, n_items)."""
        data, catalogue = self.data, self.answers.catalogue
        half_life = self.answers.reader.half_life_for(data.clock)
        if half_life and data.log is not None:
            shape, weights = data.counts.shape, data.event_weights
            data = replace(data, counts=recent_counts(data.log, shape, half_life, weights))
        histories = catalogue.align(data, unknown=self.unknown)
        if data.dislikes is None:
            return histories
        disliked = replace(data, counts=data.dislikes, log=None)
        return with_dislikes(histories, catalogue.align(disliked, unknown="ignore"))

    @cached_property
    def owned(self) -> CountMatrix | None:
        """Pairs with the event to predict, (n_users, n_items).

        None if all pairs of the histories are to be left out.
        """
        data, catalogue = self.data, self.answers.catalogue
        if self.answers.reader.target is None or not self.answers.scores_history:
            return None
        if data.target_event is not None:
            data = replace(data, counts=data.target_counts, log=None)
        return catalogue.align(data, unknown="ignore")


def weighed(answers: Answers, data: Interactions) -> Interactions:
    """The data with the weights of the model for the kinds of events."""
    reader, kinds = answers.reader, () if data.log is None else data.log.kinds
    weights, target = reader.weights_for(kinds)
    if data.log is None or not (kinds and reader.kinds):
        return data
    counts = data.log.counts(data.counts.shape, weights)
    return replace(data, counts=counts, event_weights=weights, target_event=target)
