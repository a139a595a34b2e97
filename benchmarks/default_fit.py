"""Fits next to ALS, judged on test: python benchmarks/default_fit.py DATA.

DATA is a folder with the Parquet files. On the split of `cfnade compare` (seed 0, no floors), each
fit in a process of its own: `implicit` ALS with 256 factors, 15 iterations and fixed settings, the
default fit and `recipe="thorough"`; ALS and the default once more with two processes beside them
that keep both cores busy. *Typed* is the command `cfnade fit FILE --out MODEL` on the whole file,
with its times if it has a column of them: start, reading and saving included. CF-NADE holds out its
own validation part, so nothing is chosen on test. Beside MPR, nDCG, time and size it measures the
tenth of the held-out predictions with the highest probabilities: what they promise and how often
they come true. Outcomes are kept in benchmarks/results/fit/, and are not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accuracy_sets import SETS
from versions import commit

from cfnade import ImplicitCFNADE
from cfnade.baselines import IMF
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.data.datasets import write_purchases
from compare import by_mpr_alone

OUTCOMES = Path(__file__).parent / "results" / "fit"

NAMES = (
    "ml-100k",
    "ml-1m",
    "lastfm-2k",
    "online-retail",
    "completejourney",
    "gowalla-checkins",
    "movietweetings-100k",
    "foursquare-nyc",
    "anime-5k",
    "online-retail-2009",
)
KINDS = ("als", "default", "thorough", "typed", "als busy", "default busy", "typed busy")
ALS = {"factors": 256, "iterations": 15, "alpha": 30.0, "regularization": 156.0}
N_HOGS = 2


def hog() -> None:
    """Keep a core busy."""
    while True:
        pass


@contextmanager
def hogs(n: int) -> Iterator[None]:
    """Processes that keep cores busy."""
    processes = [multiprocessing.Process(target=hog, daemon=True) for _ in range(n)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def place_of(name: str, kind: str) -> Path:
    """Where an outcome is kept."""
    return OUTCOMES / f"{name}.{kind.replace(' ', '-')}.json"


def run_typed(name: str, kind: str, folder: Path) -> None:
    """Time the command `cfnade fit` on the whole file and keep the outcome."""
    with tempfile.TemporaryDirectory() as scratch:
        path = next(f for p in ("", "-train") if (f := folder / f"{name}{p}.parquet").exists())
        if name == "completejourney":
            path = Path(scratch) / "purchases.parquet"
            write_purchases(path)
        model = Path(scratch) / "model"
        command = [sys.executable, "-m", "cfnade", "fit", str(path), "--out", str(model)]
        with hogs(N_HOGS if kind.endswith("busy") else 0):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds = time.perf_counter() - started
        has_times = ImplicitCFNADE.load(model).clock_ is not None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts = {
        "set": name,
        "kind": kind,
        "has_times": has_times,
        "commit": commit(),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
    }
    place_of(name, kind).write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{name}, {kind}: {seconds:.1f} s", flush=True)


def run(name: str, kind: str, folder: Path) -> None:
    """Fit once and keep the outcome."""
    data, test = SETS[name].read(folder)
    protocol = Protocol(data, test, ProtocolConfig(seed=0, split="random"))
    known = protocol.known
    model: Any
    if kind.startswith("als"):
        model = IMF(**ALS)
    else:
        by = protocol.facts["validation_by"]
        recipe = kind.removesuffix(" busy")
        model = ImplicitCFNADE(random_state=0, validation_by=by, recipe=recipe)
    with hogs(N_HOGS if kind.endswith("busy") else 0):
        started, cpu = time.perf_counter(), time.process_time()
        model.fit(known if kind.startswith("als") else protocol.known_data)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    facts: dict[str, Any] = {
        "set": name,
        "kind": kind,
        "n_users": data.n_users,
        "n_items": data.n_items,
        "n_pairs": int(known.nnz),
        "commit": commit(),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
    }
    if not kind.endswith("busy"):
        outcome = protocol.test(model)
        facts |= {"metrics": outcome.metrics, "intervals": outcome.intervals}
    if isinstance(model, ImplicitCFNADE):
        facts |= {"epochs": model.best_epoch_, "looks": model.n_looks_}
        with tempfile.TemporaryDirectory() as scratch:
            model.save(Path(scratch) / "model")
            files = [f for f in (Path(scratch) / "model").rglob("*") if f.is_file()]
            facts["megabytes"] = round(sum(f.stat().st_size for f in files) / 1e6, 1)
    else:
        facts["megabytes"] = round(4 * ALS["factors"] * sum(known.shape) / 1e6, 1)
    if kind == "default" and model.calibrator_ is not None:
        found = protocol.test_probabilities(model, model.calibrator_).calibrated
        promised, observed = found.points[-1]
        facts["top_tenth"] = {"promised": promised, "observed": observed, "ece": found.ece}
    place_of(name, kind).write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{name}, {kind}: {seconds:.1f} s, {facts.get('metrics', '')}", flush=True)


def fit_section(tuned: Mapping[str, Any]) -> str:
    """The section of docs/results.md.

    Args:
        tuned: Outcomes of `cfnade compare` by data set, for the tuned baselines.
    """
    found = {
        name: {k: json.loads(f.read_text()) for k in KINDS if (f := place_of(name, k)).exists()}
        for name in NAMES
    }
    found = {name: kinds for name, kinds in found.items() if {"als", "default"} <= set(kinds)}
    lines = [
        "## The default fit, next to ALS",
        "",
        "`make bench-fit DATA=...`: `ImplicitCFNADE().fit(...)` without any setting on the split "
        "of `cfnade compare --split random`, seed 0; MPR / nDCG@100 on test. *ALS* is `implicit` "
        "with 256 factors, 15 iterations, alpha 30. IMF and the best others are tuned for 60 "
        "seconds each (`cfnade compare`). 95 % bootstrap intervals over users are in "
        "benchmarks/results/fit. Figures of these sets were seen while the default was designed "
        "([decision 29](decisions/0029-a-fast-default.md)).",
        "",
        "| data (users x items) | default | thorough | ALS | tuned IMF | best other MPR "
        "| best other nDCG |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, kinds in found.items():
        first = kinds["default"]
        cells = [
            f"{name} ({first['n_users']:,} x {first['n_items']:,})",
            *(_figures(kinds.get(kind)) for kind in ("default", "thorough", "als")),
            *_baselines(tuned.get(name)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *by_mpr_alone({n: o for n, o in tuned.items() if n in found})]
    lines += [
        "Seconds of wall time on two threads (CPU seconds in brackets), and the size of the saved "
        "model. *Default* is the fit alone, on counts without times. *Typed* is the command "
        "`cfnade fit FILE --out MODEL`, from its start to the saved model, on the whole file; a "
        "mark (t) says that its events have times, so the fit also searches for recency and "
        "trains twice ([decision 41](decisions/0041-a-short-first-training.md)). *Limit* is five "
        "times ALS and 5 seconds to start. *Busy*: two other processes keep both cores busy.",
        "",
        "| data | ALS | default | typed | limit | thorough | default busy / idle "
        "| typed busy / idle | ALS MB | default MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, kinds in found.items():
        als, default, typed = kinds["als"], kinds["default"], kinds.get("typed")
        mark = " (t)" if typed is not None and typed["has_times"] else ""
        cells = [
            name,
            _seconds(als),
            _seconds(default),
            _seconds(typed) + mark,
            f"{5 * als['seconds'] + 5:.1f}",
            _seconds(kinds.get("thorough")),
            *(_slower(kinds, kind) for kind in ("default", "typed")),
            *(f"{each['megabytes']:.1f}" for each in (als, default)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "### Probabilities at the top",
        "",
        "The tenth of the held-out items with the highest probabilities: promised, and how "
        "often they came true ([decision 17](decisions/0017-calibration.md)). The correction was "
        "designed on ml-100k, lastfm-2k and online-retail. In gowalla-checkins the test part is a "
        "larger share of each user's items than `fit` holds out, so its items come true more "
        "often.",
        "",
        "| data | promised | came true | ratio |",
        "|---|---|---|---|",
    ]
    for name, kinds in found.items():
        top = kinds["default"]["top_tenth"]
        ratio = top["promised"] / top["observed"]
        lines.append(f"| {name} | {top['promised']:.3f} | {top['observed']:.3f} | {ratio:.2f} |")
    return "\n".join([*lines, ""])


def _slower(kinds: Mapping[str, Any], kind: str) -> str:
    """How many times as long a fit takes on a busy machine."""
    if kind not in kinds or f"{kind} busy" not in kinds:
        return ""
    return f"{kinds[f'{kind} busy']['seconds'] / kinds[kind]['seconds']:.1f}"


def _figures(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return ""
    return f"{outcome['metrics']['mpr']:.2f} / {outcome['metrics']['ndcg@100']:.4f}"


def _seconds(outcome: Mapping[str, Any] | None) -> str:
    return "" if outcome is None else f"{outcome['seconds']:.1f} ({outcome['cpu_seconds']:.1f})"


def _baselines(outcome: Mapping[str, Any] | None) -> list[str]:
    """Tuned IMF, and the best other by MPR and by nDCG; empty where there is no comparison."""
    if outcome is None:
        return ["", "", ""]
    baselines = [r for r in outcome["results"] if not r["model"].startswith("cfnade")]
    others = [r for r in baselines if r["model"] != "imf"]
    (imf,) = (r["metrics"] for r in outcome["results"] if r["model"] == "imf")
    if not others:
        return [f"{imf['mpr']:.2f} / {imf['ndcg@100']:.4f}", "", ""]
    low = min(others, key=lambda r: r["metrics"]["mpr"])
    high = max(others, key=lambda r: r["metrics"]["ndcg@100"])
    return [
        f"{imf['mpr']:.2f} / {imf['ndcg@100']:.4f}",
        f"{low['model']} {low['metrics']['mpr']:.2f}",
        f"{high['model']} {high['metrics']['ndcg@100']:.4f}",
    ]


def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--sets", default=" ".join(NAMES), help="names with spaces")
    parser.add_argument("--kinds", default=",".join(KINDS), help="names with commas")
    options = parser.parse_args()
    OUTCOMES.mkdir(parents=True, exist_ok=True)
    for name in options.sets.split():
        for kind in options.kinds.split(","):
            if not place_of(name, kind).exists():
                arguments = (name, kind, options.data)
                job = run_typed if kind.startswith("typed") else run
                process = multiprocessing.get_context("spawn").Process(target=job, args=arguments)
                process.start()
                process.join()
                if process.exitcode:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
