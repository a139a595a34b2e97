"""The protocol of a comparison: which pairs are known and held out, and how they are judged."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from cfnade.calibration import Calibrator
from cfnade.data.feedback import check_number
from cfnade.data.interactions import Interactions, align, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import (
    HoldOutBy,
    Split,
    check_hold_out_by,
    hold_out,
    of_some_users,
    overlap,
    split_counts,
    without_overlap,
)
from cfnade.errors import ConfigError, DataError
from cfnade.evaluation.calibration import Calibration, judge_probabilities
from cfnade.evaluation.evaluate import Evaluation, evaluate
from cfnade.evaluation.ranking import Candidates
from cfnade.evaluation.tuning import Validation
from cfnade.scorer import Scorer

logger = logging.getLogger(__name__)

RatingsFrom: TypeAlias = Literal["train", "all"]

BY_EVENTS_ABOVE = 0.01
"""Of a fixed test part, the share of pairs that are in train above which events were parted; a few
may be there by mistake."""


@dataclass(frozen=True)
class ProtocolConfig:
    """How pairs are held out and judged."""

    test_share: float = 0.1
    """Of each user's items (10 % in the paper)."""

    validation_share: float = 0.1
    """Of each user's items that are left."""

    validation_users: int = 2_000
    """Hold out for validation from this many users at most, drawn at random: enough to choose
    settings by, and the more pairs are left to fit on."""

    validation_by: HoldOutBy | None = None
    """What is held out for validation: pairs, all alike, or events, so that items come that are
    new to a user. None does as the test does: a fixed test part that has pairs of train in it
    was parted by events, as by time, and with unseen items to rank only those new to the user
    are left of it; any other was parted by pairs."""

    seed: int = 0
    """Of the split."""

    candidates: Candidates = "unseen"
    """Rank the items that are not in the user's history, or all items."""

    ratings_from: RatingsFrom = "train"
    """Fit the relative ratings on the known pairs alone, or on all pairs, the held-out ones
    included: the paper's order, which lets a little of the test into the training ratings."""

    def __post_init__(self) -> None:
        if self.ratings_from not in ("train", "all"):
            raise ConfigError(f"ratings_from must be train or all, got {self.ratings_from!r}")
        if self.candidates not in ("unseen", "all"):
            raise ConfigError(f"candidates must be unseen or all, got {self.candidates!r}")
        if self.validation_by is not None:
            check_hold_out_by("validation_by", self.validation_by)
        for name in ("test_share", "validation_share"):
            if not 0 < check_number(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be above 0 and below 1, got {getattr(self, name)}")


class Protocol:
    """One split of one data set: gives out validation freely, and test one model at a time."""

    def __init__(
        self,
        data: Interactions,
        test: Interactions | None = None,
        config: ProtocolConfig | None = None,
    ) -> None:
        """Split the data.

        Args:
            data: All counts, or the training part if there is a fixed test part.
            test: A fixed test part; by default a part of each user's items is held out.
            config: How.

        Raises:
            DataError: If nothing can be held out.
        """
        self.config = config = config or ProtocolConfig()
        self.facts: dict[str, Any] = {**asdict(config), "is_fixed_split": test is not None}
        """All there is to say about the split, for the record."""
        if test is None:
            self._split = split_counts(
                data.counts,
                test_share=config.test_share,
                validation_share=config.validation_share,
                validation_by=config.validation_by or "pairs",
                rng=config.seed,
            )
            self.facts["validation_by"] = config.validation_by or "pairs"
        else:
            self._split = self._fixed_split(data, test)
        self._split = _with_few_validated(self._split, config.validation_users, config.seed)
        if self._split.validation.nnz == 0:
            raise DataError(
                "no user has enough items for a validation part, so no setting can be chosen; "
                "bring more data or raise validation_share"
            )
        self.facts |= {
            f"n_{part}_pairs": int(getattr(self._split, part).nnz)
            for part in ("train", "validation", "test")
        }
        self.known = self._split.known
        """What a final model may be fitted on: train and validation, (n_users, n_items)."""
        self.relative_rating: RelativeRating | None = None
        """Distributions that every model must use; None lets each fit its own."""
        if config.ratings_from == "all":
            everything = as_count_matrix(self.known + self._split.test)
            self.relative_rating = RelativeRating().fit(everything)

    def _fixed_split(self, data: Interactions, test: Interactions) -> Split:
        """The given test part, in the rows and columns of the training part."""
        aligned = align(test, data)
        held_out = aligned.counts
        n_overlap = int(overlap(data.counts, held_out).nnz)
        self.facts |= {
            "n_unknown_user_pairs": aligned.n_unknown_user_pairs,
            "n_unknown_item_pairs": aligned.n_unknown_item_pairs,
            "n_overlap_pairs": n_overlap,
        }
        if self.config.candidates == "unseen":
            held_out = without_overlap(data.counts, held_out)
        if aligned.n_dropped_pairs:
            logger.warning(
                "%d of %d test pairs are left out: %d have an unknown user, %d an unknown item",
                aligned.n_dropped_pairs,
                test.n_pairs,
                aligned.n_unknown_user_pairs,
                aligned.n_unknown_item_pairs,
            )
        if n_overlap:
            what = "left out" if self.config.candidates == "unseen" else "kept, as all are ranked"
            logger.warning("%d test pairs are in train as well; they are %s", n_overlap, what)
        if held_out.nnz == 0:
            raise DataError(
                f"nothing is left to test on: of {test.n_pairs} test pairs "
                f"{aligned.n_unknown_user_pairs} have unknown users, "
                f"{aligned.n_unknown_item_pairs} unknown items, and {n_overlap} are in train"
            )
        has_repeats = n_overlap > BY_EVENTS_ABOVE * aligned.counts.nnz
        by_events = has_repeats and self.config.candidates == "unseen"
        by = self.config.validation_by or ("events" if by_events else "pairs")
        self.facts["validation_by"] = by
        logger.info("validation is held out by %s, as the test part was", by)
        train, validation = hold_out(
            data.counts, share=self.config.validation_share, by=by, rng=self.config.seed
        )
        return Split(train, validation, held_out)

    @property
    def validation(self) -> Validation:
        """What settings may be chosen on."""
        return Validation(self._split.train, self._split.validation, self.relative_rating)

    def test(self, scorer: Scorer) -> Evaluation:
        """Judge a final model."""
        ratings = self.relative_rating or RelativeRating().fit(self.known)
        return evaluate(
            scorer,
            self.known,
            self._split.test,
            ratings.transform(self._split.test),
            candidates=self.config.candidates,
            rng=self.config.seed,
        )

    def test_probabilities(self, scorer: Scorer, calibrator: Calibrator) -> Calibration:
        """Judge the probabilities of a final model, on items not in the histories."""
        unseen = without_overlap(self.known, self._split.test)
        return judge_probabilities(scorer, calibrator, self.known, unseen, rng=self.config.seed)


def _with_few_validated(split: Split, n_users: int, seed: int) -> Split:
    """Give the validation pairs of all but some users back to train."""
    rng = np.random.default_rng([seed, 1])  # apart from the split's own draws
    validation = of_some_users(split.validation, n_users, rng)
    return Split(as_count_matrix(split.known - validation), validation, split.test)
