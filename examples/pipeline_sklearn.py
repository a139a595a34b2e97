"""CF-NADE in scikit-learn: a pipeline with `RelativeRating`, and settings chosen on new users.

Folds of users are a hard test that most recommenders cannot take: the users of a test fold are
in no training data. This model has no user parameters, so they are served like any other.

Needs `pip install 'cfnade[train]' scikit-learn`.

    python examples/pipeline_sklearn.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from cfnade import ImplicitCFNADE, RelativeRating, evaluate, hold_out


def made_up_counts() -> csr_array:
    """Counts of 300 people with one of three tastes; item i is for taste i % 3."""
    rng = np.random.default_rng(0)
    is_taste = np.arange(300)[:, None] % 3 == np.arange(45)[None, :] % 3
    is_seen = rng.random((300, 45)) < np.where(is_taste, 0.5, 0.05)
    return csr_array(np.where(is_seen, rng.geometric(0.3, (300, 45)), 0).astype(float))


def minus_mpr(pipeline: Pipeline, counts: csr_array, y: None = None) -> float:
    """Mean percentage ranking of a fifth of each user's items, given the others; higher is better.

    The pipeline's first step turns the counts of these users, whom it has never seen, into
    ratings; the last one scores them.
    """
    known, held_out = hold_out(pipeline[:-1].transform(counts), share=0.2, rng=0)
    found = evaluate(pipeline[-1], known, held_out, held_out, metrics=["mpr"], n_bootstrap=0)
    return -found.metrics["mpr"]


def main() -> GridSearchCV:
    """Choose alpha by folds of users."""
    pipeline = Pipeline(
        [
            ("ratings", RelativeRating()),
            ("model", ImplicitCFNADE(n_hidden=16, max_epochs=10, random_state=0)),
        ]
    )
    search: Any = GridSearchCV(
        pipeline, {"model__alpha": [3.0, 30.0]}, scoring=minus_mpr, cv=2, error_score="raise"
    )
    search.fit(made_up_counts())
    for settings, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        print(f"{settings}: MPR {-score:.2f} %")
    return search


if __name__ == "__main__":
    main()
