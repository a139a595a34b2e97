"""What is found on some users of a prepared folder, with the figures of all in its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.readout import Readout
from cfnade.beyond.recency import log_of_watchers, recent_counts
from cfnade.beyond.repeats import logit_of_repeats
from cfnade.data.interactions import CountMatrix, Interactions, as_count_matrix, with_dislikes
from cfnade.data.item_features import ItemFeatures
from cfnade.data.ratings import RelativeRating, likes_alone
from cfnade.data.splitting import without_overlap
from cfnade.fit.cold_start import add_features, find_strengths
from cfnade.fit.judge import Judge
from cfnade.fit.plan import FitPlan, feature_users
from cfnade.fit.training_part import TrainingPart, find_repeats
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.scale.prepared import Prepared


@dataclass(frozen=True)
class PreparedPart(TrainingPart):
    """Some users of a prepared folder with times, and what follows from all of its users."""

    prepared: Prepared | None = None

    @classmethod
    def of(cls, prepared: Prepared, data: Interactions, plan: FitPlan) -> PreparedPart:
        """Of these users, with their events in the training part of the folder."""
        return cls(data, prepared.relative_rating, plan, prepared=prepared)

    @property
    def _folder(self) -> Prepared:
        assert self.prepared is not None
        return self.prepared

    @cached_property
    def half_lives(self) -> Sequence[float]:
        """Half-lives to try."""
        return self._folder.half_lives

    def histories(self, half_life: float) -> tuple[RelativeRating, CountMatrix]:
        """Counts of these users that decay with a half-life, and the distributions of all users."""
        data = self.data
        if half_life == 0:
            return self.ratings, with_dislikes(data.counts, data.dislikes)
        counts = recent_counts(self._log, data.counts.shape, half_life, data.event_weights)
        return self._folder.decayed(half_life), with_dislikes(counts, data.dislikes)

    @cached_property
    def _watchers(self) -> Callable[[float], NDArray[np.float32]]:
        watchers, _, recent = self._folder.trends

        def of_half_life(half_life: float) -> NDArray[np.float32]:
            if half_life == 0:
                return log_of_watchers(watchers, watchers)
            return log_of_watchers(watchers, recent[:, self.half_lives.index(half_life)])

        return of_half_life

    @cached_property
    def repeat_features(self) -> NDArray[np.float64]:
        """What repeats depend on beside the count, (n_items, 2)."""
        watchers, back, _ = self._folder.trends
        return np.column_stack([logit_of_repeats(watchers, back), self._watchers(0.0)])


@dataclass(frozen=True)
class Found:
    """What was found on held-out pairs, beside the weights of a network."""

    readout: Readout
    strengths: FeatureStrengths | None = None
    """How strongly features of items count; None without features."""

    mpr: float | None = None
    """With the readout and the features, in percent; None if nothing was searched for."""

    n_looks: int = 0


@dataclass(frozen=True)
class Finder:
    """Finds what is added to a network that was trained on a prepared folder."""

    prepared: Prepared
    """With the folder `before` if events have times."""

    features: ItemFeatures | None = None
    """Of its items, and of further ones."""

    n_threads: int | None = None
    """None takes all."""

    def find(self, network: NumpyNetwork, plan: FitPlan) -> Found:
        """Find the readout, and how strongly features count.

        Args:
            network: Trained on `before`; without times on the folder itself.
            plan: Of that training.
        """
        if self.prepared.before is not None:
            return self._find_timed(self.prepared.before, network, plan)
        readout = plan.readout.or_usual()
        if self.features is None:
            return Found(readout)
        scorer = NetworkScorer(network, self.prepared.relative_rating)
        n_users = feature_users(self.features.n_items)
        parts = _first_users(self.prepared.held_out("validation"), n_users)
        if not parts:
            return Found(readout, FeatureStrengths())
        histories, held_out = parts
        strengths = self._strengths(scorer, histories, held_out, plan)
        known = self._with_features(scorer, strengths, histories, self.prepared.n_items)
        mpr = _mpr(known, scorer.relative_rating, histories, held_out)
        return Found(readout, strengths, mpr)

    def _find_timed(self, before: Prepared, network: NumpyNetwork, plan: FitPlan) -> Found:
        """As a fit on one machine does (`cfnade.fit.pipeline`)."""
        part, held_out = _judged(before, plan, plan.validation_users)
        new, strengths = _new(part.data, held_out), None
        if not new.nnz:
            strengths = None if self.features is None else FeatureStrengths()
            return Found(plan.readout.or_usual(), strengths)
        judge = Judge(part, new, None)
        readout, mpr = judge.find_readout(network)
        half_life = readout.history_half_life or 0.0
        scorer = part.scorer(network, readout)
        if self.features is not None:
            likes = likes_alone(part.histories(half_life)[1])
            strengths = self._strengths(scorer, likes, new, plan)
            scorer = self._with_features(scorer, strengths, likes, before.n_items)
            mpr = judge.metrics(judge.logits(scorer.network, half_life), ("mpr",))["mpr"]
        if plan.readout.repeats is None:
            repeats = find_repeats(part, scorer, readout, held_out)
            readout = replace(readout, repeats=repeats)
        return Found(readout, strengths, mpr, judge.n_looks)

    def add(self, network: NumpyNetwork, found: Found, plan: FitPlan) -> NetworkScorer:
        """The network with all that was found; it was trained on all events."""
        before, histories = self.prepared.before, None
        scorer = NetworkScorer(network, self.prepared.relative_rating)
        if before is not None:
            data, _ = before.judged(plan.validation_users)
            part = PreparedPart.of(self.prepared, data, plan)
            scorer = part.scorer(network, found.readout)
            histories = likes_alone(part.histories(found.readout.history_half_life or 0.0)[1])
        if self.features is None or found.strengths is None:
            return scorer
        if histories is None or histories.nnz == 0:  # without times, or without anybody to judge
            n_users = feature_users(self.features.n_items)
            (histories,) = _first_users(self.prepared.rows(), n_users)
        return self._with_features(scorer, found.strengths, histories)

    def test_mpr(self, scorer: NetworkScorer, found: Found, plan: FitPlan) -> float | None:
        """MPR of new pairs of the test part, in percent; None without any."""
        ratings = self.prepared.relative_rating
        if self.prepared.before is None:
            pieces = self.prepared.held_out("test")
        else:
            part, held_out = _judged(self.prepared, plan)
            _, histories = part.histories(found.readout.history_half_life or 0.0)
            new = _new(part.data, held_out)
            users = np.flatnonzero(np.diff(new.indptr))
            pieces = iter([(histories[users], new[users])])
        total, weight = 0.0, 0.0
        for histories, held_out in pieces:
            own = float(ratings.transform(held_out).sum())
            total += own * _mpr(scorer, ratings, histories, held_out)
            weight += own
        return total / weight if weight else None

    def _strengths(
        self, scorer: NetworkScorer, histories: CountMatrix, held_out: CountMatrix, plan: FitPlan
    ) -> FeatureStrengths:
        assert self.features is not None
        return find_strengths(
            scorer,
            self.features.first(self.prepared.n_items),
            histories,
            held_out,
            seed=plan.training.seed,
            n_threads=self.n_threads,
            n_watchers=scorer.relative_rating.n_watchers,
        )

    def _with_features(
        self,
        scorer: NetworkScorer,
        strengths: FeatureStrengths,
        histories: CountMatrix,
        n_items: int | None = None,
    ) -> NetworkScorer:
        """The scorer with what is known about items; of the first ones, or of all."""
        assert self.features is not None
        known = self.features if n_items is None else self.features.first(n_items)
        return add_features(scorer, known, strengths, histories=histories, n_threads=self.n_threads)


def _judged(
    prepared: Prepared, plan: FitPlan, most: int | None = None
) -> tuple[PreparedPart, CountMatrix]:
    """Users with held-out pairs, without these, and the pairs, (n_judged, n_items)."""
    data, is_later = prepared.judged(most)
    assert data.log is not None
    later = data.log.subset(is_later).counts(data.counts.shape, data.event_weights)
    later.data[prepared.relative_rating.n_watchers[later.indices] == 0] = 0.0  # born since
    part = PreparedPart.of(prepared, data.with_events(~is_later), plan)
    return part, as_count_matrix(later)


def _new(train: Interactions, held_out: CountMatrix) -> CountMatrix:
    """Held-out pairs that are new to the user, and not disliked."""
    new = without_overlap(train.counts, held_out)
    return new if train.dislikes is None else without_overlap(train.dislikes, new)


def _first_users(
    pieces: Iterable[tuple[CountMatrix, ...]], n_users: int
) -> tuple[CountMatrix, ...]:
    """The first users of all pieces, each of some matrices; empty if there is no piece."""
    kept: list[tuple[CountMatrix, ...]] = []
    for piece in pieces:
        kept.append(piece)
        if sum(one[0].shape[0] for one in kept) >= n_users:
            break
    columns = zip(*kept, strict=True)
    return tuple(as_count_matrix(vstack(part, format="csr")[:n_users]) for part in columns)


def _mpr(
    scorer: NetworkScorer, ratings: RelativeRating, histories: CountMatrix, held_out: CountMatrix
) -> float:
    """MPR in percent; of a scorer that may have further items."""
    shape = (held_out.shape[0], scorer.network.config.n_items)
    parts = histories, held_out, ratings.transform(held_out)
    wide = (csr_array((part.data, part.indices, part.indptr), shape) for part in parts)
    return mean_percentage_ranking(scorer, *wide)
