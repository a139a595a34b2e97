"""Rerun the tables and figures of docs/results.md: python benchmarks/results.py DATA [NAME ...].

DATA is a folder with lastfm-2k.parquet, ml-1m.parquet and online-retail.parquet. Each data set's
outcome is kept in benchmarks/results/NAME.json, and the document is made of these and of what
`make demo` left in runs/demo/results.json, which is kept as completejourney.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accuracy_report import accuracy_section
from scale_report import scale_section
from serve_report import serve_section
from speed_report import speed_section

from cfnade import Interactions, read_interactions
from cfnade.data.datasets import complete_journey
from cfnade.evaluation.compare import Progress, compare
from cfnade.evaluation.metrics import DEFAULT_METRICS
from cfnade.evaluation.plot_style import save_figure
from cfnade.evaluation.plots import sweep_plot
from cfnade.evaluation.sweep import Sweep, SweepPoint, sweep

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "results"
MODELS = ("popularity", "imf", "ease", "cfnade", "cfnade-paper")
TRIALS = {"imf": 10, "ease": 6, "cfnade": 6, "cfnade-paper": 1}
"""Settings that each model may try on validation: the more, the faster a trial is."""

ALPHAS = (3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True)
class Dataset:
    """One data set of the document."""

    title: str
    read: Callable[[Path], Interactions]
    command: str
    sweeps: bool = False
    trials: dict[str, int] = field(default_factory=lambda: TRIALS)


EMBEDDED = Dataset(
    "Complete Journey: baskets with each product type, a year of groceries (embedded)",
    lambda folder: complete_journey(),
    "cfnade demo",
)
DATASETS = {
    "lastfm-2k": Dataset(
        "Last.fm 2K: plays of artists",
        lambda folder: read_interactions(
            folder / "lastfm-2k.parquet", min_user_items=5, min_item_users=3
        ),
        "cfnade compare lastfm-2k.parquet --min-user-items 5 --min-item-users 3",
        sweeps=True,
    ),
    "online-retail": Dataset(
        "Online Retail: invoices with each product",
        lambda folder: read_interactions(
            folder / "online-retail.parquet", min_user_items=5, min_item_users=5
        ),
        "cfnade compare online-retail.parquet --min-user-items 5 --min-item-users 5",
    ),
    "ml-1m": Dataset(
        "MovieLens 1M: the rating taken as the count",
        lambda folder: read_interactions(
            folder / "ml-1m.parquet", count_col="rating", min_user_items=5, min_item_users=5
        ),
        "cfnade compare ml-1m.parquet --count-col rating --min-user-items 5 --min-item-users 5",
        trials={**TRIALS, "imf": 6, "cfnade": 4},
    ),
}


def run(name: str, folder: Path) -> None:
    """Compare, and sweep if asked for; keep the outcome."""
    dataset = DATASETS[name]
    data = dataset.read(folder)

    def report(progress: Progress) -> None:
        if progress.trial is not None:
            print(name, progress.model, progress.n_done, progress.trial, flush=True)

    comparison = compare(
        data,
        MODELS,
        dataset=name,
        max_trials=dataset.trials,
        on_progress=report,
    )
    outcome: dict[str, Any] = {"comparison": comparison.to_json()}
    write(name, outcome)
    if dataset.sweeps:
        chosen = {result.model: result.settings for result in comparison.results}
        outcome["sweep"] = sweep(
            data, ALPHAS, dataset=name, settings=chosen, max_trials=3
        ).to_json()
        write(name, outcome)


def write(name: str, outcome: dict[str, Any]) -> None:
    OUTCOMES.mkdir(exist_ok=True)
    (OUTCOMES / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n")


def keep_demo() -> None:
    """Keep the outcome of the demo, if there is one."""
    demo = ROOT / "runs" / "demo" / "results.json"
    if demo.exists():
        write("completejourney", json.loads(demo.read_text()))


def document() -> str:
    """docs/results.md, from the outcomes that are kept."""
    parts = [(ROOT / "benchmarks" / "results_head.md").read_text()]
    for name, dataset in {"completejourney": EMBEDDED, **DATASETS}.items():
        path = OUTCOMES / f"{name}.json"
        if path.exists():
            outcome = json.loads(path.read_text())
            parts.append(section(name, dataset, outcome))
    accuracy = OUTCOMES / "accuracy.json"
    if accuracy.exists():
        parts.append(accuracy_section(json.loads(accuracy.read_text())))
    speed = OUTCOMES / "speed.json"
    if speed.exists():
        figures = ROOT / "docs" / "figures"
        parts.append(speed_section(json.loads(speed.read_text()), figures))
    latency = OUTCOMES / "latency.json"
    if latency.exists():
        parts.append(latency_section(json.loads(latency.read_text())))
    serve = OUTCOMES / "serve.json"
    if serve.exists():
        parts.append(serve_section(json.loads(serve.read_text())))
    scale, scale_users = OUTCOMES / "scale.json", OUTCOMES / "scale_users.json"
    if scale.exists() and scale_users.exists():
        parts.append(
            scale_section(json.loads(scale.read_text()), json.loads(scale_users.read_text()))
        )
    new_items = ROOT / "benchmarks" / "results_new_items.md"  # of benchmarks/new_items.py
    if new_items.exists():
        parts.append(new_items.read_text())
    probabilities = ROOT / "benchmarks" / "results_probabilities.md"  # of probabilities.py
    if probabilities.exists():
        parts.append(probabilities.read_text())
    return "\n".join(parts)


def latency_section(outcome: dict[str, float]) -> str:
    return "\n".join(
        [
            "## One request",
            "",
            "`make bench-latency`: 17,348 items, 256 hidden units, 50 neighbours, random weights, "
            "histories of 50 items, one thread.",
            "",
            f"- from loading, checksums compared, to the first answer: "
            f"{outcome['cold_start_ms']:.0f} ms",
            f"- top 10 of a history: {outcome['recommend_for_ms']:.1f} ms "
            f"(95 % within {outcome['recommend_for_p95_ms']:.1f} ms)",
            f"- an explanation: {outcome['explain_ms']:.1f} ms "
            f"(95 % within {outcome['explain_p95_ms']:.1f} ms)",
            "",
        ]
    )


def section(name: str, dataset: Dataset, outcome: dict[str, Any]) -> str:
    comparison = outcome["comparison"]
    protocol = comparison["protocol"]
    lines = [
        f"## {dataset.title}",
        "",
        f"{comparison['n_users']:,} users, {comparison['n_items']:,} items, "
        f"{comparison['n_pairs']:,} pairs; {protocol['n_validation_pairs']:,} for validation, "
        f"{protocol['n_test_pairs']:,} for the test. `{dataset.command}`",
        "",
        "| model | MPR % (95 %) | unweighted | recall@20 | recall@50 | recall_full@20 | nDCG@20 "
        "| nDCG@100 | settings tried | search s | fit s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in comparison["results"]:
        low, high = result["intervals"]["mpr"]
        figures = [f"{result['metrics'][metric]:.4f}" for metric in DEFAULT_METRICS[2:]]
        cells = [
            result["model"],
            f"{result['metrics']['mpr']:.2f} ({low:.2f}-{high:.2f})",
            f"{result['metrics']['mpr_unweighted']:.2f}",
            *figures,
            str(result["n_settings"]),
            f"{result['search_seconds']:.0f}",
            f"{result['fit_seconds']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    chosen = "; ".join(
        f"{result['model']}: {', '.join(f'{k} {shown(v)}' for k, v in result['settings'].items())}"
        for result in comparison["results"]
        if result["settings"]
    )
    lines += ["", f"Chosen on validation: {chosen}.", ""]
    if "sweep" in outcome:
        lines += sweep_lines(name, outcome["sweep"])
    return "\n".join(lines)


def shown(value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:g}" if is_number else str(value).lower()


def sweep_lines(name: str, swept: dict[str, Any]) -> list[str]:
    points = [SweepPoint(**{**p, "interval": tuple(p["interval"])}) for p in swept["points"]]
    figure = ROOT / "docs" / "figures" / f"{name}-alpha.svg"
    figure.parent.mkdir(exist_ok=True)
    save_figure(sweep_plot(Sweep(name, swept["alphas"], swept["protocol"], points)), figure)
    by_place = {(point.model, point.alpha): point.mpr for point in points}
    lines = [
        f"![Test MPR against alpha on {name}](figures/{figure.name})",
        "",
        "| alpha | " + " | ".join(f"{alpha:g}" for alpha in swept["alphas"]) + " |",
        "|---|" + "---|" * len(swept["alphas"]),
    ]
    for model in dict.fromkeys(point.model for point in points):
        cells = [f"{by_place[model, alpha]:.2f}" for alpha in swept["alphas"]]
        lines.append(f"| {model} MPR % | {' | '.join(cells)} |")
    return [*lines, ""]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for chosen in sys.argv[2:] or DATASETS:
            run(chosen, Path(sys.argv[1]))
    keep_demo()
    (ROOT / "docs" / "results.md").write_text(document())
