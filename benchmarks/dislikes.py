"""Measure what dislikes in training and histories are worth.

Run as `python benchmarks/dislikes.py DATA`.

DATA is a table of ratings by user and item. High ratings are likes, low ones dislikes; a tenth of
each is held out from every user, and a tenth of the other likes for validation. The steps of a
default fit are run without dislikes and with them, at several costs of a disliked target; the
strength of the direct path is found on validation. Held-out items are ranked among all items that
the user neither likes nor dislikes as far as is known. Prints a table of means over the seeds: MPR,
nDCG@100 and how often a held-out like has a higher score than a held-out dislike, on validation and
on test.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade import RelativeRating, hold_out
from cfnade.beyond.direct import NeighbourRegression
from cfnade.beyond.factors import item_scores, start_from_factors
from cfnade.beyond.readout import ReadoutParts, find_readout
from cfnade.data.ratings import likes_alone
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings
from cfnade.metrics.evaluate import KnownScores, evaluate
from cfnade.metrics.formulas import cost_by
from cfnade.model import training
from cfnade.model.inference import full_dislike, with_values

METRICS = ("mpr", "ndcg@100")
COSTS: dict[str, Callable[[csr_array], csr_array]] = {
    "1": lambda targets: with_values(targets, np.maximum(targets.data, -1.0)),
    "the root of c": training.soften_dislikes,
    "c": lambda targets: targets,
}


class Case:
    """One split of the data and the steps of a fit on it."""

    def __init__(self, likes: csr_array, dislikes: csr_array, seed: int) -> None:
        self.rest, self.test = hold_out(likes, rng=[seed, 0])
        self.known, self.validation = hold_out(self.rest, rng=[seed, 1])
        disliked, self.disliked_test = hold_out(dislikes, min_items=2, rng=[seed, 2])
        self.dislikes = -disliked
        self.plan = FitPlan.of(self.known, FitSettings(seed=seed))
        assert self.plan.factors is not None and self.plan.direct is not None
        self.ratings = RelativeRating().fit(self.known)
        rated = self.ratings.transform(self.known)
        model = self.plan.model
        first = training.first_weights(model, self.plan.training, rated)
        scores = item_scores(rated, model, **asdict(self.plan.factors))
        self.start = start_from_factors(first, scores, seed=seed)
        direct, l2 = self.plan.direct, self.plan.readout.or_usual().direct_l2
        assert l2 is not None
        regression = NeighbourRegression(rated, direct.n_candidates, direct.max_users)
        self.parts = ReadoutParts(regression.neighbours(l2, regression.n_candidates))

    def train(self, with_dislikes: bool) -> training.Trained:
        """Train on the known pairs."""
        counts = csr_array(self.known + self.dislikes) if with_dislikes else self.known
        rated = self.ratings.transform(counts)
        return training.train(self.plan.model, self.plan.training, rated, start=self.start)

    def judge(
        self, trained: training.Trained, with_dislikes: bool, *, as_one: bool = False
    ) -> list[float]:
        """The metrics on validation, then those on test.

        With `as_one`, all dislikes of a user together weigh as much as one.
        """
        readout, found = self.plan.readout.or_usual(), []
        for known, held_out in ((self.known, self.validation), (self.rest, self.test)):
            users = np.flatnonzero(np.diff(held_out.indptr))
            histories = csr_array(known + self.dislikes)[users]
            rated = self.ratings.transform(histories)
            if as_one:
                logits = trained.network.logits(likes_alone(rated), self.shared(users))
            else:
                logits = trained.network.logits(rated if with_dislikes else likes_alone(rated))
            direct = self.parts.scores(readout, rated)
            asked = histories, held_out[users], self.ratings.transform(held_out[users])

            def metrics(gain, logits=logits, direct=direct, asked=asked) -> dict[str, float]:
                scores = KnownScores(logits + np.float32(gain) * direct)
                return evaluate(scores, *asked, metrics=METRICS, n_bootstrap=0).metrics

            if known is self.known:
                readout = find_readout(
                    self.plan.readout, lambda r, m=metrics: cost_by(m(r.direct_gain), None)
                )
            scores = logits + np.float32(readout.direct_gain) * direct
            found += [*(metrics(readout.direct_gain)[name] for name in METRICS)]
            found.append(100.0 * share_above(scores, held_out[users], self.disliked_test[users]))
        return found

    def shared(self, users: NDArray[np.intp]) -> csr_array:
        """Confidences of the dislikes of users, which add up to that of one."""
        disliked = csr_array(self.dislikes[users])
        n = np.diff(disliked.indptr)
        each = np.maximum(full_dislike(self.plan.model) / np.repeat(n, n), 1.0)
        return with_values(disliked, each)


def share_above(scores: NDArray[np.floating], liked: csr_array, disliked: csr_array) -> float:
    """How often a held-out like has a higher score than a held-out dislike, mean over users."""
    shares = []
    for row, own in enumerate(scores):
        high, low = (own[part[[row]].indices] for part in (liked, disliked))
        if high.size and low.size:
            shares.append((high[:, None] > low).mean())
    return float(np.mean(shares))


def main() -> None:
    """Run all variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="Parquet file with user, item and rating, numbered from 0")
    parser.add_argument("--like", type=float, default=4.0, help="least rating of a like")
    parser.add_argument("--dislike", type=float, default=2.0, help="largest rating of a dislike")
    parser.add_argument("--seeds", type=int, default=3, help="splits")
    given = parser.parse_args()
    table = duckdb.read_parquet(given.data).select("user", "item", "rating").fetchnumpy()
    user, item, rating = (np.asarray(table[name]) for name in ("user", "item", "rating"))
    shape = (user.max() + 1, item.max() + 1)

    def ones(keep: NDArray[np.bool_]) -> csr_array:
        return csr_array((np.ones(keep.sum()), (user[keep], item[keep])), shape=shape)

    likes, dislikes = ones(rating >= given.like), ones(rating <= given.dislike)
    print(f"{likes.nnz:,} likes, {dislikes.nnz:,} dislikes")
    rows: dict[str, list[list[float]]] = {}
    for seed in range(given.seeds):
        case = Case(likes, dislikes, seed)
        plain = case.train(False)
        rows.setdefault("no dislikes", []).append(case.judge(plain, False))
        rows.setdefault("in histories alone", []).append(case.judge(plain, True))
        rows.setdefault("the same, together as one", []).append(
            case.judge(plain, True, as_one=True)
        )
        for name, cost in COSTS.items():
            training.soften_dislikes = cost
            found = case.judge(case.train(True), True)
            rows.setdefault(f"in both, a target costs {name}", []).append(found)
    for name, found in rows.items():
        mpr, ndcg, above, *test = np.mean(found, axis=0)
        print(f"| {name} | {mpr:.2f} / {ndcg:.4f} / {above:.1f} ", end="")
        print("| {:.2f} / {:.4f} / {:.1f} |".format(*test), flush=True)


if __name__ == "__main__":
    main()
