"""What people do again, among the items of their history: python benchmarks/repeats.py DATA.

DATA is the folder of data sets. The last tenth of the events of a log is the test part, and a
default fit sees the rest. Each user's items are ranked by the model and by the user's own counts,
plain and with the half-life that the fit found. Writes benchmarks/results/repeats.json and
benchmarks/results_repeats.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import OUTCOMES, ROOT
from versions import commit

from cfnade import ImplicitCFNADE, read_interactions
from cfnade.beyond.recency import recent_counts
from cfnade.data.event_splits import split_by_time
from cfnade.data.interactions import CountMatrix

SETS = ("completejourney-events", "online-retail-events")
N_BEST, N_BOOTSTRAP, BLOCK = 100, 1000, 200
TEXT = ROOT / "benchmarks" / "results_repeats.md"


def run(name: str, folder: Path) -> dict[str, Any]:
    """Fit on the earlier events, and rank each user's items three times."""
    split = split_by_time(read_interactions(folder / f"{name}.parquet"), share=0.1)
    known = split.train
    users = np.flatnonzero(np.diff(split.repeated.indptr))
    model = ImplicitCFNADE(random_state=0).fit(known)
    half_life = model.readout_.history_half_life or 0.0
    assert known.log is not None
    recent = recent_counts(known.log, known.counts.shape, half_life)
    blocks = [users[at : at + BLOCK] for at in range(0, users.size, BLOCK)]
    histories = model.histories(known)
    scored = [row for block in blocks for row in _own(model.scores(histories[block]), known, block)]
    by_counts = [known.counts[[user]].data for user in users]
    by_recent = [recent[[user]].toarray()[0, known.counts[[user]].indices] for user in users]
    found = {
        "model": _judged(scored, known.counts, split.repeated, users),
        "own counts": _judged(by_counts, known.counts, split.repeated, users),
        "own recent counts": _judged(by_recent, known.counts, split.repeated, users),
    }
    rng = np.random.default_rng(0)
    draws = rng.integers(users.size, size=(N_BOOTSTRAP, users.size))
    outcome: dict[str, Any] = {"n_users": int(users.size), "commit": commit()}
    for way, figures in found.items():
        outcome[way] = figures.mean(axis=0).tolist()
        gain = (found["model"] - figures)[draws].mean(axis=1)  # (n_bootstrap, 2)
        outcome[f"model less {way}"] = np.percentile(gain, [2.5, 97.5], axis=0).T.tolist()
    return outcome


def _own(scores: NDArray[np.float32], known: Any, block: NDArray[np.intp]) -> list[NDArray[Any]]:
    """The scores of each user's own items."""
    return [row[known.counts[[user]].indices] for row, user in zip(scores, block, strict=True)]


def _judged(
    scores: list[NDArray[Any]], own: CountMatrix, later: CountMatrix, users: NDArray[np.intp]
) -> NDArray[np.float64]:
    """MPR in percent and nDCG@100 of what each user did again, (n_users, 2); ties at random."""
    rng, found = np.random.default_rng(0), []
    for score, user in zip(scores, users, strict=True):
        again = np.isin(own[[user]].indices, later[[user]].indices)
        order = np.lexsort((rng.random(score.size), -score))
        places = np.flatnonzero(again[order])
        gains = 1.0 / np.log2(places[places < N_BEST] + 2)
        ideal = 1.0 / np.log2(np.arange(min(places.size, N_BEST)) + 2)
        percentile = places.mean() / max(score.size - 1, 1)
        found.append((100.0 * percentile, gains.sum() / ideal.sum()))
    return np.array(found)


def text(outcomes: dict[str, dict[str, Any]]) -> str:
    """The section of docs/results.md."""
    lines = [
        "## Repeats",
        "",
        "`make bench-repeats DATA=folder`: the last tenth of the events held out by time; each "
        "user's own items ranked by a default fit on the rest ([decision "
        "34](decisions/0034-repeats.md)), and by the user's counts, plain and with the half-life "
        "that the fit found. MPR in percent / nDCG@100 of what was done again, mean over users; in "
        "brackets the 95 % interval of the model's gain in nDCG@100 (paired bootstrap).",
        "",
        "| data | users | model | own counts | own recent counts |",
        "|---|---|---|---|---|",
    ]
    for name, outcome in outcomes.items():
        cells = [f"{outcome['model'][0]:.1f} / {outcome['model'][1]:.3f}"]
        for way in ("own counts", "own recent counts"):
            low, high = outcome[f"model less {way}"][1]
            mpr, ndcg = outcome[way]
            cells.append(f"{mpr:.1f} / {ndcg:.3f} ({low:+.3f} to {high:+.3f})")
        lines.append(f"| {name} | {outcome['n_users']:,} | {' | '.join(cells)} |")
    commits = ", ".join(sorted({outcome["commit"] for outcome in outcomes.values()}))
    return "\n".join([*lines, "", f"Commit: {commits}.", ""])


def main() -> None:
    """Run all sets."""
    outcomes = {name: run(name, Path(sys.argv[1])) for name in SETS}
    (OUTCOMES / "repeats.json").write_text(json.dumps(outcomes, indent=1) + "\n")
    TEXT.write_text(text(outcomes))
    print(text(outcomes))


if __name__ == "__main__":
    main()
