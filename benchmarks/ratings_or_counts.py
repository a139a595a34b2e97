"""Both models on the same ratings: python benchmarks/ratings_or_counts.py DATA [SET].

A random tenth of the ratings is held out. `ImplicitCFNADE` takes every other rating as a like and
ranks all films; `CFNADE` ranks by expected stars, and predicts the held-out stars. The outcome is
kept in benchmarks/results/ratings_or_counts.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cfnade import CFNADE, ImplicitCFNADE, RatingTable, Scorer, evaluate, read_ratings
from cfnade.baselines.popularity import Popularity
from cfnade.baselines.rating_baselines import BiasedMeans
from cfnade.data.interactions import CountMatrix, as_count_matrix

OUTCOME = Path(__file__).parent / "results" / "ratings_or_counts.json"


class ByStars:
    """Ranks by expected rating, for rows of the model's own table, asked in this order."""

    def __init__(self, model: CFNADE, rows: NDArray[np.int64]) -> None:
        self.model, self.rows, self.n_asked = model, rows, 0

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Expected stars of every item."""
        n_users, n_items = histories.shape
        rows = self.rows[self.n_asked : self.n_asked + n_users]
        self.n_asked += n_users
        columns = np.tile(np.arange(n_items), n_users)
        expected = self.model.expected(np.repeat(rows, n_items), columns)
        return expected.astype(np.float32).reshape(n_users, n_items)


def likes(table: RatingTable) -> CountMatrix:
    pairs = table.levels.astype(np.float64)
    pairs.data[:] = 1.0
    return as_count_matrix(pairs)


def main() -> None:
    data, name = Path(sys.argv[1]), (sys.argv[2:] or ["ml-1m"])[0]
    train, test = read_ratings(data / f"{name}.parquet").split(0.1, 0)
    known, held_out = likes(train), likes(test)
    with_test = np.flatnonzero(np.diff(held_out.indptr))[:500]  # a pair takes K products
    part = held_out[with_test]

    def ndcg(scorer: Scorer) -> float:
        found = evaluate(scorer, known[with_test], part, part, metrics=("ndcg@20",), n_bootstrap=0)
        return found.metrics["ndcg@20"]

    stars = CFNADE().fit(train)
    mean = BiasedMeans(np.inf).fit(train)
    outcome = {
        "set": name,
        "n_users": len(with_test),
        "ndcg@20": {
            "implicit": ndcg(ImplicitCFNADE(random_state=0).fit(known)),
            "stars": ndcg(ByStars(stars, with_test)),
            "popularity": ndcg(Popularity().fit(known)),
        },
        "rmse": {
            kind: float(np.sqrt(np.mean((model.expected(*test.pairs) - test.values) ** 2)))
            for kind, model in (("stars", stars), ("mean", mean))
        },
    }
    OUTCOME.write_text(json.dumps(outcome, indent=1) + "\n")
    print(json.dumps(outcome, indent=1))


if __name__ == "__main__":
    main()
