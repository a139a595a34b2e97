"""A year of nightly jobs: python benchmarks/nightly.py DATA [VARIANT]...

DATA is the folder of data sets; online-retail-events.parquet is used. A model is fitted on the
first 60 days with sales. To take a quarter of an hour, the job then runs every second day: it first
predicts these days, items that are new to a known user among all items sold before, and then
learns from them. The number of epochs is chosen on the first 60 days of this, and held.
Writes benchmarks/results/nightly.json and benchmarks/results_nightly.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from results import OUTCOMES, ROOT
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, Interactions, read_interactions
from cfnade.data.interactions import CountMatrix
from cfnade.data.splitting import without_overlap
from cfnade.metrics.bootstrap import paired_intervals
from cfnade.metrics.evaluate import KnownScores, evaluate
from cfnade.metrics.formulas import UserSums

NAME = "online-retail-events"
N_FIRST, N_CHOOSING, STEP = 60, 60, 2
DAY = 86_400
N_RECENT_DAYS = 28
REFIT_EVERY = 28
METRICS = ("mpr", "ndcg@20", "recall@20")
EPOCHS = {"active": (1, 3, 10), "everybody": (1, 3), "both": (1,)}  # one is not chosen
VARIANTS = {
    "never": "never updated",
    "popularity": f"popularity of the last {N_RECENT_DAYS} days",
    "active": "`partial_fit` on the users of the day",
    "everybody": "`partial_fit` on all users",
    "refit": f"`fit` every {REFIT_EVERY}th day",
    "both": f"`fit` every {REFIT_EVERY}th day, else `partial_fit` on all users",
}
STORED, TEXT = OUTCOMES / "nightly.json", ROOT / "benchmarks" / "results_nightly.md"


@dataclass(frozen=True)
class Day:
    """A day with sales, or as many as the job takes at once, and all that was known before."""

    number: int
    """From 0, the first that is predicted."""
    start: float
    before: Interactions
    held_out: CountMatrix
    """New items of known users, in the rows and columns of `before`."""
    since: Interactions
    """All events up to the end of the day."""
    is_active: NDArray[np.bool_]
    """Users of `since` with events on the day."""


class Year:
    """The log of a year, day by day."""

    def __init__(self, data: Interactions) -> None:
        assert data.log is not None and data.log.time is not None
        self.data, self.log = data, data.log
        self.day = np.floor_divide(data.log.time, DAY)
        self.days = np.unique(self.day)

    def until(self, day: float) -> Interactions:
        """All events before a day; users and items that have any."""
        return self._known(self.day < day)[0]

    def _known(self, keep: NDArray[np.bool_]) -> tuple[Interactions, Any, Any]:
        log = self.log.subset(keep)
        users, items = np.zeros(self.data.n_users, bool), np.zeros(self.data.n_items, bool)
        users[log.user] = items[log.item] = True
        known = Interactions.from_log(
            log.select(users, items), self.data.user_ids[users], self.data.item_ids[items]
        )
        return known, users, items

    def __iter__(self) -> Iterator[Day]:
        starts = self.days[N_FIRST::STEP].tolist()
        for number, (day, end) in enumerate(zip(starts, [*starts[1:], np.inf], strict=True)):
            before, users, items = self._known(self.day < day)
            today = self.log.subset((self.day >= day) & (self.day < end))
            bought = today.select(users, items).counts(before.counts.shape)
            since, later_users, _ = self._known(self.day < end)
            is_active = np.zeros(self.data.n_users, bool)
            is_active[today.user] = True
            held_out = without_overlap(before.counts, bought)
            yield Day(number, day * DAY, before, held_out, since, is_active[later_users])


def of_users(data: Interactions, users: NDArray[np.bool_]) -> Interactions:
    """The whole histories of some users, with the items that they have."""
    assert data.log is not None
    items = np.zeros(data.n_items, bool)
    items[data.log.item[users[data.log.user]]] = True
    return Interactions.from_log(
        data.log.select(users, items), data.user_ids[users], data.item_ids[items]
    )


def judge(day: Day, scores: NDArray[np.float32]) -> dict[str, UserSums]:
    """Sums of each user with new items on the day; scores have the columns of `before`."""
    ones = csr_array(day.held_out).copy()
    ones.data[:] = 1.0
    known, histories = KnownScores(scores), day.before.counts
    found = evaluate(known, histories, day.held_out, ones, metrics=METRICS, n_bootstrap=0)
    return found.per_user


def model_scores(model: ImplicitCFNADE, day: Day) -> NDArray[np.float32]:
    """Scores of all items sold before; items that the model does not know come last."""
    tested = np.diff(day.held_out.indptr) > 0
    histories = model.histories(of_users(day.before, tested), unknown="ignore")
    own = model.scores(histories)
    column_of = model.catalogue_.column_of
    columns = np.array([column_of.get(item, -1) for item in day.before.item_ids.tolist()])
    scores = own[:, np.maximum(columns, 0)]
    scores[:, columns < 0] = own.min() - 1.0
    return scores


def popularity_scores(day: Day) -> NDArray[np.float32]:
    """Users of each item in the last days, the same for every user."""
    log = day.before.log
    assert log is not None and log.time is not None
    recent = log.subset(log.time >= day.start - N_RECENT_DAYS * DAY).counts(day.before.counts.shape)
    watchers = np.bincount(recent.indices, minlength=day.before.n_items).astype(np.float32)
    n_tested = int(np.count_nonzero(np.diff(day.held_out.indptr)))
    return np.tile(watchers, (n_tested, 1))


def run(
    year: Year, variant: str, first: Path, n_epochs: int, n_jobs: int | None = None
) -> tuple[list[dict[str, UserSums]], list[float]]:
    """Predict and learn day by day.

    Returns:
        The sums of users of each day, and the seconds of each update.
    """
    model = ImplicitCFNADE.load(first)
    sums: list[dict[str, UserSums]] = []
    seconds: list[float] = []
    for day in year:
        if day.number == n_jobs:
            break
        if day.held_out.nnz:
            is_model = variant != "popularity"
            scores = model_scores(model, day) if is_model else popularity_scores(day)
            sums.append(judge(day, scores))
        else:
            sums.append({})
        started = time.process_time()
        if variant in ("refit", "both") and (day.number + 1) * STEP % REFIT_EVERY == 0:
            model = ImplicitCFNADE(random_state=0, n_threads=1).fit(day.since)
        elif variant == "active":
            model.partial_fit(of_users(day.since, day.is_active), n_epochs=n_epochs)
        elif variant in ("everybody", "both"):
            model.partial_fit(day.since, n_epochs=n_epochs)
        else:
            continue
        seconds.append(time.process_time() - started)
    return sums, seconds


def pooled(sums: list[dict[str, UserSums]], metric: str) -> UserSums:
    """The sums of all users of several days."""
    own = [day[metric] for day in sums if day]
    return UserSums(
        np.concatenate([each.total for each in own]), np.concatenate([each.weight for each in own])
    )


def figures(sums: list[dict[str, UserSums]]) -> dict[str, float]:
    """Means over all users of several days."""
    return {metric: pooled(sums, metric).mean for metric in METRICS}


def choose_epochs(year: Year, variant: str, first: Path) -> tuple[int, dict[str, Any]]:
    """The number of epochs with the best nDCG@20 on the first days, and what each reached."""
    options = EPOCHS.get(variant, (0,))
    if len(options) == 1:
        return options[0], {}
    tried: dict[int, dict[str, float]] = {}
    for n_epochs in options:
        tried[n_epochs] = figures(run(year, variant, first, n_epochs, N_CHOOSING // STEP)[0])
        print(variant, n_epochs, tried[n_epochs], flush=True)
    best = max(tried, key=lambda n: tried[n]["ndcg@20"])
    return best, {str(n): found for n, found in tried.items()}


def measure(folder: Path, variants: list[str]) -> None:
    """Run the variants, and store what is found after each; others stay as they are stored."""
    columns = f'SELECT "user", item, "timestamp" FROM \'{folder / NAME}.parquet\''
    year = Year(read_interactions(duckdb.sql(columns).df()))
    outcome: dict[str, Any] = {
        "n_days": len(year.days),
        "n_first": N_FIRST,
        "n_choosing": N_CHOOSING,
        "step": STEP,
        "variants": {},
        "against_never": {},
    }
    if STORED.exists():
        stored = json.loads(STORED.read_text())
        outcome |= {name: stored[name] for name in ("variants", "against_never")}
    all_sums: dict[str, list[dict[str, UserSums]]] = {}
    with tempfile.TemporaryDirectory() as place:
        first = Path(place) / "model"
        started = time.process_time()
        ImplicitCFNADE(random_state=0, n_threads=1).fit(year.until(year.days[N_FIRST])).save(first)
        outcome["first_fit_seconds"] = time.process_time() - started
        for variant in variants:
            n_epochs, tried = choose_epochs(year, variant, first)
            sums, seconds = run(year, variant, first, n_epochs)
            all_sums[variant] = sums
            quarters = np.array_split(np.arange(len(sums)), 4)
            outcome["variants"][variant] = {
                "n_epochs": n_epochs,
                "tried": tried,
                "year": figures(sums),
                "quarters": [figures([sums[k] for k in quarter]) for quarter in quarters],
                "n_updates": len(seconds),
                "mean_seconds": float(np.mean(seconds)) if seconds else 0.0,
                "max_seconds": max(seconds, default=0.0),
            }
            print(variant, outcome["variants"][variant], flush=True)
            outcome["n_user_days"] = len(pooled(sums, "mpr").total)
            outcome["against_never"] |= differences(all_sums)
            STORED.write_text(json.dumps(outcome, indent=1) + "\n")
            TEXT.write_text(text(outcome))


def differences(all_sums: dict[str, list[dict[str, UserSums]]]) -> dict[str, Any]:
    """95 % intervals of each variant's nDCG@20 less that of the model that is never updated."""
    if "never" not in all_sums:
        return {}
    own = {variant: pooled(sums, "ndcg@20") for variant, sums in all_sums.items()}
    found = paired_intervals(list(own.values()), own["never"], n_bootstrap=1000, rng=0)
    return dict(zip(own, found, strict=True))


def text(outcome: dict[str, Any]) -> str:
    """As a section of docs/results.md."""
    found, n_first = outcome["variants"], outcome["n_first"]
    lines = [
        "## A year of nightly jobs",
        "",
        f"`make bench-nightly DATA=folder`: Online Retail, {outcome['n_days']} days with sales. A "
        f"default fit on the first {n_first} days ({outcome['first_fit_seconds']:.0f} s), then a "
        f"job every {outcome['step']}nd day, to save time: it predicts what known users buy for "
        "the first time, among all items sold before, and then learns from it. Items that a model "
        "does not know come last. The number of epochs was chosen by nDCG@20 on the first "
        f"{outcome['n_choosing']} of these days and then held. Means over "
        f"{outcome['n_user_days']:,} users and days, unweighted; quarters are those of the days "
        "predicted. Seconds of an update are those of the processor, on one thread. The "
        "interval is of the gain in nDCG@20 over no update (paired bootstrap, 95 %).",
        "",
        "| update | epochs | MPR % | nDCG@20 | gain | recall@20 | nDCG@20 by quarter | s, mean "
        "| s, longest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for variant, name in VARIANTS.items():
        if variant not in found:
            continue
        own = found[variant]
        low, high = outcome["against_never"].get(variant, (0.0, 0.0))
        seconds = [f"{own[key]:.1f}" if own["n_updates"] else "" for key in _SECONDS]
        cells = [
            name,
            str(own["n_epochs"] or ""),
            f"{own['year']['mpr']:.2f}",
            f"{own['year']['ndcg@20']:.4f}",
            f"{low:+.4f} to {high:+.4f}" if variant != "never" else "",
            f"{own['year']['recall@20']:.4f}",
            ", ".join(f"{quarter['ndcg@20']:.3f}" for quarter in own["quarters"]),
            *seconds,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


_SECONDS = ("mean_seconds", "max_seconds")

if __name__ == "__main__":
    measure(Path(sys.argv[1]), sys.argv[2:] or list(VARIANTS))
