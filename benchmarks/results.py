"""Write docs/results.md from the stored outcomes: python benchmarks/results.py.

The benchmarks store theirs in benchmarks/results/. The outcome of `make demo`,
runs/demo/results.json, is copied there as completejourney.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablation import ablation_section
from accuracy_report import accuracy_section
from default_fit import fit_section
from scale_report import scale_section
from serve_report import serve_section
from speed_report import speed_section

from cfnade.compare.plots import save_figure, sweep_plot
from cfnade.compare.sweep import Sweep, SweepPoint
from cfnade.metrics.formulas import DEFAULT_METRICS
from compare import KIND_SETS, TIMED_SETS, TYPED_SETS, by_mpr_alone, table
from compare import SETS as COMPARED

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "results"

MARKS = "MPR / nDCG@100; * is the best, ~ is not significantly worse (paired bootstrap over users)."
COMPARE = (
    "`make bench-compare DATA=folder`: the default models on random splits (`--split random`), "
    "each with 60 seconds for its search, or as long as the slowest took; one fit of each is "
    "tested. `cfnade-network` is CF-NADE without the direct path, `cfnade-no-network` all that it "
    "has beside the network. Settings of all models are chosen by MPR / nDCG@100 on validation, if "
    "nothing else is said. "
    f"{MARKS} Minutes: of the whole command, on two cores."
)
COMPARE_EARLIER = f"Ten settings each instead of 60 seconds, chosen by validation MPR. {MARKS}"


BY_TIME = (
    "`make bench-time DATA=folder`: event logs, the last tenth of the events as the test part "
    "(Ta-Feng: each user's next basket), only items that are new to the user. Every model gets the "
    "same search for recency; `cfnade-undated` is CF-NADE without times. On MovieLens and "
    f"Foursquare times gain nDCG and not MPR. {MARKS}"
)
TYPED = (
    "`python benchmarks/compare.py DATA --typed`: `cfnade compare FILE` without any option. ml-1m "
    "and online-retail have times, so they are split by time and every model gets the search for "
    "recency; the others are split at random. Minutes: of the whole command on two cores. "
    f"{MARKS}"
)
BY_KIND = (
    "`make bench-kinds DATA=folder`: purchases, predicted from all events. Every model gets the "
    "same weights of events, and ranks all items that the user has not bought; `cfnade-target` is "
    "CF-NADE from the purchases alone, `collective` the model of Li et al. (2010). "
    f"{MARKS}"
)


WRITTEN = ("repeats", "new_items", "probabilities", "cold_items", "dials", "nightly")
"""Sections that benchmarks write themselves."""


def keep_demo() -> None:
    """Keep the outcome of the demo, if there is one."""
    demo = ROOT / "runs" / "demo" / "results.json"
    if demo.exists():
        outcome = json.loads(demo.read_text())
        (OUTCOMES / "completejourney.json").write_text(json.dumps(outcome, indent=1) + "\n")


def compared(folder: str, names: Iterable[str] = COMPARED) -> dict[str, Any]:
    """Outcomes of `cfnade compare` by data set."""
    files = {name: OUTCOMES / folder / f"{name}.json" for name in names}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def document() -> str:
    """docs/results.md, from the stored outcomes."""
    parts = [(ROOT / "benchmarks" / "results_head.md").read_text()]
    tuned, earlier = compared("compare"), compared("compare-earlier")
    parts.append(fit_section({**compared("imf"), **tuned}))  # where IMF alone was tuned
    sections = {
        "## `cfnade compare` on random splits": (COMPARE, tuned),
        "## `cfnade compare` as typed": (TYPED, compared("compare_typed", TYPED_SETS)),
        "## Event logs, split by time": (BY_TIME, compared("compare_time", TIMED_SETS)),
        "## Purchases from all kinds of events": (BY_KIND, compared("compare_kinds", KIND_SETS)),
    }
    for heading, (text, outcomes) in sections.items():
        if outcomes:
            lines = [heading, "", text, "", *by_mpr_alone(outcomes), table(outcomes)]
            parts.append("\n".join(lines))
    parts.append(ablation_section())
    figures = ROOT / "docs" / "figures"
    parts.append(speed_section(json.loads((OUTCOMES / "speed.json").read_text()), figures))
    demo = OUTCOMES / "completejourney.json"
    if demo.exists():
        parts.append(demo_section(json.loads(demo.read_text())))
    parts.append((ROOT / "benchmarks" / "results_history.md").read_text())
    accuracy = OUTCOMES / "accuracy.json"
    if accuracy.exists():
        parts.append(accuracy_section(json.loads(accuracy.read_text())))
    heading = "## `cfnade compare` before the redesign"
    parts.append("\n".join([heading, "", COMPARE_EARLIER, "", table(earlier)]))
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
    for name in WRITTEN:
        section = ROOT / "benchmarks" / f"results_{name}.md"
        if section.exists():
            parts.append(section.read_text())
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


def demo_section(outcome: dict[str, Any]) -> str:
    comparison = outcome["comparison"]
    protocol = comparison["protocol"]
    lines = [
        "## The demo: a year of groceries",
        "",
        "`make demo`: baskets with each product type (Complete Journey, embedded). To take only "
        "minutes, IMF's search starts where a longer one on the same validation part ended, and "
        "it validates on 1,000 households. Seconds are those of two shared cores.",
        "",
        f"{comparison['n_users']:,} users, {comparison['n_items']:,} items, "
        f"{comparison['n_pairs']:,} pairs; {protocol['n_validation_pairs']:,} for validation, "
        f"{protocol['n_test_pairs']:,} for the test.",
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
        lines += sweep_lines("completejourney", outcome["sweep"])
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
    keep_demo()
    (ROOT / "docs" / "results.md").write_text(document())
