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
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfnade import ImplicitCFNADE, Interactions, read_interactions
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.data.datasets import write_purchases

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
    "anime-5k",
    "online-retail-2009",
)


def read_set(name: str, folder: Path) -> tuple[Interactions, Interactions | None]:
    """All counts, or the training part and the fixed test part."""
    if name == "completejourney":  # product types, of the embedded data
        with tempfile.TemporaryDirectory() as scratch:
            write_purchases(Path(scratch) / "purchases.parquet")
            return read_interactions(Path(scratch) / "purchases.parquet"), None
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


def fit_section(outcomes: Mapping[str, Mapping[str, Any]], tuned: Mapping[str, Any]) -> str:
    """The section of docs/results.md.

    Args:
        outcomes: Of these fits, seed 0, by data set.
        tuned: Outcomes of `cfnade compare` by data set, for the tuned baselines.
    """
    lines = [
        "## The default fit",
        "",
        "`python benchmarks/default_fit.py DATA`: `ImplicitCFNADE().fit(...)` without any setting, "
        "seed 0, on the split of `cfnade compare` without a flag; MPR / nDCG@100 on test, 95 % "
        "bootstrap intervals over users. IMF and the best other baseline are tuned with ten "
        "settings each (`cfnade compare`). Seconds on one thread of a shared machine.",
        "",
        "| data (users x items) | default fit | MPR interval | nDCG interval | tuned IMF "
        "| best other MPR | best other nDCG | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in outcomes.items():
        metrics, intervals = found["metrics"], found["intervals"]
        cells = [
            f"{name} ({found['n_users']:,} x {found['n_items']:,})",
            f"{metrics['mpr']:.2f} / {metrics['ndcg@100']:.4f}",
            "{:.2f}-{:.2f}".format(*intervals["mpr"]),
            "{:.4f}-{:.4f}".format(*intervals["ndcg@100"]),
            *_baselines(tuned.get(name)),
            f"{found['seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "### Probabilities at the top",
        "",
        "The tenth of the held-out items with the highest probabilities: promised, and how "
        "often they came true ([decision 17](decisions/0017-calibration.md)). The correction was "
        "designed on ml-100k, lastfm-2k and online-retail. In foursquare-nyc and gowalla-checkins "
        "the test part is a larger share of each user's items than `fit` holds out, so their "
        "items come true more often.",
        "",
        "| data | promised | came true | ratio |",
        "|---|---|---|---|",
    ]
    for name, found in outcomes.items():
        top = found["top_tenth"]
        ratio = top["promised"] / top["observed"]
        lines.append(f"| {name} | {top['promised']:.3f} | {top['observed']:.3f} | {ratio:.2f} |")
    return "\n".join([*lines, ""])


def _baselines(outcome: Mapping[str, Any] | None) -> list[str]:
    """Tuned IMF, and the best other by MPR and by nDCG; empty where there is no comparison."""
    if outcome is None:
        return ["", "", ""]
    others = [r for r in outcome["results"] if r["model"] not in ("cfnade", "imf")]
    (imf,) = (r["metrics"] for r in outcome["results"] if r["model"] == "imf")
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
