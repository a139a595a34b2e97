"""Make the small models that are kept for a format, with their recommendations.

    python -m tests.storage.artifacts.make

Run once for every format, by the version that introduces it. A kept model is never made again: it
stands for the models that people have saved.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, Interactions
from cfnade.storage.encoding import WeightType
from cfnade.storage.folder import FORMAT

HERE = Path(__file__).parent
FEATURES = f"v{FORMAT}-features"
"""Fitted with an items table, which has an item that nobody has watched."""

KEPT: dict[str, WeightType] = {
    f"v{FORMAT}": "float32",
    f"v{FORMAT}-int16": "int16",
    FEATURES: "float32",
}
HISTORIES: list[dict[str, float]] = [
    {},
    {"film-0": 1},
    {"film-1": 3, "film-4": 1},
    {"film-2": 0.5, "film-5": 100, "film-8": 7, "film-10": 2},
    {f"film-{k}": k + 1.0 for k in range(11)},
]


def main() -> None:
    """Fit on twelve items in three groups, save, and write down the recommendations."""
    new = {name: dtype for name, dtype in KEPT.items() if not (HERE / name).exists()}
    if not new:
        raise SystemExit("all models are kept as they are; a new format gets new folders")
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
    groups = [("abc"[k % 3], "short" if k % 4 == 0 else "long") for k in range(13)]
    items = pd.DataFrame(groups, columns=["genre", "length"])
    items.insert(0, "item", [f"film-{k}" for k in range(13)])
    for name, dtype in new.items():
        model.fit(data, items=items if name == FEATURES else None)
        model.save(HERE / name, dtype=dtype, data={"name": "three groups"})
        kept = ImplicitCFNADE.load(HERE / name)
        answers = []
        for history in HISTORIES:
            items, scores = kept.recommend_for(history, n=4)
            found = {"items": items.tolist(), "scores": [float(score) for score in scores]}
            answers.append({"history": history, **found})
        text = json.dumps(answers, indent=2) + "\n"
        (HERE / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
