"""The protocol of a comparison: which pairs are held out, and how models are judged on them."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.probability import Calibrator
from cfnade.checks import check_choice, check_number
from cfnade.compare.reliability import Calibration, judge_probabilities
from cfnade.data.interactions import CountMatrix, Interactions, align, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import (
    MIN_ITEMS,
    HoldOutBy,
    Split,
    check_hold_out_by,
    hold_out,
    overlap,
    sample_users,
    split_counts,
    without_overlap,
)
from cfnade.errors import ConfigError, DataError, n_of
from cfnade.metrics.evaluate import Evaluation, evaluate
from cfnade.metrics.formulas import Candidates
from cfnade.metrics.lists import N_LISTED, ListQuality, judge_lists, top_lists
from cfnade.metrics.search import Validation
from cfnade.scorer import Scorer

logger = logging.getLogger(__name__)

RatingsFrom: TypeAlias = Literal["train", "all"]

A_FEW = 0.01  # share of pairs that may be exceptions when a fixed test part is classified

_SPLIT_NOTES = {
    "events": "the test part repeats pairs of train, so validation is split by events too; use "
    "--validation-by pairs if your counts are not events",
    "sessions": "the test part looks like the last session of each user, so validation is split by "
    "sessions too; use --validation-by events if it is a longer period, or pairs if your counts "
    "are not events",
}


@dataclass(frozen=True)
class ProtocolConfig:
    """How pairs are held out and judged."""

    test_share: float = 0.1
    """Share of each user's items (10 % in the paper)."""

    validation_share: float = 0.1
    """Share of each user's other items; taken from the test part if that is a session."""

    validation_users: int = 2_000
    """Users to validate on at most, drawn at random."""

    validation_by: HoldOutBy | None = None
    """Hold out validation by pairs; by events, so that items are new to a user; or by sessions, new
    items that belong together. None mirrors the test: by events if a fixed test part repeats
    pairs of train, or by sessions if in addition its counts are all 1 while train has larger ones;
    else by pairs."""

    seed: int = 0
    candidates: Candidates = "unseen"
    """Rank items that are not in the user's history, or all items."""

    ratings_from: RatingsFrom = "train"
    """Fit the relative ratings on the known pairs, or on all pairs as in the paper, which leaks a
    little of the test into the training ratings."""

    def __post_init__(self) -> None:
        check_choice("ratings_from", self.ratings_from, get_args(RatingsFrom))
        check_choice("candidates", self.candidates, get_args(Candidates))
        if self.validation_by is not None:
            check_hold_out_by("validation_by", self.validation_by)
        for name in ("test_share", "validation_share"):
            if not 0 < check_number(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be above 0 and below 1, got {getattr(self, name)}")


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
        self.facts: dict[str, Any] = {**asdict(config), "is_fixed_split": test is not None}
        """The facts of the split, for the record."""
        split = self._random_split(data.counts) if test is None else self._fixed_split(data, test)
        if split.validation.nnz == 0:
            raise DataError(
                "no user has enough items for a validation part, so no setting can be chosen: "
                f"{MIN_ITEMS} must be left after the test is held out; use more data"
            )
        for part in ("train", "validation", "test"):
            self.facts[f"n_{part}_pairs"] = int(getattr(split, part).nnz)
        self.facts["n_test_users"] = int(np.count_nonzero(np.diff(split.test.indptr)))
        self.known, self._test = split.known, split.test
        """Train and validation together, for the final fit, (n_users, n_items)."""
        self.relative_rating: RelativeRating | None = None
        """Distributions that every model must use; None lets each fit its own."""
        if config.ratings_from == "all":
            self.relative_rating = RelativeRating().fit(as_count_matrix(self.known + self._test))
        self.validation = Validation(split.train, split.validation, self.relative_rating)
        """The data to choose settings on."""

    def _random_split(self, counts: CountMatrix) -> Split:
        """A part of each user's items for the test, and one of some users' for validation."""
        config = self.config
        by = self.facts["validation_by"] = config.validation_by or "pairs"
        split = split_counts(
            counts,
            test_share=config.test_share,
            validation_share=config.validation_share,
            validation_by=by,
            rng=config.seed,
        )
        rng = np.random.default_rng([config.seed, 1])  # apart from the split's own draws
        validation = sample_users(split.validation, config.validation_users, rng)
        return Split(as_count_matrix(split.known - validation), validation, split.test)

    def _fixed_split(self, data: Interactions, test: Interactions) -> Split:
        """The given test part, aligned with the rows and columns of the training part."""
        aligned = align(test, data)
        held_out = aligned.counts
        no_user, no_item = aligned.n_unknown_user_pairs, aligned.n_unknown_item_pairs
        n_overlap = int(overlap(data.counts, held_out).nnz)
        self.facts |= {"n_unknown_user_pairs": no_user, "n_unknown_item_pairs": no_item}
        self.facts["n_overlap_pairs"] = n_overlap
        if self.config.candidates == "unseen":
            held_out = without_overlap(data.counts, held_out)
        if aligned.n_dropped_pairs:
            logger.warning(
                f"{aligned.n_dropped_pairs:,} of {n_of(test.n_pairs, 'test pair')} are left out: "
                f"{no_user:,} with an unknown user, {no_item:,} with an unknown item"
            )
        if n_overlap:
            what = "left out" if self.config.candidates == "unseen" else "kept"
            logger.warning("%s also in train, %s", n_of(n_overlap, "test pair"), what)
        if held_out.nnz == 0:
            raise DataError(
                f"nothing is left to test on: of {test.n_pairs} test pairs {no_user} have unknown "
                f"users, {no_item} unknown items, and {n_overlap} are in train"
            )
        by = self.config.validation_by or "pairs"
        if self.config.validation_by is None and self.config.candidates == "unseen":
            by = _split_by(data.counts, aligned.counts, n_overlap)
            if by != "pairs":
                logger.warning(_SPLIT_NOTES[by])
        self.facts["validation_by"] = by
        is_tested = np.diff(held_out.indptr) > 0  # (n_users,)
        if by == "sessions":
            n_in_session = np.diff(aligned.counts.indptr)[is_tested].sum()
            n_items = np.diff(as_count_matrix(data.counts + aligned.counts).indptr)[is_tested].sum()
            self.facts["validation_share"] = min(float(n_in_session / n_items), 0.5)
        train, validation = hold_out(
            data.counts,
            share=self.facts["validation_share"],
            by=by,
            n_users=self.config.validation_users,
            among=_users_to_validate(data.counts, is_tested, by),
            rng=self.config.seed,
        )
        return Split(train, validation, held_out)

    def test(self, scorer: Scorer) -> Evaluation:
        """Judge a final model."""
        ratings = self.relative_rating or RelativeRating().fit(self.known)
        return evaluate(
            scorer,
            self.known,
            self._test,
            ratings.transform(self._test),
            candidates=self.config.candidates,
            rng=self.config.seed,
        )

    def test_lists(self, scorer: Scorer, n: int = N_LISTED) -> ListQuality:
        """Judge the lists that a final model gives to the tested users, apart from accuracy."""
        histories = self.known[np.diff(self._test.indptr) > 0]
        lists = top_lists(scorer, histories, n, candidates=self.config.candidates)
        return judge_lists(lists, self.known, n)

    def test_probabilities(self, scorer: Scorer, calibrator: Calibrator) -> Calibration:
        """Judge the probabilities of a final model, on items not in the histories."""
        unseen = without_overlap(self.known, self._test)
        return judge_probabilities(scorer, calibrator, self.known, unseen, rng=self.config.seed)


def _split_by(train: CountMatrix, test: CountMatrix, n_overlap: int) -> HoldOutBy:
    """How a fixed test part was split from train, judging by repeated pairs."""
    if n_overlap <= A_FEW * test.nnz:
        return "pairs"
    repeated = [float((part.data > 1).mean()) for part in (train, test)]
    has_single_events = repeated[0] < 1.0 - A_FEW
    return "sessions" if has_single_events and repeated[0] > A_FEW >= repeated[1] else "events"


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
