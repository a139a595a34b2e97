"""The protocol of a comparison: which pairs are held out, and how models are judged on them."""

from __future__ import annotations

import numpy as np

from cfnade.answer.probability import Calibrator
from cfnade.compare.parts import ProtocolConfig as ProtocolConfig  # for callers
from cfnade.compare.parts import Splitter, own_split, weighed_by_target
from cfnade.compare.reliability import Calibration, judge_probabilities
from cfnade.compare.split_choice import split_later
from cfnade.data.event_splits import split_random
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import MIN_ITEMS, sample_users, without_overlap
from cfnade.errors import DataError
from cfnade.metrics.evaluate import Evaluation, evaluate, read_histories, relevance_of
from cfnade.metrics.lists import N_LISTED, ListQuality, judge_lists, top_lists
from cfnade.metrics.search import Validation
from cfnade.scorer import Scorer

_NO_VALIDATION = {
    "random": "no user has enough items for a validation part, so no setting can be chosen: "
    f"{MIN_ITEMS} must be left after the test is held out; use more data",
    "time": "no pair is left for a validation part, so no setting can be chosen: the users or "
    "items are all new, or the pairs all repeated; use more data, or split 'random'",
    "last": "no pair is left for a validation part, so no setting can be chosen: users need events "
    "at two times after the test is held out; use more data, or split 'random'",
}


class Protocol:
    """One split of one data set: gives access to validation, and tests final models."""

    def __init__(
        self,
        data: Interactions,
        test: Interactions | None = None,
        config: ProtocolConfig | None = None,
    ) -> None:
        """Split the data; with a fixed test part, the data are the training part."""
        self.config = config = config or ProtocolConfig()
        splitter = Splitter(config)
        parts = splitter.own(data) if test is None else splitter.fixed(data, test)
        if parts.validation.nnz == 0:
            raise DataError(_NO_VALIDATION[splitter.facts["split"]])
        if data.target_event is not None:
            splitter.facts["target_event"] = data.target_event
            parts = parts.weighed()
        if parts.known.event_weights is not None:
            splitter.facts["event_weights"] = dict(parts.known.event_weights)
        self.facts = splitter.facts | {
            "is_fixed_split": test is not None,
            "n_train_pairs": parts.train.n_pairs,
            "n_validation_pairs": int(parts.validation.nnz),
            "n_test_pairs": int(parts.test.nnz),
            "n_test_users": int(np.count_nonzero(np.diff(parts.test.indptr))),
        }
        """The facts of the split, for the record."""
        self.known_data, self._test = parts.known, parts.test
        """Train and validation together, for the final fit, with their ids and event log."""
        self.relative_rating: RelativeRating | None = None
        """Distributions that every model must use; None lets each fit its own."""
        if config.ratings_from == "all":
            self.relative_rating = RelativeRating().fit(as_count_matrix(self.known + self._test))
        self.validation = Validation(
            parts.train.counts,
            parts.validation,
            self.relative_rating,
            parts.train,
            config.candidates,
            _excluded(parts.train),
            config.choose_by,
        )
        """The data to choose settings on."""

    @property
    def known(self) -> CountMatrix:
        """The counts of `known_data`, (n_users, n_items)."""
        return self.known_data.counts

    def test(self, scorer: Scorer) -> Evaluation:
        """Judge a final model."""
        ratings = self.relative_rating or RelativeRating().fit(self.known)
        return evaluate(
            scorer,
            read_histories(scorer, self.known_data),
            self._test,
            relevance_of(self._test, self.known_data, ratings),
            candidates=self.config.candidates,
            exclude=_excluded(self.known_data),
            rng=self.config.seed,
        )

    def test_lists(self, scorer: Scorer, n: int = N_LISTED) -> ListQuality:
        """Judge the lists that a final model gives to the tested users, apart from accuracy."""
        is_tested, exclude = np.diff(self._test.indptr) > 0, _excluded(self.known_data)
        lists = top_lists(
            scorer,
            read_histories(scorer, self.known_data)[is_tested],
            n,
            candidates=self.config.candidates,
            exclude=None if exclude is None else exclude[is_tested],
        )
        return judge_lists(lists, self.known, n)

    def test_probabilities(self, scorer: Scorer, calibrator: Calibrator) -> Calibration | None:
        """Judge the probabilities of a final model, on items not in the histories; None without."""
        unseen = without_overlap(self.known, self._test)
        if unseen.nnz == 0:
            return None
        histories = read_histories(scorer, self.known_data)
        return judge_probabilities(scorer, calibrator, histories, unseen, rng=self.config.seed)


def validation_alone(data: Interactions, config: ProtocolConfig) -> Validation:
    """A validation part of data that have their test part elsewhere.

    Raises:
        DataError: If nothing can be held out.
    """
    by, n_users = own_split(data, config), config.validation_users
    if by == "random":
        share, pairs = config.validation_share, config.validation_by or "pairs"
        split = split_random(data, share=share, by=pairs, n_users=n_users, rng=config.seed)
        held_out = split.test
    else:
        split = split_later(data, by, config.validation_share)
        held_out = sample_users(split.new, n_users, config.seed)
    if held_out.nnz == 0:
        raise DataError("no user has enough items for a validation part; use more data")
    train = split.train
    if data.target_event is not None:
        train = weighed_by_target(train, held_out)
    return Validation(
        train.counts,
        held_out,
        train_data=train,
        exclude=_excluded(train),
        choose_by=config.choose_by,
    )


def _excluded(data: Interactions) -> CountMatrix | None:
    """Pairs that no model ranks, if these are not simply those of the histories."""
    return None if data.target_event is None and data.dislikes is None else data.unranked
