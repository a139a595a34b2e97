"""The paper's comparison on public data: python benchmarks/reproduce.py DATA.

DATA is a folder with the Parquet files. For each data set, model and alpha (a cell): choose the
other settings by validation MPR, fit on train and validation, test once. Cells are kept in
benchmarks/results/reproduce/ and are not run again; to run one again, delete its file. The section
of docs/reproduction.md and its figures are written from the cells that are there; with `--report`
nothing else is done. `--epochs 20` tries everything with few epochs, apart from the real cells.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from accuracy_sets import SETS, Parts
from nested import against
from versions import commit, named

from cfnade.compare.contender import Contender
from cfnade.compare.plots import save_figure, sweep_plot
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.registry import contender
from cfnade.compare.sweep import Sweep, SweepPoint
from cfnade.errors import ConfigError, DataError, MissingExtraError, TrainingError
from cfnade.metrics.formulas import UserSums
from cfnade.scale.als import imf_spark

ROOT = Path(__file__).parent.parent
CELLS = ROOT / "benchmarks" / "results" / "reproduce"
TRIED = ROOT / "runs" / "reproduce"
PAGE = ROOT / "docs" / "reproduction.md"
VERDICTS = "verdicts.json"
START, END = "<!-- counts: written by benchmarks/reproduce.py -->", "<!-- end of counts -->"

COUNTS: dict[str, Callable[[Path], Parts]] = {
    name: each.read for name, each in SETS.items() if "mpr" in each.metrics
}
"""Data sets by name, and how each is read."""

ALPHAS = (30.0, 100.0, 10.0, 300.0, 3.0, 1000.0, 1.0)
"""In the order in which they are run, so that the best ones are there first."""

MODELS: Mapping[str, Callable[[int], Contender]] = {
    "imf-spark": lambda seed: imf_spark(seed, None).holding(factors=256, regularization=0.1),
    "imf": lambda seed: contender("imf", seed),
    "cfnade-paper": lambda seed: contender("cfnade-paper", seed),
    "cfnade-network": lambda seed: replace(contender("cfnade-network", seed), grid={}),
    "cfnade": lambda seed: replace(contender("cfnade", seed), grid={}),
}
"""The first as the paper ran it: its rank, the default `regParam` of the code, and MLlib's steps,
taken without Spark. Every model but the last two also searches its other settings."""

NAMES = {
    "imf-spark": "IMF as on Spark",
    "imf": "IMF, tuned",
    "cfnade-paper": "CF-NADE, the paper's settings",
    "cfnade-network": "network alone",
    "cfnade": "default",
}
BASELINES, OURS = ("imf-spark", "imf"), ("cfnade-paper", "cfnade-network", "cfnade")
PAPER = {"imf-spark": 7.362, "cfnade-paper": 5.2436}
"""Best test MPR of the paper, at alpha 100 and 300, on data that are not public."""

logger = logging.getLogger("reproduce")


@dataclass(frozen=True)
class Cells:
    """A folder with one file for each data set, model and alpha."""

    folder: Path

    def place(self, name: str, model: str, alpha: float) -> Path:
        """The file of one cell."""
        return self.folder / name / f"{model}.{alpha:g}.json"

    def keep(self, name: str, model: str, alpha: float, facts: Mapping[str, Any]) -> None:
        """Write a cell, whole or not at all."""
        path = self.place(name, model, alpha)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(facts, indent=1, default=str) + "\n")
        part.replace(path)

    def of(self, name: str) -> list[dict[str, Any]]:
        """The cells of a data set that have a figure, by model and alpha."""
        files = [f for f in (self.folder / name).glob("*.json") if f.name != VERDICTS]
        found = [json.loads(path.read_text()) for path in files]
        places = {model: place for place, model in enumerate(MODELS)}
        found = [cell for cell in found if "mpr" in cell and cell["model"] in places]
        return sorted(found, key=lambda cell: (places[cell["model"]], cell["alpha"]))

    def nearest(self, name: str, model: str, alpha: float) -> dict[str, Any]:
        """Values of the grid that the model had at the nearest alpha so far; none at the first."""
        known = [cell for cell in self.of(name) if cell["model"] == model]
        near = min(known, key=lambda cell: abs(math.log(cell["alpha"] / alpha)), default={})
        return dict(near.get("on_grid", {}))

    def keep_users(self, name: str, model: str, alpha: float, sums: UserSums) -> None:
        """Write the MPR of single users: too large to keep in git."""
        np.savez_compressed(self.place(name, model, alpha).with_suffix(".npz"), **vars(sums))

    def users(self, name: str, cell: Mapping[str, Any]) -> list[UserSums]:
        """The MPR of single users of a cell; none on another machine."""
        path = self.place(name, cell["model"], cell["alpha"]).with_suffix(".npz")
        return [UserSums(**np.load(path))] if path.exists() else []

    def verdicts(self, name: str, best: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Whether each of our models is significantly better than each IMF, at its best alpha.

        Earlier verdicts are kept where the figures of single users are missing.
        """
        file = self.folder / name / VERDICTS
        before = json.loads(file.read_text()) if file.exists() else {}
        found = {}
        for mine, theirs in product(OURS, BASELINES):
            if mine in best and theirs in best:
                pair = f"{mine}, {theirs}"
                figures = [best[mine]["mpr"], best[theirs]["mpr"]]
                own, others = (self.users(name, best[each]) for each in (mine, theirs))
                if own and others:
                    found[pair] = {"mpr": figures, "verdict": against(own, others, "mpr")[2]}
                elif before.get(pair, {}).get("mpr") == figures:
                    found[pair] = before[pair]
        if found and found != before:
            file.write_text(json.dumps(found, indent=1) + "\n")
        return {pair: each["verdict"] for pair, each in found.items()}


def run_cell(
    candidate: Contender, protocol: Protocol, trials: int
) -> tuple[dict[str, Any], UserSums | None]:
    """Choose the settings by validation MPR, fit and test once."""
    try:
        search = candidate.search(protocol.validation, max_trials=trials)
        chosen = search.best.settings
        started = time.perf_counter()
        fitted = candidate.fit(protocol.known_data, chosen, protocol.relative_rating)
        seconds = time.perf_counter() - started
    except TrainingError as error:
        return {"failed": str(error)}, None
    found = protocol.test(fitted)
    facts = {
        "mpr": found.metrics["mpr"],
        "interval": found.intervals["mpr"],
        "ndcg@100": found.metrics["ndcg@100"],
        "validation_mpr": search.best.metrics["mpr"],
        "n_settings": len(search.trials),
        "n_looks": search.n_looks,
        "settings": chosen,
        "on_grid": dict(search.chosen),
        "at_edge": [str(edge) for edge in candidate.edges({**chosen, **search.chosen})],
        "search_seconds": round(search.seconds, 1),
        "fit_seconds": round(seconds, 1),
    }
    return facts, found.per_user["mpr"]


def run_set(
    name: str,
    read: Callable[[], Parts],
    cells: Cells,
    *,
    models: Sequence[str],
    alphas: Sequence[float],
    trials: int,
    epochs: int | None = None,
) -> None:
    """Run the missing cells of a data set; a model whose software is missing is left out."""

    @cache
    def protocol() -> Protocol:
        data, test = read()
        return Protocol(data, test, ProtocolConfig(split="random", choose_by="mpr"))

    absent = set()
    for alpha in alphas:  # so that all models have the same ones, wherever it is interrupted
        for model in models:
            if model in absent or cells.place(name, model, alpha).exists():
                continue
            candidate = MODELS[model](0).holding(alpha=alpha)
            start = cells.nearest(name, model, alpha)
            candidate = replace(candidate, start={**candidate.start, **start})
            if epochs is not None and model in OURS:
                candidate = candidate.holding(max_epochs=epochs)
            try:
                found, sums = run_cell(candidate, protocol(), trials)
            except (MissingExtraError, ConfigError) as error:  # no Spark, or no Java
                logger.warning("%s is left out: %s", model, error)
                absent.add(model)
                continue
            facts = {"set": name, "model": model, "alpha": alpha, "commit": commit()}
            cells.keep(name, model, alpha, {**facts, **found})
            if sums is not None:
                cells.keep_users(name, model, alpha, sums)
            shown = f"{found['mpr']:.2f} %" if "mpr" in found else found["failed"]
            print(f"{name}, {model}, alpha {alpha:g}: {shown}", flush=True)


def best_by_model(found: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Each model at the alpha with the lowest validation MPR: none is chosen on test."""
    return {
        model: min((c for c in found if c["model"] == model), key=lambda c: c["validation_mpr"])
        for model in MODELS
        if any(cell["model"] == model for cell in found)
    }


def relative(mine: float, theirs: float) -> float:
    """Relative difference in percent; below 0 is better."""
    return 100.0 * (mine / theirs - 1.0)


def section(cells: Cells, figures: Path, alphas: Sequence[float] = ALPHAS) -> str:
    """The section of the page, from the cells that are there."""
    found = {name: each for name in COUNTS if (each := cells.of(name))}
    best = {name: best_by_model(each) for name, each in found.items()}
    lines = [
        "## Counts: CF-NADE against IMF",
        "",
        "The paper, on its own data: IMF 7.362 % at alpha 100, CF-NADE 5.2436 % at alpha 300, "
        f"{relative(PAPER['cfnade-paper'], PAPER['imf-spark']):.0f} %. Its data are not public, "
        "so no figure below can be compared with these two directly; the relative difference can.",
        "",
        "`make reproduce DATA=folder`: a tenth of each user's items is the test part, or the "
        "test part that comes with the data. At each alpha every other setting is chosen by "
        "validation MPR, in a walk along its grid of at most 12 settings that starts where the one "
        "at the nearest alpha ended; the model is then fitted on train and validation, and tested "
        "once. The table has each model at the alpha with the lowest validation MPR (in brackets), "
        "with the relative difference of test MPR against both IMFs; below 0, CF-NADE is better. "
        "(=): not significant (paired bootstrap over users, 95 %). One seed.",
        "",
        "- *IMF as on Spark*, as the paper most likely ran it: MLlib's ALS, rank 256, 10 "
        "iterations, `regParam` 0.1, the default of the code. The paper gives none. MLlib's steps "
        "are taken without Spark, which is seven times as fast; a test compares each with MLlib's "
        "([how](scale-out.md#imf-on-spark)).",
        "- *IMF, tuned*: `implicit`'s ALS; regularisation, factors and iterations searched.",
        "- *The paper's settings*: the recipe `paper`, as many epochs as early stopping gives it; "
        "the step size is searched ([decision 3](decisions/0003-paper-preset.md)).",
        "- *Network alone*: the default without the direct path. *Default*: with it. One fit at "
        "each alpha, no further search.",
        "",
    ]
    if not found:
        return "\n".join([*lines, "Nothing was run yet.", ""])
    verdicts = {name: cells.verdicts(name, each) for name, each in best.items()}
    lines += [*_table(best, verdicts), "", *_verdicts(best, verdicts), ""]
    missing = _missing(found, alphas)
    lines += [f"Not run: {missing}.", ""] if missing else []
    lines += _remarks(found, best)
    lines += ["### Figure 2: MPR over alpha", ""]
    for name, each in found.items():
        lines += [*_figure(name, each, figures), ""]
    return "\n".join(lines)


Best = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Cells by data set and model."""


def _table(best: Best, verdicts: Mapping[str, Mapping[str, str]]) -> list[str]:
    heads = ["data", *(NAMES[model] for model in BASELINES)]
    for model in OURS:
        heads += [NAMES[model], "against Spark", "against tuned"]
    paper = ["the paper's own", f"{PAPER['imf-spark']:.2f} (100)", ""]
    paper += [f"{PAPER['cfnade-paper']:.2f} (300)", "-29 %", *[""] * 7]
    rows = [paper]
    for name, by_model in best.items():
        row = [name, *(_cell(by_model.get(model)) for model in BASELINES)]
        for model in OURS:
            row += [_cell(by_model.get(model))]
            for other in BASELINES:
                against_it = _against(by_model.get(model), by_model.get(other))
                is_level = verdicts[name].get(f"{model}, {other}") == "within noise"
                row += [f"{against_it} (=)" if is_level else against_it]
        rows.append(row)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _cell(cell: Mapping[str, Any] | None) -> str:
    return "" if cell is None else f"{cell['mpr']:.2f} ({cell['alpha']:g})"


def _against(mine: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> str:
    if mine is None or theirs is None:
        return ""
    return f"{relative(mine['mpr'], theirs['mpr']):+.0f} %"


def _verdicts(best: Best, verdicts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Whether the claim of the paper holds, for each of our models and each IMF."""
    lines = []
    for model in OURS:
        for other in BASELINES:
            both = [each for each in best.values() if model in each and other in each]
            differences = [relative(each[model]["mpr"], each[other]["mpr"]) for each in both]
            if differences:
                n_lower = sum(difference < 0 for difference in differences)
                judged = [each.get(f"{model}, {other}") for each in verdicts.values()]
                lines.append(
                    f"- {NAMES[model]} against {NAMES[other]}: lower MPR on {n_lower} of "
                    f"{len(differences)} data sets, significantly on {judged.count('win')}, "
                    f"significantly higher on {judged.count('loss')}; median "
                    f"{median(differences):+.0f} % "
                    f"({min(differences):+.0f} to {max(differences):+.0f} %)."
                )
    return lines


def _missing(found: Mapping[str, Sequence[Mapping[str, Any]]], alphas: Sequence[float]) -> str:
    """Data sets, models and alphas without a figure."""
    parts = [name for name in COUNTS if name not in found]
    for name, cells in found.items():
        there = {(cell["model"], cell["alpha"]) for cell in cells}
        for model in MODELS:
            left = [f"{alpha:g}" for alpha in alphas if (model, alpha) not in there]
            if left:
                at = "" if len(left) == len(alphas) else f" at alpha {', '.join(left)}"
                parts.append(f"{NAMES[model]} on {name}{at}")
    return "; ".join(parts)


def _remarks(
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    best: Best,
) -> list[str]:
    """The version of the code, epochs, and chosen values at an end of what was tried."""
    commits = named(cell["commit"] for cells in found.values() for cell in cells)
    lines = [f"Commit: {commits}.", ""]
    epochs = [
        f"{name} {by_model['cfnade-paper']['settings']['max_epochs']}"
        for name, by_model in best.items()
        if "cfnade-paper" in by_model
    ]
    if epochs:
        lines += [f"Epochs of the paper's settings: {', '.join(epochs)}.", ""]
    ends = []
    for name, by_model in best.items():
        for model, cell in by_model.items():
            alphas = [each["alpha"] for each in found[name] if each["model"] == model]
            at_end = len(alphas) > 1 and cell["alpha"] in (min(alphas), max(alphas))
            edges = [*cell["at_edge"], *([f"alpha={cell['alpha']:g}"] if at_end else [])]
            ends += [f"{name}, {NAMES[model]}: {', '.join(edges)}"] if edges else []
    return [*lines, f"At an end of what was tried: {'; '.join(ends)}.", ""] if ends else lines


def _figure(name: str, cells: Sequence[Mapping[str, Any]], figures: Path) -> list[str]:
    """Draw one data set, and its figures as a table."""
    alphas = sorted({cell["alpha"] for cell in cells})
    points = [
        SweepPoint(
            cell["model"],
            cell["alpha"],
            cell["mpr"],
            tuple(cell["interval"]),
            cell["validation_mpr"],
            cell["n_settings"],
            cell["settings"],
            cell["fit_seconds"],
        )
        for cell in cells
    ]
    file = figures / f"reproduce-{name}.svg"
    figures.mkdir(parents=True, exist_ok=True)
    save_figure(sweep_plot(Sweep(name, alphas, {}, points)), file)
    mprs = {(cell["model"], cell["alpha"]): f"{cell['mpr']:.2f}" for cell in cells}
    lines = [
        f"![Test MPR against alpha on {name}](figures/{file.name})",
        "",
        f"| {name}, alpha | {' | '.join(f'{alpha:g}' for alpha in alphas)} |",
        "|---" * (len(alphas) + 1) + "|",
    ]
    for model in dict.fromkeys(cell["model"] for cell in cells):
        row = [mprs.get((model, alpha), "") for alpha in alphas]
        lines.append(f"| {NAMES[model]} | {' | '.join(row)} |")
    return lines


def write_section(cells: Cells, page: Path, alphas: Sequence[float] = ALPHAS) -> None:
    """Put the section between the marks of the page."""
    before, rest = page.read_text().split(START)
    text = section(cells, page.parent / "figures", alphas)
    page.write_text(f"{before}{START}\n\n{text}\n{END}{rest.split(END)[1]}")


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", default=Path(), help="folder of data sets")
    parser.add_argument("--sets", default=" ".join(COUNTS), help="names with spaces")
    parser.add_argument("--models", default=" ".join(MODELS), help="names with spaces")
    parser.add_argument("--alphas", default=" ".join(f"{a:g}" for a in ALPHAS), help="with spaces")
    parser.add_argument("--trials", type=int, default=12, help="settings to try at each alpha")
    parser.add_argument("--epochs", type=int, help="epochs at most: a try, kept in runs/")
    parser.add_argument("--report", action="store_true", help="only write the page")
    options = parser.parse_args()
    cells = Cells(CELLS if options.epochs is None else TRIED)
    for name in [] if options.report else options.sets.split():
        try:
            run_set(
                name,
                lambda name=name: COUNTS[name](options.data),
                cells,
                models=options.models.split(),
                alphas=[float(alpha) for alpha in options.alphas.split()],
                trials=options.trials,
                epochs=options.epochs,
            )
        except DataError as error:  # no such file
            logger.warning("%s is left out: %s", name, error)
    if options.epochs is None:
        write_section(cells, PAGE)
    else:
        print(section(cells, TRIED / "figures"))


if __name__ == "__main__":
    main()
