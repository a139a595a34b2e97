"""Models of ratings on random 90/10 splits: python benchmarks/ratings.py DATA [--seeds 5].

DATA is a folder with the Parquet files. Each model is tuned on validation, then tested once, for
every split. Outcomes are kept per cell in benchmarks/results/ratings/ and are not run again; to run
one again, delete it. The section of docs/reproduction.md is written from what is there; with
`--report` nothing else is done.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from cfnade.compare.plots import save_figure
from cfnade.compare.rating_comparison import (
    MODELS,
    RatingComparison,
    compare_ratings,
    rating_plot,
)
from cfnade.data.rating_table import read_ratings

OUTCOMES = Path(__file__).parent / "results" / "ratings"
PAGE = Path(__file__).parent.parent / "docs" / "reproduction.md"
START, END = "<!-- ratings: written by benchmarks/ratings.py -->", "<!-- end of ratings -->"

SETS: dict[str, dict[str, Any]] = {
    "ml-1m": {},
    "ml-100k": {},
    "anime-5k": {"n_factors": 50},
    "movietweetings-100k": {"n_factors": 50},
}
"""Settings of CF-NADE that differ from its defaults: tables of many users and a long scale are
factored, so that they fit in memory."""

SMALL = ("ml-100k",)
"""Sets small enough for a search on every split; on the others, the first split's is for all."""

NAMES = {
    "cfnade": "**CF-NADE**, item-based, one layer",
    "autorec": "AutoRec, item-based",
    "rbm": "RBM-CF, item-based",
    "mf": "biased matrix factorisation (ALS)",
    "biases": "user and item biases",
    "mean": "mean",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=Path())
    parser.add_argument("--sets", default=" ".join(SETS))
    parser.add_argument("--models", default=" ".join(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    for name in () if asked.report else asked.sets.split():
        table = read_ratings(asked.data / f"{name}.parquet")
        compare_ratings(
            table,
            asked.models.split(),
            range(asked.seeds),
            dataset=name,
            max_trials=asked.trials,
            search_each=name in SMALL,
            settings=SETS.get(name, {}),
            keep=OUTCOMES / name,
            on_cell=partial(announce, name),
        )
    write_section()


def announce(name: str, model: str, seed: int) -> None:
    """Say what is run next, and write the page with what there is."""
    print(name, model, seed, flush=True)
    write_section()


def write_section() -> None:
    """Put the tables between the marks of the page."""
    tables = [table_of(name) for name in SETS if (OUTCOMES / name).exists()]
    before, rest = PAGE.read_text().split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{START}\n\n" + "\n\n".join(tables) + f"\n\n{END}{after}")


def shown_seconds(row: dict[str, Any]) -> str:
    """CPU seconds of a fit; blank for outcomes that do not have them."""
    seconds = row["fit_cpu_seconds"]
    return "" if seconds is None else f"{seconds:.0f}"


def table_of(name: str) -> str:
    cells = [json.loads(path.read_text()) for path in sorted((OUTCOMES / name).glob("*.json"))]
    comparison = RatingComparison(name, {}, cells)
    rows, figure = comparison.summary(), rating_plot(comparison)
    save_figure(figure, PAGE.parent / "figures" / f"ratings-{name}.svg")
    lines = [
        f"### {name}",
        "",
        "| model | RMSE (95 %) | MAE | log loss | ECE | splits | trials | fit, CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["rmse_interval"]
        known = ["" if row[key] is None else f"{row[key]:.4f}" for key in ("log_loss", "ece")]
        figures = [f"{row['rmse']:.4f} ({low:.4f}-{high:.4f})", f"{row['mae']:.4f}", *known]
        n_trials = sum(cell["n_trials"] for cell in cells if cell["model"] == row["model"])
        figures += [str(row["n_seeds"]), str(n_trials), shown_seconds(row)]
        lines.append(f"| {NAMES[row['model']]} | {' | '.join(figures)} |")
    chosen = {cell["model"]: cell["settings"] for cell in reversed(cells)}
    texts = [
        f"{model} {', '.join(f'{k} {v:g}' for k, v in settings.items() if k != 'random_state')}"
        for model, settings in chosen.items()
        if set(settings) - {"random_state"}
    ]
    lines += ["", f"Chosen on the validation part of split 0: {'; '.join(texts)}."]
    return "\n".join([*lines, "", f"![{figure.get_label()}](figures/ratings-{name}.svg)"])


if __name__ == "__main__":
    main()
