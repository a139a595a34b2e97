"""The quick start of `implicit`, run with its ALS and with ours: only the constructor differs.

Needs `pip install 'cfnade[train]' implicit`.

    python examples/quickstart_implicit.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

from cfnade import ImplicitCFNADE

MODELS = {
    "implicit": AlternatingLeastSquares(factors=16, num_threads=1, random_state=0),
    "cfnade": ImplicitCFNADE(n_hidden=16, max_epochs=20, random_state=0),
}


def made_up_counts() -> csr_matrix:
    """Counts of 300 people with one of three tastes; item i is for taste i % 3."""
    rng = np.random.default_rng(0)
    is_taste = np.arange(300)[:, None] % 3 == np.arange(45)[None, :] % 3
    is_seen = rng.random((300, 45)) < np.where(is_taste, 0.5, 0.05)
    return csr_matrix(np.where(is_seen, rng.geometric(0.3, (300, 45)), 0).astype(float))


def quick_start(model: Any, user_items: csr_matrix) -> dict[str, Any]:
    """What code written for `implicit` calls: nothing in here knows which model it has."""
    model.fit(user_items)
    userids = np.arange(4)
    return {
        "for a user": model.recommend(7, user_items[7], N=5),
        "for many": model.recommend(userids, user_items[userids], N=5),
        "some items left out": model.recommend(7, user_items[7], N=5, filter_items=[1, 4]),
        "seen ones too": model.recommend(7, user_items[7], N=5, filter_already_liked_items=False),
        "alike": model.similar_items(4, N=5),
    }


def main() -> None:
    """Show both answers, one above the other."""
    user_items = made_up_counts()
    answers = {name: quick_start(model, user_items) for name, model in MODELS.items()}
    for question in answers["cfnade"]:
        for name, answer in answers.items():
            ids, _ = answer[question]
            first = ids if ids.ndim == 1 else ids[0]
            print(f"{question:20} {name:9} {ids.shape!s:7} {first.tolist()}")


if __name__ == "__main__":
    main()
