"""The section on speed of docs/results.md, with its two figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfnade.compare.plots import BLUE, GREY, ORANGE, canvas, save_figure


def speed_section(outcome: dict[str, Any], figures: Path) -> str:
    """Table and figures of one run of benchmarks/speed.py."""
    step_figure(outcome["steps"], figures / "speed-steps.svg")
    quality_figure(outcome, figures / "speed-quality.svg")
    service, prepared = outcome["service"], outcome["preparation"]
    recommended, als = outcome["recommending"], outcome["als_curve"]
    ratio = outcome["time_to_als_quality_ratio"]
    lines = [
        "## Speed at the paper's scale",
        "",
        f"`make bench-speed`: a simulated service of {service['n_users']:,} users, "
        f"{service['n_items']:,} items and {service['n_pairs']:,} pairs.",
        "",
        "**One update** of Eq. 14 against a plain dense one in PyTorch "
        "(`benchmarks/dense_step.py`), 256 hidden units; the share is of the rate "
        "of a 2048 x 2048 product on the same machine.",
        "",
        "| items | users per batch | items per user | dense ms | ours ms | times faster "
        "| share of sgemm |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in outcome["steps"]:
        cells = [
            f"{row['n_items']:,}",
            f"{row['batch']:,}",
            str(row["mean_history"]),
            f"{row['dense_ms']:.0f}",
            f"{row['exact_ms']:.0f}",
            f"{row['speedup']:.1f}",
            f"{row['sgemm_share']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    reached = "did not reach it" if ratio is None else f"{ratio:.2f} of that time"
    lines += [
        "",
        "![Milliseconds of an update against the number of items](figures/speed-steps.svg)",
        "",
        f"**Time to quality.** ALS (256 factors) is at its best, MPR {outcome['als_mpr']:.2f}, "
        f"after {outcome['als_seconds']:.0f} s; CF-NADE needs {reached}. Its best is "
        f"{outcome['final_mpr']:.2f}; the true preferences reach {outcome['oracle_mpr']:.2f}. "
        f"Settings: CF-NADE {listed(outcome['settings'])}; ALS {listed(outcome['als'])}.",
        "",
        "| run | passes over all users | seconds | MPR % | peak GiB |",
        "|---|---|---|---|---|",
        f"| ALS | {len(als['als'])} iterations | {als['als'][-1][0]:.0f} | {als['als'][-1][1]:.2f} "
        f"| {als['peak_memory_gib']:.1f} |",
    ]
    runs = {**outcome["cfnade_runs"], **outcome["cfnade_variants"]}
    for name, run in runs.items():
        lines.append(
            f"| CF-NADE, {name} | {run['n_epochs']} | {run['seconds']:.0f} | {run['mpr']:.2f} "
            f"| {run['peak_memory_gib']:.1f} |"
        )
    lines += [
        "",
        "![Validation MPR against seconds](figures/speed-quality.svg)",
        "",
        f"**The rest.** Ingest {prepared['ingest_seconds']:.0f} s, relative ratings "
        f"{prepared['relative_ratings_seconds']:.0f} s ({prepared['peak_memory_gib']:.1f} GiB). "
        f"Top 10 for {recommended['n_users']:,} users: {recommended['cfnade_seconds']:.0f} s, "
        f"`implicit` {recommended['implicit_seconds']:.0f} s on factors of the same size: "
        f"{recommended['ratio']:.2f} of its time. {further(outcome)}Peak memory of all parts: "
        f"{outcome['peak_memory_gib']:.1f} GiB.",
        "",
    ]
    return "\n".join(lines)


def further(outcome: dict[str, Any]) -> str:
    """Further figures of a run, if measured."""
    text = ""
    if with_direct := outcome.get("recommending_direct"):
        text += (
            f"With the direct path {with_direct['cfnade_seconds']:.0f} s, "
            f"{with_direct['ratio']:.2f}. "
        )
    if evaluated := outcome.get("evaluation"):
        text += (
            f"Evaluation of {evaluated['n_users']:,} users, all metrics with intervals: "
            f"{evaluated['seconds']:.0f} s ({evaluated['peak_memory_gib']:.1f} GiB). "
        )
    largest = max(outcome["steps"], key=lambda row: row["n_items"])
    if "dense_one_context_ms" in largest:
        text += (
            f"A dense step whose batch shares one context takes "
            f"{largest['dense_one_context_ms']:.0f} ms at {largest['n_items']:,} items; a new "
            f"order of the items, once an epoch, {largest['new_order_ms']:.0f} ms. "
        )
    return text


def listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def step_figure(rows: list[dict[str, Any]], path: Path) -> None:
    rows = [row for row in rows if row["batch"] == 1_000 and row["mean_history"] == 36]
    items = [row["n_items"] for row in rows]
    looks = {
        "dense_ms": ("Plain dense", GREY, "v"),
        "exact_ms": ("Ours", BLUE, "o"),
    }
    with canvas() as (figure, [axes]):
        for name, (label, color, marker) in looks.items():
            axes.plot(items, [row[name] for row in rows], marker=marker, color=color, label=label)
        axes.set_yscale("log")
        axes.set_xlabel("Items")
        axes.set_ylabel("Milliseconds for 1,000 users")
        axes.legend()
    save_figure(figure, path)


def quality_figure(outcome: dict[str, Any], path: Path) -> None:
    with canvas() as (figure, [axes]):
        seconds, mprs = zip(*outcome["als_curve"]["als"], strict=True)
        axes.plot(seconds, mprs, marker="s", color=ORANGE, label="ALS")
        runs = outcome["cfnade_runs"].values()  # the ends of runs, judged on the same users as ALS
        ends = [(run["seconds"], run["mpr"]) for run in runs]
        axes.plot(*zip(*ends, strict=True), marker="o", color=BLUE, label="CF-NADE, a run each")
        axes.axhline(outcome["oracle_mpr"], color=GREY, linestyle=":")
        axes.annotate("true preferences", (0, outcome["oracle_mpr"]), va="bottom", color=GREY)
        axes.set_ylim(3.5, 12)
        axes.set_xlabel("Seconds of fitting")
        axes.set_ylabel("Validation MPR, percent")
        axes.legend()
    save_figure(figure, path)
