"""Measure whether probabilities hold when dislikes are given with a history.

Run as `python benchmarks/disliked_probabilities.py DATA`.

DATA is a table of ratings by user and item. High ratings are likes, low ones dislikes. A default
model is fitted on nine tenths of the likes alone and asked for the last tenth: with the likes as
the history, with one disliked item in addition, and with all of them. With `--made-up`, the table
has counts, and popular unseen items stand for dislikes.

Each line has the mean probability of all items that are neither in the history nor disliked, the
share of them that was held out, the ratio of both; the same for the items with a probability of at
least 5 %; and the Brier skill. "The curve alone" is without the shift of the log odds that keeps
the expected number of items the same.
"""

from __future__ import annotations

import argparse

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, hold_out
from cfnade.answer.recommend import Answers
from cfnade.model.inference import with_values

CONFIDENT = 0.05
MADE_UP = 5  # dislikes to draw for each user


def some_of_each(dislikes: csr_array, n: int, rng: np.random.Generator) -> csr_array:
    """At most n random entries of each row."""
    kept = np.concatenate(
        [
            start + np.sort(rng.permutation(end - start)[:n])
            for start, end in zip(dislikes.indptr[:-1], dislikes.indptr[1:], strict=True)
        ]
    ).astype(np.intp)
    ends = np.append(0, np.cumsum(np.minimum(np.diff(dislikes.indptr), n)))
    return csr_array((dislikes.data[kept], dislikes.indices[kept], ends), shape=dislikes.shape)


def line(name: str, probability: NDArray[np.floating], came_true: NDArray[np.bool_]) -> str:
    """One row of the table."""
    rate, mean = came_true.mean(), probability.mean()
    is_high = probability >= CONFIDENT
    high, true = probability[is_high].mean(), came_true[is_high].mean()
    skill = 1.0 - np.mean((probability - came_true) ** 2) / (rate * (1.0 - rate))
    return (
        f"| {name} | {mean:.3%} / {rate:.3%} | {mean / rate:.2f} "
        f"| {high:.1%} / {true:.1%} | {high / true:.2f} | {skill:.4f} |"
    )


def main() -> None:
    """Fit, ask and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="Parquet file with user, item and rating, numbered from 0")
    parser.add_argument("--like", type=float, default=4.0, help="least rating of a like")
    parser.add_argument("--dislike", type=float, default=2.0, help="largest rating of a dislike")
    parser.add_argument("--made-up", action="store_true", help="random items for dislikes")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    value = "count" if given.made_up else "rating"
    table = duckdb.read_parquet(given.data).select("user", "item", value).fetchnumpy()
    user, item, rating = (np.asarray(table[name]) for name in ("user", "item", value))
    shape = (user.max() + 1, item.max() + 1)

    def ones(keep: NDArray[np.bool_]) -> csr_array:
        return csr_array((np.ones(keep.sum()), (user[keep], item[keep])), shape=shape)

    if given.made_up:
        likes = csr_array((rating, (user, item)), shape=shape)
        draws = np.random.default_rng(given.seed).choice(item, (shape[0], MADE_UP))  # by popularity
        unseen = np.unique(
            np.column_stack([np.repeat(np.arange(shape[0]), MADE_UP), draws.ravel()]), axis=0
        )
        is_new = ~(likes[unseen[:, 0], unseen[:, 1]] > 0)
        rows, columns = unseen[is_new].T
        dislikes = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    else:
        dislikes, likes = ones(rating <= given.dislike), ones(rating >= given.like)
    known, held_out = hold_out(likes, rng=given.seed)
    model = ImplicitCFNADE(random_state=given.seed).fit(known)
    answers: Answers = model.answers_
    assert answers.calibrator is not None
    users = np.flatnonzero((np.diff(held_out.indptr) > 0) & (np.diff(dislikes.indptr) > 0))
    known, held_out, dislikes = known[users], held_out[users], dislikes[users]
    ratings = answers.scorer.relative_rating.transform(known)
    lengths = np.diff(known.indptr)[:, None]
    came_true = held_out.toarray() > 0
    print(f"{len(users):,} users with likes and dislikes")
    print(
        f"| given | all: mean / true | ratio | from {CONFIDENT:.0%}: mean / true | ratio | skill |"
    )
    plain = answers.calibrator.probability(answers.scorer.network.logits(ratings), lengths)
    for most in (1, int(np.diff(dislikes.indptr).max())):
        some = some_of_each(dislikes, most, np.random.default_rng([given.seed, most]))
        n = np.diff(some.indptr)
        each = np.array([answers.dislike_weight(k) for k in n.tolist()])
        logits = answers.scorer.network.logits(ratings, with_values(some, np.repeat(each, n)))
        probability = answers.calibrator.probability(logits, lengths)
        others = (known.toarray() == 0) & (some.toarray() == 0)
        without = answers.scorer.network.logits(ratings)
        shifts = np.array(
            [
                [answers.calibrator.shift_for(z[o], w[o], int(k))]
                for z, w, o, k in zip(logits, without, others, lengths[:, 0], strict=True)
            ]
        )
        shifted = answers.calibrator.probability(logits, lengths, shifts)
        is_judged = others
        what = f"{n.mean():.1f} dislikes" if most > 1 else "1 dislike"
        print(line(f"likes, judged without {what}", plain[is_judged], came_true[is_judged]))
        print(
            line(f"likes and {what}, the curve alone", probability[is_judged], came_true[is_judged])
        )
        print(line(f"likes and {what}", shifted[is_judged], came_true[is_judged]), flush=True)


if __name__ == "__main__":
    main()
