"""What each part of the default is worth: python benchmarks/ablation.py DATA.

DATA is a folder with the Parquet files. Default fits with and without each part, on the training
part of the split of `cfnade compare` (seed 0), judged on its validation part. The test part is not
used, because parts are kept or deleted by these figures. A fit holds out its own validation part
inside the training part. Outcomes are kept in benchmarks/results/ablation/, and are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from default_fit import SETS, read_set

from cfnade import ImplicitCFNADE, RelativeRating, evaluate
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.metrics.bootstrap import bootstrap_means, percentile_interval
from cfnade.metrics.formulas import UserSums

OUTCOMES = Path(__file__).parent / "results" / "ablation"
METRICS = ("mpr", "ndcg@100")

PARTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no direct path": {"readout__direct": False},
    "random start": {"recipe__start": "random"},
    "no dropout": {"dropout": 0.0},
    "no weight average": {"recipe__weight_average": 0.0},
    "no popularity tilt": {"readout__popularity_tilt": 0.0},
}
"""Settings that leave a part out, by its name."""


def run(name: str, part: str, seed: int, protocol: Protocol) -> None:
    """Fit once and keep the outcome."""
    place = place_of(name, part, seed)
    if Path(f"{place}.json").exists():
        return
    validation = protocol.validation
    settings = {"validation_by": protocol.facts["validation_by"], **PARTS[part]}
    model = ImplicitCFNADE(random_state=seed).set_params(**settings)
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(validation.train)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    relevance = RelativeRating().fit(validation.train).transform(validation.held_out)
    outcome = evaluate(
        model, validation.train, validation.held_out, relevance, metrics=METRICS, n_bootstrap=0
    )
    sums = {f"{m}/{k}": v for m, s in outcome.per_user.items() for k, v in vars(s).items()}
    np.savez_compressed(f"{place}.npz", **sums)
    facts = {
        "set": name,
        "part": part,
        "seed": seed,
        "metrics": outcome.metrics,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "best_epoch": model.best_epoch_,
    }
    Path(f"{place}.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{name}, {part}, seed {seed}: {outcome.metrics}, {seconds:.0f} s", flush=True)


def place_of(name: str, part: str, seed: int) -> Path:
    """Where an outcome is kept, without its ending."""
    return OUTCOMES / f"{name}.{part.replace(' ', '-')}.{seed}"


def per_seed(name: str, part: str, metric: str, seeds: list[int]) -> list[UserSums]:
    """A metric by user, of each seed that was run."""
    places = [Path(f"{place_of(name, part, seed)}.npz") for seed in seeds]
    found = [np.load(place) for place in places if place.exists()]
    return [UserSums(each[f"{metric}/total"], each[f"{metric}/weight"]) for each in found]


def change(without: list[UserSums], whole: list[UserSums]) -> tuple[float, float, float]:
    """Change in percent if the part is left out, and its 95 % interval over users and seeds."""
    n_bootstrap, rng = 1000, np.random.default_rng(0)
    means = bootstrap_means([*without, *whole], n_bootstrap=n_bootstrap, rng=0)
    parts = []
    for columns in (means[:, : len(without)], means[:, len(without) :]):
        drawn = rng.integers(columns.shape[1], size=columns.shape)  # seeds, with replacement
        parts.append(np.take_along_axis(columns, drawn, axis=1).mean(axis=1))
    low, high = percentile_interval(100.0 * (parts[0] / parts[1] - 1.0))
    mean = np.mean([s.mean for s in without]) / np.mean([s.mean for s in whole])
    return 100.0 * (float(mean) - 1.0), low, high


def seconds_of(name: str, part: str, seeds: list[int]) -> float:
    """Mean CPU seconds of a fit."""
    files = [Path(f"{place_of(name, part, seed)}.json") for seed in seeds]
    return float(np.mean([json.loads(f.read_text())["cpu_seconds"] for f in files if f.exists()]))


def table(sets: list[str], seeds: list[int]) -> str:
    """Change of each metric without a part, and the time of the fit without it."""
    lines = [f"| without | metric | {' | '.join(sets)} | mean |", "|---" * (len(sets) + 3) + "|"]
    for part in PARTS:
        for metric in METRICS if part != "default" else ():
            cells, changes = [], []
            for name in sets:
                mine, whole = (per_seed(name, p, metric, seeds) for p in (part, "default"))
                if not mine or not whole:
                    cells.append("")
                    continue
                found, low, high = change(mine, whole)
                changes.append(found)
                cells.append(f"{found:+.1f} ({low:+.1f} to {high:+.1f})")
            mean = f"{np.mean(changes):+.1f}" if changes else ""
            lines.append(f"| {part} | {metric} | {' | '.join(cells)} | {mean} |")
        if part != "default":
            done = [n for n in sets if per_seed(n, part, "mpr", seeds)]
            times = {n: seconds_of(n, part, seeds) / seconds_of(n, "default", seeds) for n in done}
            cells = [f"x {times[n]:.1f}" if n in times else "" for n in sets]
            mean = f"x {np.mean(list(times.values())):.1f}" if times else ""
            lines.append(f"| {part} | CPU time | {' | '.join(cells)} | {mean} |")
    return "\n".join(lines)


def ablation_section() -> str:
    """The section of docs/results.md, of the data sets that were run."""
    files = [path.name.removesuffix(".json").split(".") for path in OUTCOMES.glob("*.json")]
    sets = [name for name in SETS if any(file[0] == name for file in files)]
    seeds = sorted({int(file[2]) for file in files})
    lines = [
        "## What each part is worth",
        "",
        "`python benchmarks/ablation.py DATA`: change of MPR and nDCG@100 in percent if a part of "
        "the default is left out (MPR up and nDCG down is worse), with a 95 % bootstrap interval "
        f"over users and seeds, mean of seeds {', '.join(map(str, seeds))}. Judged on the "
        "validation part of the split; the test part is not used. "
        "[Decision 26](decisions/0026-the-tree-is-the-pipeline.md) has the deleted parts.",
        "",
        table(sets, seeds),
        "",
    ]
    return "\n".join(lines) if sets else ""


def main() -> int:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--sets", default=" ".join(SETS), help="names with spaces")
    parser.add_argument("--parts", default=",".join(PARTS), help="names with commas")
    parser.add_argument("--seeds", default="0 1", help="with spaces")
    options = parser.parse_args()
    OUTCOMES.mkdir(parents=True, exist_ok=True)
    sets, seeds = options.sets.split(), [int(seed) for seed in options.seeds.split()]
    for name in sets:
        protocol = Protocol(*read_set(name, options.data), ProtocolConfig(seed=0))
        for seed in seeds:
            for part in options.parts.split(","):
                run(name, part, seed, protocol)
    print(table(sets, seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
