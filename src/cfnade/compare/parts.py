"""The parts of a comparison: what is tested on, validated on in the same way, and trained on."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfnade.beyond.event_kinds import find_weights
from cfnade.checks import check_choice, check_number
from cfnade.compare.split_choice import (
    A_FEW,
    FIXED_NOTES,
    OWN_NOTES,
    SPLIT_NOTES,
    held_out_by,
    share_like_fixed,
    split_later,
    split_of_fixed,
    usual_split,
)
from cfnade.data.event_splits import EventSplit, SplitBy, split_random
from cfnade.data.events import shown_time
from cfnade.data.interactions import CountMatrix, Interactions, align, as_count_matrix
from cfnade.data.splitting import (
    MIN_ITEMS,
    HoldOutBy,
    check_hold_out_by,
    overlap,
    sample_users,
    split_counts,
    without_overlap,
)
from cfnade.errors import ConfigError, DataError, n_of
from cfnade.metrics.formulas import Candidates, metric_function

logger = logging.getLogger(__name__)

MOST_VALIDATED = 0.5
"""Most events to hold out for validation in a split by time, as a share."""

RatingsFrom: TypeAlias = Literal["train", "all"]


@dataclass(frozen=True)
class ProtocolConfig:
    """How pairs are held out and judged."""

    test_share: float = 0.1
    """Share of each user's items (10 % in the paper); of all events if split by time, or of each
    user's events if they are the last."""

    validation_share: float = 0.1
    """The same of what is left; taken from a fixed test part if that is a session or later."""

    validation_users: int = 2_000
    """Users to validate on at most, drawn at random."""

    split: SplitBy | None = None
    """Test on random pairs, on all events from one point in time on, or on the last events of each
    user. None splits by time if there are times to compare across users, by the last events if
    there is an order, else at random. Validation is made the same way. With a fixed test part,
    this is how it was made; None finds out."""

    validation_by: HoldOutBy | None = None
    """Of a random split: hold out validation by pairs; by events, so that items are new to a user;
    or by sessions, new items that belong together. None mirrors the test: by events if a fixed test
    part repeats pairs of train, or by sessions if in addition its counts are all 1 while train has
    larger ones; else by pairs."""

    seed: int = 0
    candidates: Candidates = "unseen"
    """Rank items that are not in the user's history, or all items."""

    ratings_from: RatingsFrom = "train"
    """Fit the relative ratings on the known pairs, or on all pairs as in the paper, which leaks a
    little of the test into the training ratings."""

    recency: bool = True
    """With times, give every model the search for recency that CF-NADE has."""

    choose_by: str | None = None
    """Metric on validation that all settings of all models are chosen by, such as `mpr`; None
    weighs MPR and nDCG@100 alike."""

    def __post_init__(self) -> None:
        check_choice("ratings_from", self.ratings_from, get_args(RatingsFrom))
        check_choice("candidates", self.candidates, get_args(Candidates))
        if self.choose_by is not None:
            metric_function(self.choose_by)  # refuses unknown names
        if self.validation_by is not None:
            check_hold_out_by("validation_by", self.validation_by)
        if self.split is not None:
            check_choice("split", self.split, get_args(SplitBy))
            if self.split != "random" and self.validation_by is not None:
                raise ConfigError(
                    f"validation is split like the test, by {self.split}; leave out validation_by, "
                    "or use split 'random'"
                )
        for name in ("test_share", "validation_share"):
            if not 0 < check_number(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be above 0 and below 1, got {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a split, all (n_users, n_items)."""

    known: Interactions
    """Train and validation, for the final fit."""

    train: Interactions
    validation: CountMatrix
    test: CountMatrix

    def weighed(self) -> Parts:
        """With weights of the kinds of events, found on validation if they are not given."""
        train = weighed_by_target(self.train, self.validation)
        known = self.known.weighed(train.event_weights, train.target_event)
        return replace(self, known=known, train=train)


def weighed_by_target(train: Interactions, validation: CountMatrix) -> Interactions:
    """Data with weights of the kinds of events: given, or by what they say about the target."""
    if train.event_weights is not None:
        return train
    weights = find_weights(train, validation)
    shown = ",".join(f"{kind}={weight:g}" for kind, weight in weights.items())
    logger.warning("all models get these weights of events, found on validation: %s", shown)
    return train.weighed(weights, train.target_event)


def _share_from(data: Interactions, at: float, least: float) -> float:
    """Share of the events from a time on, at least `least` and at most half."""
    log = data.log
    assert log is not None and log.time is not None
    share = float(log.count[log.time >= at].sum() / max(log.n_events, 1.0))
    return min(max(share, least), MOST_VALIDATED)


def own_split(data: Interactions, config: ProtocolConfig) -> SplitBy:
    """How data without a fixed test part are split.

    Only a random split is held out by pairs, events or sessions.
    """
    return config.split or ("random" if config.validation_by else usual_split(data))


class Splitter:
    """Splits data, and collects the facts of the split for the record."""

    def __init__(self, config: ProtocolConfig) -> None:
        """Prepare."""
        self._config = config
        self.facts: dict[str, Any] = asdict(config)

    def own(self, data: Interactions) -> Parts:
        """Hold out a test part, and validation from the rest in the same way."""
        config = self._config
        chosen = self.facts["split"] = own_split(data, config)
        if chosen == "random":
            return self._random_parts(data)
        held_out = split_later(data, chosen, config.test_share)
        time = None if held_out.at is None else _shown(held_out.at, data)
        if config.split is None:
            logger.warning(OWN_NOTES[chosen].format(share=config.test_share, time=time))
        self.facts |= {
            "split_time": time,
            "n_born_users": held_out.n_born_users,
            "n_born_items": held_out.n_born_items,
            "n_born_pairs": held_out.n_born_pairs,
            "n_overlap_pairs": int(held_out.repeated.nnz),
        }
        if held_out.n_born_pairs:
            logger.warning(
                "%s left out of the test: %s and %s are first seen after the split",
                n_of(held_out.n_born_pairs, "pair"),
                n_of(held_out.n_born_users, "user"),
                n_of(held_out.n_born_items, "item"),
            )
        test = self._ranked(held_out)
        if test.nnz == 0:
            raise DataError(
                f"nothing is left to test on: of {held_out.test.nnz + held_out.n_born_pairs} pairs "
                f"{held_out.n_born_pairs} have users or items first seen after the split, and "
                f"{held_out.repeated.nnz} are in train; use candidates 'all', or split 'random'"
            )
        share = config.validation_share
        if held_out.at is not None and data.log is not None and data.log.time is not None:
            # As long a period as the test's: what is found for tomorrow may not hold next year.
            period = data.log.time.max() - held_out.at
            share = _share_from(held_out.train, held_out.at - period, share)
        train, validation = self._validation_later(held_out.train, chosen, share)
        return Parts(held_out.train, train, validation, test)

    def _random_parts(self, data: Interactions) -> Parts:
        """A part of each user's items for the test, and one of some users' for validation."""
        config = self._config
        by = self.facts["validation_by"] = config.validation_by or "pairs"
        if data.target_event is not None:
            if by != "pairs":
                raise ConfigError(
                    "with a target event, validation is held out by pairs; leave out validation_by "
                    f"{by!r}"
                )
            held_out = split_random(data, share=config.test_share, rng=config.seed)
            if held_out.test.nnz == 0:
                raise DataError(f"no event {data.target_event!r} can be held out; use more data")
            known, options = held_out.train, {"n_users": config.validation_users}
            found = split_random(
                known, share=config.validation_share, rng=config.seed + 1, **options
            )
            return Parts(known, found.train, found.test, held_out.test)
        split = split_counts(
            data.counts,
            test_share=config.test_share,
            validation_share=config.validation_share,
            validation_by=by,
            rng=config.seed,
        )
        validation = self._sampled(split.validation)
        known = data.without_pairs(split.test)
        return Parts(known, known.without_pairs(validation), validation, split.test)

    def _validation_later(
        self,
        data: Interactions,
        by: SplitBy,
        share: float | None,
        is_tested: NDArray[np.bool_] | None = None,
    ) -> tuple[Interactions, CountMatrix]:
        """Hold out later events of all users, and judge on those of some who are tested.

        The later events of the others are not trained on either: they would reveal the future.
        """
        self.facts["validation_by"] = by
        held_out = split_later(data, by, share)
        n_train, n_known = held_out.train.counts.sum(), data.counts.sum()
        self.facts["validation_share"] = round(float(1.0 - n_train / n_known), 4)
        validation = self._ranked(held_out)
        sampled = self._sampled(validation, is_tested)
        if sampled.nnz == 0 and validation.nnz:
            logger.warning("no tested user has enough items, so validation uses other users")
            sampled = self._sampled(validation)
        return held_out.train, sampled

    def _sampled(
        self, validation: CountMatrix, among: NDArray[np.bool_] | None = None
    ) -> CountMatrix:
        rng = np.random.default_rng([self._config.seed, 1])  # apart from the split's own draws
        return sample_users(validation, self._config.validation_users, rng, among=among)

    def _ranked(self, held_out: EventSplit) -> CountMatrix:
        """The held-out pairs that are among the candidates."""
        return held_out.new if self._config.candidates == "unseen" else held_out.test

    def fixed(self, data: Interactions, test: Interactions) -> Parts:
        """The given test part, aligned with the rows and columns of the training part."""
        config = self._config
        if test.log is not None and test.log.kinds:
            test = _weighed_like(data, test)
        aligned = align(test, data)
        held_out = aligned.counts
        no_user, no_item = aligned.n_unknown_user_pairs, aligned.n_unknown_item_pairs
        n_overlap = int(overlap(data.unranked, held_out).nnz)
        self.facts |= {"n_unknown_user_pairs": no_user, "n_unknown_item_pairs": no_item}
        self.facts["n_overlap_pairs"] = n_overlap
        if config.candidates == "unseen":
            held_out = without_overlap(data.unranked, held_out)
        if aligned.n_dropped_pairs:
            logger.warning(
                f"{aligned.n_dropped_pairs:,} of {n_of(test.n_pairs, 'test pair')} are left out: "
                f"{no_user:,} with an unknown user, {no_item:,} with an unknown item"
            )
        if n_overlap:
            what = "left out" if config.candidates == "unseen" else "kept"
            logger.warning("%s also in train, %s", n_of(n_overlap, "test pair"), what)
        if held_out.nnz == 0:
            raise DataError(
                f"nothing is left to test on: of {test.n_pairs} test pairs {no_user} have unknown "
                f"users, {no_item} unknown items, and {n_overlap} are in train"
            )
        is_tested = np.diff(held_out.indptr) > 0  # (n_users,)
        repeats = n_overlap > A_FEW * aligned.counts.nnz
        chosen = config.split or (
            "random" if config.validation_by else split_of_fixed(data, test, repeats=repeats)
        )
        self.facts["split"] = chosen
        if chosen == "random":
            train, validation = self._fixed_random_validation(data, aligned.counts, is_tested)
        else:
            n_tested = int(np.count_nonzero(np.diff(test.counts.indptr)))
            share = share_like_fixed(data, test, n_tested, chosen)
            train, validation = self._validation_later(data, chosen, share, is_tested)
            if config.split is None:
                logger.warning(FIXED_NOTES[chosen].format(share=self.facts["validation_share"]))
        return Parts(data, train, validation, held_out)

    def _fixed_random_validation(
        self, data: Interactions, test: CountMatrix, is_tested: NDArray[np.bool_]
    ) -> tuple[Interactions, CountMatrix]:
        """Hold out random pairs of tested users, like the test part as far as counts show."""
        by = self._config.validation_by or "pairs"
        is_any = data.target_event is None
        if self._config.validation_by is None and self._config.candidates == "unseen" and is_any:
            by = held_out_by(data.counts, test, self.facts["n_overlap_pairs"])
            if by != "pairs":
                logger.warning(SPLIT_NOTES[by])
        self.facts["validation_by"] = by
        if by == "sessions":
            n_in_session = np.diff(test.indptr)[is_tested].sum()
            n_items = np.diff(as_count_matrix(data.counts + test).indptr)[is_tested].sum()
            self.facts["validation_share"] = min(float(n_in_session / n_items), 0.5)
        held_out = split_random(
            data,
            share=self.facts["validation_share"],
            by=by,
            n_users=self._config.validation_users,
            among=_users_to_validate(data.counts, is_tested, by),
            rng=self._config.seed,
        )
        return held_out.train, held_out.test


def _weighed_like(data: Interactions, test: Interactions) -> Interactions:
    """A test part with the weights of the training part, or its target events alone."""
    assert test.log is not None
    if data.target_event is not None:
        targets = test.weighed(None, data.target_event)
        return replace(targets, counts=targets.target_counts, log=None, target_event=None)
    if data.event_weights is None:
        return test
    kinds = test.log.kinds
    return test.weighed({kind: w for kind, w in data.event_weights.items() if kind in kinds})


def _shown(at: float, data: Interactions) -> str:
    assert data.log is not None and data.log.clock is not None
    return shown_time(at, data.log.clock)


def _users_to_validate(
    train: CountMatrix, is_tested: NDArray[np.bool_], by: HoldOutBy
) -> NDArray[np.bool_]:
    """Tested users with enough items to hold some out; if there are none, all with enough."""
    has_enough: NDArray[np.bool_] = np.diff(train.indptr) >= MIN_ITEMS
    if by == "sessions":
        user_of = np.repeat(np.arange(train.shape[0]), np.diff(train.indptr))
        has_enough &= np.bincount(user_of, train.data <= 1.0, minlength=train.shape[0]) > 0
    if not (has_enough & is_tested).any():
        logger.warning("no tested user has enough items, so validation uses other users")
        return has_enough
    return has_enough & is_tested
