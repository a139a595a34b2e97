"""Measure what dials cost in accuracy and gain elsewhere: python benchmarks/dials.py DATA [NAME]...

DATA is the folder of data sets. A default model is fitted on the split of `cfnade compare` (seed 0,
no floors), and recommends 100 items to every test user at several values of each dial. Accuracy is
that of the whole list, coverage, novelty and diversity are of its first 20. MPR ranks all items, so
it is measured for popularity only: the other dials arrange a list. Writes
benchmarks/results/dials.json and benchmarks/results_dials.md.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from accuracy_sets import SETS
from numpy.typing import NDArray
from results import OUTCOMES, ROOT
from scipy.sparse import csr_array

from cfnade import Dials, ImplicitCFNADE, Interactions, RelativeRating
from cfnade.compare.protocol import Protocol
from cfnade.data.interactions import CountMatrix
from cfnade.data.item_features import ItemFeatures
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.metrics.formulas import Places, ndcg
from cfnade.metrics.lists import N_LISTED, judge_lists

NAMES = ("ml-1m", "lastfm-2k", "online-retail")
SEED, N = 0, 100
TEXT = ROOT / "benchmarks" / "results_dials.md"
SETTINGS = {
    "none": {},
    **{f"popularity {tilt:+g}": {"popularity": tilt} for tilt in (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)},
    **{f"diversity {d:g}": {"diversity": d} for d in (0.1, 0.3, 0.5, 0.7, 0.9)},
    "popularity -0.2, diversity 0.3": {"popularity": -0.2, "diversity": 0.3},
}
LIMITED = {f"at most {k} of a genre in 20": {"at_most": {"genre": k}} for k in (10, 5, 3)}
"""For data with genres. Lists of 20 alone: with 100 items, so few of each genre do not exist."""


class Tilted:
    """The scores with a tilt, for MPR."""

    def __init__(self, model: ImplicitCFNADE, popularity: float) -> None:
        self.model = model
        self.added = popularity * np.log1p(model.scorer_.relative_rating.n_watchers)

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """As of a `Scorer`."""
        return np.asarray(self.model.scores(histories) + self.added, dtype=np.float32)


def with_genres(model: ImplicitCFNADE, table: Path) -> ImplicitCFNADE:
    """The model with the genres of its items."""
    rows = duckdb.sql(f"SELECT item, string_split(genres, '|') FROM '{table}'").fetchall()
    genres = dict(rows)
    known = sorted({genre for _, own in rows for genre in own})
    matrix = [
        [float(genre in genres.get(item, ())) for genre in known]
        for item in model.catalogue_.ids.tolist()
    ]
    column = np.zeros(len(known), dtype=np.int64)
    features = ItemFeatures(
        csr_array(np.array(matrix, dtype=np.float32)), np.array(known, object), column, ("genre",)
    )
    catalogue = replace(model.catalogue_, features=features)
    return ImplicitCFNADE.from_parts(model.scorer_, catalogue, calibrator=model.calibrator_)


def places(columns: list[NDArray[np.int64]], held_out: CountMatrix) -> Places:
    """Places of the held-out items in the lists; one that is not listed is behind all others."""
    n_items = held_out.shape[1]
    user = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    place = np.full(held_out.nnz, n_items, dtype=np.int64)
    for row, listed in enumerate(columns):
        own = slice(held_out.indptr[row], held_out.indptr[row + 1])
        place_of = {item: place for place, item in enumerate(listed.tolist())}
        place[own] = [place_of.get(item, n_items) for item in held_out.indices[own].tolist()]
    return Places(user, place, np.ones_like(place), np.full(held_out.shape[0], n_items))


def run(name: str, folder: Path) -> dict[str, Any]:
    """Judge all settings on one data set."""
    data, fixed = SETS[name].read(folder)
    assert isinstance(data, Interactions) and fixed is None
    protocol = Protocol(data)
    model = ImplicitCFNADE(random_state=SEED).fit(protocol.known)
    settings: dict[str, dict[str, Any]] = dict(SETTINGS)
    table = folder / f"{name}-items.parquet"
    if name == "ml-1m":
        limited = with_genres(model, table)
        settings |= LIMITED
    test = protocol._test
    tested = np.flatnonzero(np.diff(test.indptr))
    histories, held_out = protocol.known[tested], test[tested]
    relevance = RelativeRating().fit(protocol.known).transform(held_out)
    outcome: dict[str, Any] = {}
    for label, asked in settings.items():
        started = time.perf_counter()
        asks = limited if "at_most" in asked else model
        n = N_LISTED if "at_most" in asked else N
        ids, _ = asks.recommend(tested, histories, n, dials=Dials(**asked))
        seconds = time.perf_counter() - started
        columns = [np.array(model.catalogue_.columns(row)) for row in ids]
        found = places(columns, held_out)
        first = [own[:N_LISTED] for own in columns]
        row = np.repeat(np.arange(len(first)), [own.size for own in first])
        pairs = (np.ones(row.size), (row, np.concatenate(first)))
        lists = csr_array(pairs, shape=histories.shape)
        figures = {
            "ndcg@20": ndcg(found, relevance.data, 20).mean,
            "ndcg@100": ndcg(found, relevance.data, 100).mean if n == N else None,
            "mpr": None,
            **asdict(judge_lists(lists, protocol.known, N_LISTED)),
            "us_per_user": 1e6 * seconds / tested.size,
        }
        if not asked or set(asked) == {"popularity"}:
            tilted = Tilted(model, asked.get("popularity", 0.0))
            figures["mpr"] = mean_percentage_ranking(tilted, histories, held_out, relevance)
        outcome[label] = figures
        print(name, label, figures, flush=True)
    return outcome


def text(outcomes: dict[str, Any]) -> str:
    """As a section of docs/results.md."""
    lines = [
        "## What dials cost",
        "",
        "`make bench-dials DATA=folder`: a default fit on the split of `cfnade compare`, 100 items "
        "for every test user at several values of the [dials](guides/dials.md). Coverage, Gini, "
        "novelty and diversity are of the first 20 items, as `cfnade compare --beyond-accuracy` "
        "measures them: diversity is by co-occurrence in the training data, not by the vectors "
        "that the dial uses. MPR ranks all items, so only popularity has one. One split, seed 0.",
    ]
    for name, settings in outcomes.items():
        plain = settings["none"]
        lines += [
            "",
            f"**{name}**",
            "",
            "| dials | nDCG@20 | nDCG@100 | MPR % | coverage % | Gini | novelty | diversity |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for label, found in settings.items():
            accuracy = [_with_change(found[m], plain[m]) for m in ("ndcg@20", "ndcg@100")]
            mpr = "" if found["mpr"] is None else f"{found['mpr']:.2f}"
            cells = [
                label,
                *accuracy,
                mpr,
                f"{100 * found['coverage']:.1f}",
                f"{found['gini']:.3f}",
                f"{found['novelty']:.2f}",
                f"{found['diversity']:.3f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _with_change(value: float | None, plain: float) -> str:
    if value is None:
        return ""
    change = "" if value == plain else f" ({100 * (value / plain - 1):+.1f} %)"
    return f"{value:.4f}{change}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    stored = OUTCOMES / "dials.json"
    outcomes = json.loads(stored.read_text()) if stored.exists() else {}
    for name in sys.argv[2:] or NAMES:
        outcomes[name] = run(name, folder)
        stored.write_text(json.dumps(outcomes, indent=1) + "\n")
        TEXT.write_text(text({name: outcomes[name] for name in NAMES if name in outcomes}))
