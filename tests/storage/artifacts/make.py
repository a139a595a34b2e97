"""Make the small model that is kept for a format, with its recommendations.

    python -m tests.storage.artifacts.make

Run once for every format, by the version that introduces it. A kept model is never made again: it
stands for the models that people have saved.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, Interactions
from cfnade.storage.folder import FORMAT

HERE = Path(__file__).parent
HISTORIES: list[dict[str, float]] = [
    {},
    {"film-0": 1},
    {"film-1": 3, "film-4": 1},
    {"film-2": 0.5, "film-5": 100, "film-8": 7, "film-10": 2},
    {f"film-{k}": k + 1.0 for k in range(11)},
]


def main() -> None:
    """Fit on twelve items in three groups, save, and write down the recommendations."""
    folder = HERE / f"v{FORMAT}"
    if folder.exists():
        raise SystemExit(f"{folder} is kept as it is; a new format gets a new folder")
    rng = np.random.default_rng(0)
    in_group = np.arange(60)[:, None] % 3 == np.arange(12)[None, :] % 3
    watched = rng.random((60, 12)) < np.where(in_group, 0.8, 0.1)
    counts = csr_array(np.where(watched, rng.geometric(0.3, (60, 12)), 0).astype(float))
    data = Interactions(
        counts,
        np.arange(60),
        np.array([f"film-{k}" for k in range(12)], dtype=object),
        np.array([f"Film número {k}" for k in range(12)], dtype=object),
    )
    model = ImplicitCFNADE(n_hidden=4, max_epochs=30, learning_rate=0.02)
    model.set_params(recipe__n_layers=2, readout__direct_neighbours=3)
    model.fit(data).save(folder, data={"name": "three groups"})
    answers = []
    for history in HISTORIES:
        items, scores = model.recommend_for(history, n=4)
        answers.append(
            {
                "history": history,
                "items": items.tolist(),
                "scores": [float(score) for score in scores],
            }
        )
    (HERE / f"v{FORMAT}.json").write_text(json.dumps(answers, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
