"""The default fit on real data, judged on test: python benchmarks/default_fit.py DATA.

DATA is a folder with the Parquet files. The split is that of `cfnade compare` (seed 0, no floors).
The fit holds out its own validation part, so nothing is chosen on test. Beside MPR and nDCG it
measures the tenth of the held-out predictions with the highest probabilities: what they promise and
how often they come true. Outcomes are kept in benchmarks/results/fit/, and are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from cfnade import ImplicitCFNADE, Interactions, read_interactions
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.data.datasets import complete_journey

OUTCOMES = Path(__file__).parent / "results" / "fit"

SETS = (
    "ml-100k",
    "movietweetings-100k",
    "online-retail",
    "completejourney",
    "lastfm-2k",
    "foursquare-nyc",
    "gowalla-checkins",
    "ml-1m",
)


def read_set(name: str, folder: Path) -> tuple[Interactions, Interactions | None]:
    """All counts, or the training part and the fixed test part."""
    if name == "completejourney":
        return complete_journey(), None  # product types, of the embedded data
    if (folder / f"{name}-test.parquet").exists():
        train, test = (read_interactions(folder / f"{name}-{p}.parquet") for p in ("train", "test"))
        return train, test
    return read_interactions(folder / f"{name}.parquet"), None


def run(name: str, seed: int, folder: Path) -> None:
    """Fit once and keep the outcome."""
    place = OUTCOMES / f"{name}.{seed}.json"
    if place.exists():
        return
    data, test = read_set(name, folder)
    protocol = Protocol(data, test, ProtocolConfig(seed=0))
    model = ImplicitCFNADE(random_state=seed, validation_by=protocol.facts["validation_by"])
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(protocol.known)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    outcome = protocol.test(model)
    facts = {
        "set": name,
        "seed": seed,
        "n_users": data.n_users,
        "n_items": data.n_items,
        "n_pairs": int(protocol.known.nnz),
        "metrics": outcome.metrics,
        "intervals": outcome.intervals,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "best_epoch": model.best_epoch_,
        "readout": vars(model.readout_),
    }
    if model.calibrator_ is not None:
        found = protocol.test_probabilities(model, model.calibrator_).calibrated
        promised, observed = found.points[-1]
        facts["top_tenth"] = {"promised": promised, "observed": observed, "ece": found.ece}
    place.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{name}, seed {seed}: {outcome.metrics}, {seconds:.0f} s", flush=True)


def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--sets", default=" ".join(SETS), help="names with spaces")
    parser.add_argument("--seeds", default="0", help="with spaces")
    options = parser.parse_args()
    OUTCOMES.mkdir(parents=True, exist_ok=True)
    for name in options.sets.split():
        for seed in options.seeds.split():
            run(name, int(seed), options.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
