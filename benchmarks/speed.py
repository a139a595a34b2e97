"""Speed at the paper's scale: python benchmarks/speed.py [--quick] [--service FOLDER].

Writes benchmarks/results/speed.json, from which `benchmarks/results.py` writes docs/results.md. All
is measured in one run on one simulated service, so that ratios hold on any machine; large parts run
in separate processes, to measure their peak memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dense_step import DenseStep
from scipy.sparse import csr_array, csr_matrix
from threadpoolctl import threadpool_limits

from cfnade import ImplicitCFNADE, RelativeRating, read_interactions
from cfnade.baselines import IMF
from cfnade.baselines.imf import _confidences
from cfnade.data.interactions import CountMatrix
from cfnade.data.simulation.service_files import write_service
from cfnade.data.simulation.simulate import ServiceConfig, SimulatedService
from cfnade.data.splitting import hold_out, sample_users
from cfnade.metrics.evaluate import evaluate, mean_percentage_ranking
from cfnade.metrics.oracle import limits
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.training import _Run
from cfnade.progress import Callbacks
from cfnade.threads import has_fast_bfloat16

ROOT = Path(__file__).parent.parent
OUTCOME = ROOT / "benchmarks" / "results" / "speed.json"
N_HIDDEN, ALPHA, BATCH = 256, 30.0, 1_000
JUDGED_USERS = 5_000
ALS = {"factors": 256, "alpha": 300.0, "regularization": 3000.0}
"""The best of six settings on the same validation users: alpha 30 (regularisation 1000), 100 (1000,
2000, 4000), 300 (3000) and 1000 (10000)."""

ALS_ITERATIONS = 6
TURNS = 2
"""ALS and the short run take turns, and the faster time of each counts: other work on the machine
only slows a run."""

RECOMMENDING_TURNS = 3
"""Likewise when recommending for everybody."""

CFNADE: dict[str, Any] = {
    "readout__direct": False,
    "recipe__start": "factors",
    "recipe__validate_every": 1,
}
"""The default, without the direct path: IMF has none, and quality is compared. Nor has the start
neighbours of items, which the network alone has by default: to find them takes as long as all else.
"""

CFNADE_EPOCHS = {"short": 1, "long": 2}
"""Passes over all users: the default's, and a longer run."""

VARIANTS: dict[str, dict[str, Any]] = {
    "with the direct path": {
        "readout__direct": True,
        "recipe__start": None,
    },  # not in a quick run: it takes a minute
}
QUICK_USERS = 20_000
QUICK = {"batch_size": 200}  # as there are fewer users, for about as many updates
QUICK_EPOCHS = {"short": 2, "long": 4}


# Steps ------------------------------------------------------------------------------------------


def random_ratings(n_users: int, n_items: int, mean_history: int) -> csr_array:
    """Relative ratings with a long tail of items, in random order."""
    rng = np.random.default_rng(0)
    popularity = rng.permutation(1.0 / (np.arange(n_items) + 0.003 * n_items))
    items = rng.choice(n_items, n_users * mean_history, p=popularity / popularity.sum())
    users = np.repeat(np.arange(n_users), mean_history)
    counts = csr_array((np.ones(items.size), (users, items)), shape=(n_users, n_items))
    counts.data = 1.0 - rng.random(counts.nnz)
    return counts


def milliseconds(step: Callable[[], Any], n_repeats: int) -> float:
    """Median time of a step."""
    step()
    times = []
    for _ in range(n_repeats):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return 1e3 * float(np.median(times))


UPDATES = 10
"""Timed together."""


def engine_step(ratings: csr_array, batch: int) -> Callable[[], None]:
    """`UPDATES` updates of training, without the new order of items once per epoch."""
    precision = "bfloat16" if has_fast_bfloat16() else "float32"
    training = TrainingConfig(batch_size=batch, precision=precision)
    run = _Run(ModelConfig(ratings.shape[1], N_HIDDEN, alpha=ALPHA), training, ratings)
    rng, (_, *layers) = np.random.default_rng(0), run._arrange(1)

    def some_updates() -> None:
        for _ in range(UPDATES):
            run._update(
                run.rows.confidence[rng.integers(ratings.shape[0], size=batch)], *layers, rng
            )

    return some_updates


def new_order(ratings: csr_array) -> Callable[[], None]:
    """Bring items into a random order and back, as each epoch does once at most."""
    run = _Run(ModelConfig(ratings.shape[1], N_HIDDEN, alpha=ALPHA), TrainingConfig(), ratings)

    def there_and_back() -> None:
        run._arrange(1)
        run._restore_order()

    return there_and_back


def dense_step(ratings: csr_array, batch: int, *, one_context: bool = False) -> Callable[[], float]:
    dense = DenseStep(ratings.shape[1], N_HIDDEN, ALPHA, one_context=one_context)
    rng = np.random.default_rng(0)
    return lambda: dense.step(ratings[rng.integers(ratings.shape[0], size=batch)])


def sgemm_rate() -> float:
    """Floating-point operations a second of a large matrix product, in 1e9."""
    a, out = torch.randn(2048, 2048), torch.empty(2048, 2048)
    times = [milliseconds(lambda: torch.mm(a, a, out=out), 3) for _ in range(3)]
    return 2 * 2048**3 / min(times) / 1e6


def steps(*, quick: bool) -> dict[str, Any]:
    """The engine and the plain dense step, as items, users and histories grow."""
    n_repeats = 3 if quick else 9
    sizes = [(n, BATCH, 36) for n in (5_000, 10_000, 17_348)]
    if not quick:
        sizes += [(17_348, batch, 36) for batch in (200, 500, 2 * BATCH)]
        sizes += [(17_348, BATCH, 100)]
    rows = []
    for n_items, batch, mean_history in sizes:
        ratings = random_ratings(4_000, n_items, mean_history)
        rate = sgemm_rate()
        exact = milliseconds(engine_step(ratings, batch), n_repeats) / UPDATES
        few = max(3, n_repeats // 2)
        dense = milliseconds(dense_step(ratings, batch), few)
        one_context = milliseconds(dense_step(ratings, batch, one_context=True), few)
        # three products of the batch with the targets' half of V: forwards, and back to both
        work = 3 * 2 * batch * (n_items // 2) * N_HIDDEN
        row = {
            "n_items": n_items,
            "batch": batch,
            "mean_history": mean_history,
            "dense_ms": round(dense, 1),
            "dense_one_context_ms": round(one_context, 1),
            "exact_ms": round(exact, 1),
            "speedup": round(dense / exact, 2),
            "sgemm_gflops": round(rate, 1),
            "sgemm_share": round(work / exact / 1e6 / rate, 3),
            "new_order_ms": round(milliseconds(new_order(ratings), 3), 1),
        }
        print(row, flush=True)
        rows.append(row)
    return {"steps": rows}


# Full scale -------------------------------------------------------------------------------------


def split(folder: Path) -> tuple[CountMatrix, CountMatrix]:
    """Counts to train on, and those of some users held out."""
    counts = read_interactions(folder / "interactions").counts
    return hold_out(counts, share=0.1, n_users=JUDGED_USERS, rng=0)


class Judge:
    """Measures validation MPR, and the seconds that this takes."""

    def __init__(self, train: CountMatrix, held_out: CountMatrix) -> None:
        users = np.flatnonzero(np.diff(held_out.indptr))
        ratings = RelativeRating().fit(train)
        self.histories, self.held_out = train[users], held_out[users]
        self.relevance = ratings.transform(self.held_out)
        self.seconds = 0.0

    def mpr(self, scorer: Any) -> float:
        """In percent."""
        started = time.perf_counter()
        mpr = mean_percentage_ranking(scorer, self.histories, self.held_out, self.relevance)
        self.seconds += time.perf_counter() - started
        return mpr


def preparation(folder: Path) -> dict[str, Any]:
    """Seconds of ingest and relative ratings."""
    started = time.perf_counter()
    counts = read_interactions(folder / "interactions").counts
    ingested = time.perf_counter()
    RelativeRating().fit(counts).transform(counts)
    rated = time.perf_counter()
    return {
        "ingest_seconds": round(ingested - started, 1),
        "relative_ratings_seconds": round(rated - ingested, 1),
        "n_pairs": int(counts.nnz),
    }


def small_model(counts: CountMatrix, **changes: Any) -> ImplicitCFNADE:
    """A model of the right size, trained on few users: its weights do not matter here."""
    settings = {**CFNADE, "max_epochs": 1, "validation_share": 0.0, **changes}
    return ImplicitCFNADE().set_params(**settings).fit(counts[:2_000])


def evaluation(folder: Path) -> dict[str, Any]:
    """Seconds to hold out a tenth of each user's items and compute all metrics."""
    counts = read_interactions(folder / "interactions").counts
    model = small_model(counts)
    started = time.perf_counter()
    known, held_out = hold_out(counts, share=0.1, rng=0)
    split_at = time.perf_counter()
    relevance = RelativeRating().fit(known).transform(held_out)
    metrics = evaluate(model, known, held_out, relevance).metrics
    seconds = time.perf_counter() - split_at
    print("evaluation", seconds, metrics, flush=True)
    return {
        "hold_out_seconds": round(split_at - started, 1),
        "seconds": round(seconds, 1),
        "n_users": counts.shape[0],
        "n_held_out": int(held_out.nnz),
    }


def als_curve(folder: Path, settings: dict[str, Any], n_iterations: int) -> dict[str, Any]:
    """Validation MPR of ALS against seconds of fitting; measured after the fit."""
    train, held_out = split(folder)
    started = time.perf_counter()
    imf = IMF(**settings)
    imf.relative_rating_ = RelativeRating().fit(train)
    confidences = _confidences(imf.relative_rating_, train, imf.alpha)
    als = imf._new_als()
    als.iterations = n_iterations
    kept: list[tuple[float, Any]] = []

    def keep(iteration: int, seconds: float, loss: float | None) -> None:
        kept.append((time.perf_counter() - started, als.item_factors.copy()))

    with threadpool_limits(1, "blas"):
        als.fit(confidences, show_progress=False, callback=keep)
    judge, points = Judge(train, held_out), []
    for seconds, factors in kept:
        imf.als_ = imf._new_als()
        imf.als_.item_factors = factors
        points.append([round(seconds, 1), judge.mpr(imf)])
        print("als", points[-1], flush=True)
    return {"als": points, "judge_seconds": round(judge.seconds / len(points), 1)}


def cfnade_curve(folder: Path, n_epochs: int, **changes: Any) -> dict[str, Any]:
    """Validation MPR of CF-NADE against seconds of fitting."""
    train, held_out = split(folder)
    points: list[list[float]] = []
    started = time.perf_counter()
    settings = {**CFNADE, "max_epochs": n_epochs, "patience": n_epochs, **changes}

    def on_epoch(epoch: Any) -> None:
        points.append([round(time.perf_counter() - started, 1), epoch.validation_mpr])
        print("cfnade", n_epochs, points[-1], flush=True)

    few = sample_users(held_out, 1_000, 0)  # enough for early stopping
    model = ImplicitCFNADE().set_params(**settings)
    model.fit(train, validation=few, callbacks=Callbacks(on_epoch=on_epoch))
    seconds = time.perf_counter() - started
    final = Judge(train, held_out).mpr(model)
    print("cfnade", n_epochs, round(seconds, 1), final, model.readout_, flush=True)
    return {
        "points": points,
        "seconds": round(seconds, 1),
        "mpr": final,
        "n_epochs": n_epochs,
    }


def recommending(folder: Path) -> dict[str, Any]:
    """Top 10 for many users with the direct path, against `implicit` with as many factors.

    The model is trained, as the speed depends on its weights. `implicit` runs as it advises: as
    many threads, each with one thread of BLAS.
    """
    from implicit.als import AlternatingLeastSquares

    counts = read_interactions(folder / "interactions").counts
    n_users, n_items = counts.shape
    rng = np.random.default_rng(0)
    model = ImplicitCFNADE().fit(counts[:QUICK_USERS])
    with threadpool_limits(1, "blas"):
        als = AlternatingLeastSquares(factors=N_HIDDEN)
    als.user_factors = rng.standard_normal((n_users, N_HIDDEN), dtype=np.float32)
    als.item_factors = rng.standard_normal((n_items, N_HIDDEN), dtype=np.float32)
    users, matrix = np.arange(n_users), csr_matrix(counts)
    times: dict[str, list[float]] = {"cfnade": [], "implicit": []}
    for _ in range(RECOMMENDING_TURNS):
        started = time.perf_counter()
        model.recommend(users, counts, N=10)
        times["cfnade"].append(time.perf_counter() - started)
        with threadpool_limits(1, "blas"):
            started = time.perf_counter()
            als.recommend(users, matrix, N=10)
            times["implicit"].append(time.perf_counter() - started)
    best = {name: min(seconds) for name, seconds in times.items()}
    print("recommending", best, flush=True)
    return {
        "n_users": n_users,
        "cfnade_seconds": round(best["cfnade"], 1),
        "implicit_seconds": round(best["implicit"], 1),
        "ratio": round(best["cfnade"] / best["implicit"], 2),
    }


def apart(function: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> dict[str, Any]:
    """Run in a separate process, and add its peak memory."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_with_peak, (function, args, options))


def _with_peak(
    function: Callable[..., dict[str, Any]], args: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Any]:
    outcome = function(*args, **options)
    status = Path("/proc/self/status").read_text()  # getrusage includes the parent's peak
    kibibytes = re.search(r"VmHWM:\s+(\d+) kB", status)
    peak = int(kibibytes[1]) / 2**20 if kibibytes else float("nan")
    return {**outcome, "peak_memory_gib": round(peak, 2)}


def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Measure all parts."""
    service = json.loads((folder / "service.json").read_text())
    outcome: dict[str, Any] = {"quick": quick, "service": service, "settings": CFNADE}
    outcome |= steps(quick=quick)
    prepared = apart(preparation, folder)
    evaluated = apart(evaluation, folder)
    settings = {**ALS, "regularization": 500.0} if quick else ALS  # grows with the users
    epochs, changes = (QUICK_EPOCHS, QUICK) if quick else (CFNADE_EPOCHS, {})
    turns = [
        (
            apart(als_curve, folder, settings, ALS_ITERATIONS),
            apart(cfnade_curve, folder, epochs["short"], **changes),
        )
        for _ in range(1 if quick else TURNS)
    ]
    als = min((turn[0] for turn in turns), key=lambda curve: curve["als"][-1][0])
    runs = {
        "short": min((turn[1] for turn in turns), key=lambda run: run["seconds"]),
        "long": apart(cfnade_curve, folder, epochs["long"], **changes),
    }
    variants = {
        name: apart(cfnade_curve, folder, epochs["short"], **changes, **change)
        for name, change in VARIANTS.items()
        if not (quick and change.get("readout__direct"))
    }
    recommended = apart(recommending, folder)
    best = min(als["als"], key=lambda point: point[1])
    to_quality = [run["seconds"] for run in runs.values() if run["mpr"] <= best[1]]
    largest = next(row for row in outcome["steps"] if row["n_items"] == 17_348)
    parts = [prepared, evaluated, als, recommended, *runs.values(), *variants.values()]
    return outcome | {
        "preparation": prepared,
        "evaluation": evaluated,
        "als_curve": als,
        "als": settings,
        "cfnade_runs": runs,
        "cfnade_variants": variants,
        "recommending": recommended,
        "step_speedup_vs_dense": largest["speedup"],
        "sgemm_share": largest["sgemm_share"],
        "als_mpr": best[1],
        "als_seconds": best[0],
        "final_mpr": min(run["mpr"] for run in runs.values()),
        "oracle_mpr": service["oracle_mpr"],
        "time_to_als_quality_ratio": round(min(to_quality) / best[0], 2) if to_quality else None,
        "peak_memory_gib": max(part["peak_memory_gib"] for part in parts),
        "recommend_ratio_vs_implicit": recommended["ratio"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about 2 minutes, on a small service")
    parser.add_argument("--service", type=Path, help="folder of `cfnade data simulate`")
    parser.add_argument("--out", type=Path, help="by default benchmarks/results/speed[-quick].json")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with tempfile.TemporaryDirectory() as parent:
        folder = options.service
        if folder is None:
            folder = Path(parent) / "service"
            print("simulating a service", flush=True)
            config = ServiceConfig.sized("paper")
            if options.quick:
                config = ServiceConfig.sized("paper", n_users=QUICK_USERS)
            write_service(SimulatedService(config), folder, limits=limits)
        outcome = measure(folder, quick=options.quick)
    out = options.out or (OUTCOME.with_name("speed-quick.json") if options.quick else OUTCOME)
    out.write_text(json.dumps(outcome, indent=1) + "\n")
    shown = {k: v for k, v in outcome.items() if isinstance(v, (int, float, type(None)))}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
