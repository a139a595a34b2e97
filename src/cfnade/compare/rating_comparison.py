"""Models of ratings compared by RMSE on random 90/10 splits, as in the published results."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax, stdtrit

from cfnade.baselines.rating_baselines import BiasedFactors, BiasedMeans
from cfnade.compare.plots import BLUE, GREY, INK, canvas
from cfnade.compare.reliability import reliability
from cfnade.data.rating_table import RatingTable
from cfnade.errors import ArtifactError, DataError, n_of
from cfnade.fit.rating_estimator import CFNADE
from cfnade.folders import replace_file
from cfnade.metrics.bootstrap import bootstrap_means, percentile_interval
from cfnade.metrics.formulas import UserSums
from cfnade.metrics.search import Search, Trial, coordinate_search
from cfnade.model.batches import identity_of
from cfnade.storage.untrusted import parse_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEST_SHARE, VALIDATION_SHARE, N_BOOTSTRAP = 0.1, 0.05, 1000
LEAST_RATINGS = 50
_DECAYS = (1e-5, 3e-5, 6e-5, 1.2e-4, 2.5e-4, 5e-4, 1e-3, 2e-3)
_OF_NETWORKS: dict[str, Sequence[Any]] = {"weight_decay": _DECAYS, "max_epochs": (40, 80, 160)}


def _network(name: str, **settings: Any) -> Any:
    return getattr(import_module("cfnade.baselines.rating_networks"), name)(**settings)


MODELS: dict[str, tuple[Callable[..., Any], dict[str, Sequence[Any]]]] = {
    "mean": (lambda: BiasedMeans(math.inf), {}),
    "biases": (BiasedMeans, {"l2": (1.0, 2.0, 5.0, 10.0, 20.0)}),
    "mf": (BiasedFactors, {"l2": (0.03, 0.04, 0.05, 0.07, 0.1, 0.15), "n_factors": (5, 30, 100)}),
    "rbm": (partial(_network, "RatingRBM"), _OF_NETWORKS),
    "autorec": (partial(_network, "AutoRec"), _OF_NETWORKS),
    "cfnade": (CFNADE, {"weight_decay": _DECAYS}),
}
"""How to make each model, and the values of its settings that are tried on validation."""


@dataclass(frozen=True)
class RatingComparison:
    """The outcome: one cell for each model and seed."""

    dataset: str
    table: dict[str, int]
    cells: list[dict[str, Any]]

    def summary(self) -> list[dict[str, Any]]:
        """Mean and 95 % interval of each model, lowest RMSE first.

        The interval is that of Student over seeds; with one seed, of the bootstrap over users.
        """
        found = []
        for model in dict.fromkeys(cell["model"] for cell in self.cells):
            cells = [cell for cell in self.cells if cell["model"] == model]
            n = len(cells)
            row: dict[str, Any] = {"model": model, "n_seeds": n}
            for metric in ("rmse", "mae"):
                values = np.array([cell[metric] for cell in cells])
                row[metric], interval = float(values.mean()), cells[0].get(f"{metric}_interval")
                if n > 1:
                    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / n**0.5
                    interval = [row[metric] - half, row[metric] + half]
                row[f"{metric}_interval"] = interval
            for name in ("log_loss", "ece", "fit_seconds", "fit_cpu_seconds"):
                known = [cell[name] for cell in cells if cell.get(name) is not None]
                row[name] = float(np.mean(known)) if known else None
            found.append(row)
        return sorted(found, key=lambda row: row["rmse"])

    def to_json(self) -> dict[str, Any]:
        """As JSON (docs/json.md)."""
        return {**vars(self), "results": self.summary()}


def compare_ratings(
    table: RatingTable,
    models: Sequence[str],
    seeds: Sequence[int],
    *,
    dataset: str,
    max_trials: int,
    search_each: bool = True,
    settings: Mapping[str, Any] | None = None,
    keep: Path | None = None,
    on_cell: Callable[[str, int], None] | None = None,
) -> RatingComparison:
    """Tune each of the `MODELS` on validation and test it once, for every seed.

    Args:
        table: The ratings.
        models: Names.
        seeds: A split and a fit for each.
        dataset: Name of the data.
        max_trials: Settings to try per model and seed.
        search_each: Search on the validation part of every split; if not, on that of the first one,
            and keep what was found there.
        settings: Settings of CF-NADE that are the same for every trial.
        keep: Folder of finished cells, which are not run again.
        on_cell: Called with the model and the seed before each cell.
    """
    CFNADE().set_params(**(settings or {}))  # refuses a wrong name before anything is fitted
    if table.levels.nnz < LEAST_RATINGS:
        raise DataError(
            f"{n_of(table.levels.nnz, 'rating')} are too few to hold out a test and a validation "
            f"part; a comparison needs at least {LEAST_RATINGS}"
        )
    cells, (n_users, n_items, checksum) = [], identity_of(table.levels)
    found: dict[str, dict[str, Any]] = {}  # settings of the first split, by model
    for seed, model in product(seeds, models):
        path = None if keep is None else keep / f"{model}-{seed}.json"
        if path is not None and path.exists():
            cell = parse_json(path.read_bytes())
            if not isinstance(cell, dict) or cell.get("data", checksum) != checksum:
                raise ArtifactError(f"{path} is of other data; delete it, or keep elsewhere")
        else:
            if on_cell is not None:
                on_cell(model, seed)
            fixed = dict(settings or {}) if model == "cfnade" else {}
            cell = _cell(table, model, seed, max_trials, fixed | found.get(model, {}))
            cell["data"] = checksum
            if path is not None:
                replace_file(path, json.dumps(cell, indent=1).encode())
        cells.append(cell)
        if not search_each:
            found.setdefault(model, cell["settings"])
    sizes = {"n_users": n_users, "n_items": n_items, "n_ratings": int(table.levels.nnz)}
    return RatingComparison(dataset, sizes, cells)


def _cell(
    table: RatingTable, name: str, seed: int, max_trials: int, fixed: dict[str, Any]
) -> dict[str, Any]:
    """One model on one split."""
    make, grid = MODELS[name]
    usual = make()
    fixed = fixed | ({"random_state": seed} if hasattr(usual, "random_state") else {})
    first = {setting: getattr(usual, setting) for setting in grid if setting not in fixed}
    train, test = table.split(TEST_SHARE, seed)
    kept, validation = train.split(VALIDATION_SHARE, seed)

    def attempt(settings: dict[str, Any]) -> Trial:
        errors = make(**settings, **fixed).fit(kept).expected(*validation.pairs) - validation.values
        return Trial(settings, float(np.sqrt((errors**2).mean())))

    search = Search([], 0.0)
    if first and max_trials > 1:
        searched = {setting: grid[setting] for setting in first}
        search = coordinate_search(attempt, first, searched, max_trials=max_trials)
    started, settings = (time.perf_counter(), time.process_time()), {**search.chosen, **fixed}
    fitted = make(**settings).fit(train)
    seconds, cpu_seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    cell = {"model": name, "seed": seed, "settings": settings, "n_trials": len(search.trials)}
    cell |= {"search_seconds": search.seconds, "fit_seconds": seconds}
    cell["fit_cpu_seconds"] = cpu_seconds
    cell |= _errors(test, fitted.expected(*test.pairs), seed)
    return cell | _calibration(fitted, test) if isinstance(fitted, CFNADE) else cell


def _errors(test: RatingTable, expected: NDArray[np.float64], seed: int) -> dict[str, Any]:
    """RMSE and MAE with bootstrap intervals over users."""
    errors, rows = expected - test.values, test.pairs[0]
    users, row = np.unique(rows, return_inverse=True)
    n = np.bincount(row, minlength=len(users)).astype(np.float64)
    each = (errors**2, np.abs(errors))
    sums = [UserSums(np.bincount(row, values).astype(np.float64), n) for values in each]
    drawn = bootstrap_means(sums, n_bootstrap=N_BOOTSTRAP, rng=seed)
    return {
        "rmse": float(np.sqrt(sums[0].mean)),
        "rmse_interval": percentile_interval(np.sqrt(drawn[:, 0])),
        "mae": sums[1].mean,
        "mae_interval": percentile_interval(drawn[:, 1]),
    }


def _calibration(model: CFNADE, test: RatingTable) -> dict[str, Any]:
    """How well the distributions hold: every value of the scale of every pair is an event."""
    p = softmax(model.pair_scores(*test.pairs) / model.temperatures_[0], axis=1)
    is_true = np.equal.outer(test.levels.data - 1, np.arange(p.shape[1]))
    held = reliability(p.ravel(), is_true.ravel())
    return {"log_loss": float(-np.log(p[is_true]).mean()), "ece": held.ece, "points": held.points}


def rating_plot(comparison: RatingComparison) -> Figure:
    """Draw the RMSE of each model with its interval, and the calibration of CF-NADE."""
    rows = comparison.summary()
    label = ", ".join(f"{row['model']} {row['rmse']:.4f}" for row in rows)
    with canvas(height=4.0 + 0.4 * len(rows)) as (figure, [alone]):
        alone.remove()
        above, below = figure.subplots(2, 1)
        for place, row in enumerate(rows):
            color = BLUE if row["model"] == "cfnade" else GREY
            above.plot(row["rmse_interval"], (place, place), color=color, linewidth=2.5)
            above.plot(row["rmse"], place, color=color, marker="o")
        above.set_yticks(range(len(rows)), [row["model"] for row in rows])
        above.set_ylim(len(rows) - 0.5, -0.5)  # the best on top, as in the comparison of lists
        above.set_xlabel("Test RMSE (lower is better)")
        for points in (cell["points"] for cell in comparison.cells if "points" in cell):
            below.plot(*zip(*points, strict=True), color=BLUE)
        below.plot((0, 1), (0, 1), color=INK, linestyle=":")
        below.set_xlabel("Probability of a rating, by CF-NADE")
        below.set_ylabel("Observed share")
    figure.set_label(f"Test RMSE of each model: {label}.")
    return figure
