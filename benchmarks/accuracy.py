"""Accuracy of CF-NADE and of every baseline, tuned alike: python benchmarks/accuracy.py DATA.

DATA is a folder with the Parquet files. For each data set and method (a cell): search on
validation, write the choice to a file, fit with several seeds, test once, write the judgement.
Cells are kept in benchmarks/results/accuracy/ and are not run again, so an interrupted run
continues, and a choice whose test was seen never changes. A choice without a judgement is judged as
it is. To run a cell again, delete its files. At the end, or with --report alone, everything goes
into benchmarks/results/accuracy.json and docs/results.md.

Cells run one after the other, on OMP_NUM_THREADS threads, or all.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_report import collect, write_document
from accuracy_sets import QUICK, SETS, AccuracySet
from nested import Choice, Judgement, choose, judge
from threadpoolctl import threadpool_limits
from versions import commit

from cfnade.compare.contender import Contender
from cfnade.compare.protocol import Protocol
from cfnade.compare.registry import CONTENDERS, cfnade, contender
from cfnade.errors import TrainingError

ROOT = Path(__file__).parent.parent
CELLS = ROOT / "benchmarks" / "results" / "accuracy"
METHODS = tuple(name for name in CONTENDERS if name != "random")
DETERMINISTIC = {"popularity", "ease", "edlae", "slim", "lrec", "knn"}
"""One seed is all there is."""

CHOSEN = "chosen"
"""The one choice of a cell, in its files; earlier ones had a choice by each of two metrics."""

logger = logging.getLogger("accuracy")


class Cell:
    """One method on one data set: its choice and its judgement, each in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.choice_file = folder / f"{name}.choice.json"
        self.judgement_file = folder / f"{name}.json"
        self.users_file = folder / f"{name}.npz"  # too large to keep: .gitignore

    @property
    def is_done(self) -> bool:
        """Whether its test was seen."""
        return self.judgement_file.exists()

    def chosen(self) -> Choice | None:
        """The choice, if it was made."""
        if not self.choice_file.exists():
            return None
        return Choice(**json.loads(self.choice_file.read_text())[CHOSEN])

    def keep_choice(self, chosen: Choice) -> None:
        """Write the choice, before the test is seen and never after."""
        if self.is_done:
            raise RuntimeError(f"{self.judgement_file} exists: its test was seen already")
        _write(self.choice_file, {CHOSEN: asdict(chosen)})

    def keep_judgement(self, judged: Judgement, facts: dict[str, Any]) -> None:
        """Write the figures of the choice; then the cell is done."""
        arrays = {}
        for metric, of_seeds in judged.per_user.items():
            arrays[f"{CHOSEN}/{metric}/total"] = np.stack([sums.total for sums in of_seeds])
            arrays[f"{CHOSEN}/{metric}/weight"] = of_seeds[0].weight
        np.savez_compressed(self.users_file, **arrays)
        shown = {f.name: getattr(judged, f.name) for f in fields(judged) if f.name != "per_user"}
        _write(self.judgement_file, {**facts, "judged": {CHOSEN: shown}})

    def keep_failure(self, reason: str) -> None:
        """Write why there is no figure."""
        _write(self.judgement_file, {"failed": reason})


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1, default=str) + "\n")
    part.replace(path)  # whole or not at all


def _keep_split(folder: Path, facts: dict[str, Any]) -> None:
    """Write how the data were split, and refuse cells of another split."""
    file = folder / "split.json"
    if file.exists():
        before = json.loads(file.read_text())
        other = [name for name, value in facts.items() if before.get(name, value) != value]
        if other and any(folder.glob("*.choice.json")):
            raise SystemExit(
                f"{folder} has cells of another split ({', '.join(other)} differ): delete them"
            )
    _write(file, facts)


def contenders_of(method: str, dataset: AccuracySet) -> Callable[[int], Contender]:
    """The method's contender for each seed."""

    def of_seed(seed: int) -> Contender:
        if dataset.cfnade and method == "cfnade":
            return cfnade(seed, grid={}, start=dict(dataset.cfnade))
        if dataset.cfnade and method == "cfnade-network":
            return cfnade(seed, grid={}, start={**dataset.cfnade, "readout__direct": False})
        candidate = contender(method, seed)
        if dataset.max_memory_gb is not None and method in ("ease", "edlae"):
            return candidate.holding(max_memory_gb=dataset.max_memory_gb)
        return candidate

    return of_seed


def run_cell(
    cell: Cell,
    contender_of: Callable[[int], Contender],
    protocol: Protocol,
    *,
    trials: int,
    seeds: list[int],
) -> None:
    """Choose, then judge, and write both; continue from what exists."""
    started = time.perf_counter()
    try:
        chosen = cell.chosen()
        if chosen is None:
            chosen = choose(contender_of(0), protocol.validation, max_trials=trials)
            cell.keep_choice(chosen)
        judged = judge(contender_of, chosen.settings, protocol, seeds=seeds)
    except TrainingError as error:
        logger.warning("%s failed: %s", cell.judgement_file.stem, error)
        cell.keep_failure(str(error))
        return
    seconds = round(time.perf_counter() - started, 1)
    cell.keep_judgement(judged, {"seconds": seconds, "commit": commit()})
    figures = {metric: round(judged.metrics[metric], 4) for metric in ("mpr", "ndcg@100")}
    print(f"{cell.judgement_file.parent.name:22}{cell.judgement_file.stem:32}{figures}", flush=True)


def run_set(name: str, dataset: AccuracySet, options: argparse.Namespace, cells: Path) -> None:
    """Run all missing cells of a data set."""
    folder = cells / name
    methods = [m for m in options.methods if dataset.methods is None or m in dataset.methods]
    todo = [m for m in methods if not Cell(folder, m).is_done]
    if not todo:
        return

    @cache
    def protocol() -> Protocol:
        data, test = dataset.read(options.data)
        made = Protocol(data, test, dataset.protocol_config())
        facts = {"n_users": data.n_users, "n_items": data.n_items, "n_pairs": data.n_pairs}
        _keep_split(folder, {"title": dataset.title, **facts, **made.facts})
        return made

    trials = min(options.trials, dataset.trials or options.trials)
    for method in todo:
        run_cell(
            Cell(folder, method),
            contenders_of(method, dataset),
            protocol(),
            trials=min(trials, 4) if method == "cfnade-paper" else trials,
            seeds=[0] if method in DETERMINISTIC else list(range(options.seeds)),
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", default=Path(), help="folder of data sets")
    parser.add_argument("--sets", default=" ".join(SETS), help="names with spaces or commas")
    parser.add_argument("--methods", default=" ".join(METHODS), help="names, likewise")
    parser.add_argument("--trials", type=int, default=10, help="settings that each may try")
    parser.add_argument("--seeds", type=int, default=3, help="final fits of what is not fixed")
    parser.add_argument("--report", action="store_true", help="only write the report")
    parser.add_argument("--quick", action="store_true", help="a made-up set, kept to itself")
    options = parser.parse_args()
    options.methods = options.methods.replace(",", " ").split()
    for method in options.methods:
        contender(method)  # refuses unknown names
    known = QUICK if options.quick else SETS
    options.sets = list(QUICK) if options.quick else options.sets.replace(",", " ").split()
    unknown = set(options.sets) - set(known)
    if unknown:
        parser.error(f"no data set {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    if options.quick:
        options.trials, options.seeds = min(options.trials, 2), min(options.seeds, 2)
    return options


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    options = parsed()
    cells, outcome = CELLS, ROOT / "benchmarks" / "results" / "accuracy.json"
    sets = SETS
    if options.quick:
        sets = QUICK
        cells = ROOT / "runs" / "accuracy-quick"
        outcome = cells.with_suffix(".json")
        shutil.rmtree(cells, ignore_errors=True)
    n_threads = os.environ.get("OMP_NUM_THREADS")
    with threadpool_limits(int(n_threads) if n_threads else None):
        for name in [] if options.report else options.sets:
            run_set(name, sets[name], options, cells)
    before = json.loads(outcome.read_text()) if outcome.exists() else None
    collected = collect(cells, sets, before)
    _write(outcome, collected)
    write_document(collected, ROOT, cells.with_suffix(".md") if options.quick else None)


if __name__ == "__main__":
    main()
