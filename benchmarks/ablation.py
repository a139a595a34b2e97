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
from cfnade.metrics.bootstrap import paired_intervals
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
    place = OUTCOMES / f"{name}.{part.replace(' ', '-')}.{seed}"
    if place.with_suffix(".json").exists():
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
    np.savez_compressed(place.with_suffix(".npz"), **sums)
    facts = {
        "set": name,
        "part": part,
        "seed": seed,
        "metrics": outcome.metrics,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "best_epoch": model.best_epoch_,
    }
    place.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{name}, {part}, seed {seed}: {outcome.metrics}, {seconds:.0f} s", flush=True)


def per_user(name: str, part: str, metric: str, seeds: list[int]) -> UserSums | None:
    """A metric's parts, user by user, averaged over seeds; None if a run is missing."""
    places = [OUTCOMES / f"{name}.{part.replace(' ', '-')}.{seed}.npz" for seed in seeds]
    if not all(place.exists() for place in places):
        return None
    found = [np.load(place) for place in places]
    total = np.mean([each[f"{metric}/total"] for each in found], axis=0)
    return UserSums(total, found[0][f"{metric}/weight"])


def table(sets: list[str], seeds: list[int]) -> str:
    """Change of each metric without the part, in percent, with a 95 % interval over users."""
    lines = [f"| without | metric | {' | '.join(sets)} | mean |", "|---" * (len(sets) + 3) + "|"]
    for part in PARTS:
        for metric in METRICS if part != "default" else ():
            cells, changes = [], []
            for name in sets:
                mine, whole = (per_user(name, p, metric, seeds) for p in (part, "default"))
                if mine is None or whole is None:
                    cells.append("")
                    continue
                ((low, high),) = paired_intervals([mine], whole, n_bootstrap=1000, rng=0)
                change, unit = 100 * (mine.mean / whole.mean - 1), 100 / whole.mean
                changes.append(change)
                cells.append(f"{change:+.1f} ({unit * low:+.1f} to {unit * high:+.1f})")
            mean = f"{np.mean(changes):+.1f}" if changes else ""
            lines.append(f"| {part} | {metric} | {' | '.join(cells)} | {mean} |")
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
        "the default is left out (MPR up and nDCG down is worse), with a 95 % paired bootstrap "
        f"interval over users, mean of seeds {', '.join(map(str, seeds))}. Judged on the "
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
