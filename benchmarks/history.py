"""Append today's headline figures to benchmarks/history.jsonl and draw all of them.

    python benchmarks/history.py

The figures are read from benchmarks/results/, so run and commit the benchmarks first. A line is
the date and name of the newest commit, and figures by name; nothing is appended if none changed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from cfnade.compare.plots import save_figure

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
HISTORY = ROOT / "benchmarks" / "history.jsonl"
PICTURE = ROOT / "docs" / "figures" / "history.svg"
SETS = ("ml-1m", "online-retail", "completejourney", "lastfm-2k")
PANELS = {  # the start of a figure's name, and what to write at its axis
    "mpr": "default fit: MPR in %",
    "ndcg@100": "default fit: nDCG@100",
    "seconds": "default fit: seconds",
    "latency": "one request: ms",
}


def headline(results: Path) -> dict[str, float]:
    """The headline figures among stored results, by name; what was not run is left out."""
    figures = {}
    for name in SETS:
        fit = _read(results / "fit" / f"{name}.default.json")
        if fit:
            figures[f"mpr {name}"] = round(fit["metrics"]["mpr"], 3)
            figures[f"ndcg@100 {name}"] = round(fit["metrics"]["ndcg@100"], 4)
            figures[f"seconds {name}"] = fit["seconds"]
    for name, value in _read(results / "latency.json").items():
        if name in ("recommend_for_ms", "explain_ms"):
            figures[f"latency {name.removesuffix('_ms')}"] = value
    return figures


def append(history: Path, figures: dict[str, float], date: str, commit: str) -> list[dict]:
    """Append a line unless it repeats the last one, and return all lines."""
    lines = []
    if history.exists():
        lines = [json.loads(line) for line in history.read_text().splitlines()]
    if figures and (not lines or lines[-1]["figures"] != figures):
        lines.append({"date": date, "commit": commit, "figures": figures})
        with history.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    return lines


def draw(lines: list[dict], path: Path) -> None:
    """Draw each figure over the lines, one panel per kind."""
    names = sorted({name for line in lines for name in line["figures"]})
    ticks = [f"{line['date']} {line['commit']}" for line in lines]
    figure, panels = plt.subplots(2, 2, sharex=True, figsize=(11, 6), layout="constrained")
    for panel, (kind, label) in zip(panels.flat, PANELS.items(), strict=True):
        for name in names:
            if name.startswith(kind + " "):
                values = [line["figures"].get(name, float("nan")) for line in lines]
                panel.plot(values, marker="o", label=name.removeprefix(kind + " "))
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.set_xticks(range(len(lines)), ticks, rotation=45, ha="right")
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    save_figure(figure, path)


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def main() -> None:
    """Append and draw."""
    newest = ["git", "log", "-1", "--format=%cs %h"]
    date, commit = subprocess.check_output(newest, cwd=ROOT, text=True).split()
    draw(append(HISTORY, headline(RESULTS), date, commit), PICTURE)


if __name__ == "__main__":
    main()
