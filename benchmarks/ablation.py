"""What each part of the default is worth: python benchmarks/ablation.py DATA.

With `--of settings`: what other values of two settings change.

DATA is a folder with the Parquet files. Default fits with and without each part, on the training
part of the split of `cfnade compare` (seed 0), judged on its validation part. The test part is not
used, because parts are kept or deleted by these figures. A fit holds out its own validation part
inside the training part. Outcomes are kept in benchmarks/results/ablation/ (not in git), and are
not run again; benchmarks/results/ablation.json has the table.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_sets import SETS
from default_fit import NAMES
from nested import resampled_means

from cfnade import ImplicitCFNADE, RelativeRating, evaluate
from cfnade.baselines import IMF
from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.registry import imf_regularization
from cfnade.metrics.bootstrap import percentile_interval
from cfnade.metrics.formulas import UserSums

OUTCOMES = Path(__file__).parent / "results" / "ablation"
SUMMARY = OUTCOMES.with_suffix(".json")
SUMMARY_OF_SETTINGS = SUMMARY.with_name("settings.json")
METRICS = ("mpr", "ndcg@100")

PARTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no direct path": {"readout__direct": False},
    "random start": {"recipe__start": "random"},
    "float32 products": {"recipe__precision": "float32"},
    "a search (thorough)": {"recipe": "thorough"},
    "four networks": {},
    "factors beside": {},
}
"""Settings that leave a part out, by its name; the last three add what the default leaves out."""

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    **{f"n_hidden {n}": {"n_hidden": n} for n in (64, 128, 512)},
    **{f"alpha {rate}": {"alpha": float(rate)} for rate in (3, 10, 100, 300)},
}
"""Other values of settings, by name: docs/guides/settings-that-matter.md has the outcome."""

N_NETWORKS = 4
FACTOR_GAINS = (0.0, 0.5, 1.0, 2.0, 4.0)


class Sum:
    """Scores of several models, added up with weights."""

    def __init__(self, scorers: list[Any], weights: list[float]) -> None:
        self.scorers, self.weights = scorers, weights

    def scores(self, histories: Any) -> Any:
        """The weighted sum, (n_users, n_items)."""
        pairs = zip(self.scorers, self.weights, strict=True)
        return sum(weight * scorer.scores(histories) for scorer, weight in pairs if weight)


def fit_part(part: str, seed: int, protocol: Protocol) -> list[Any]:
    """Fit the default without a part, or with one more; several scorers are to be chosen from."""
    validation = protocol.validation

    def fit(seed: int) -> ImplicitCFNADE:
        settings = {"validation_by": protocol.facts["validation_by"], **{**PARTS, **SETTINGS}[part]}
        return ImplicitCFNADE(random_state=seed).set_params(**settings).fit(validation.train)

    model = fit(seed)
    if part == "four networks":
        others = [fit(seed + 100 * n) for n in range(1, N_NETWORKS)]
        return [Sum([model, *others], [1 / N_NETWORKS] * N_NETWORKS)]
    if part == "factors beside":
        factors = model.plan(validation.train).factors
        assert factors is not None
        alpha = factors.alpha
        settings = imf_regularization({"alpha": alpha, "strength": 28.0}, validation.train)
        imf = IMF(factors=256, iterations=15, **settings).fit(validation.train)
        some = validation.train[:: max(1, validation.train.shape[0] // 100)]
        spread = float(np.std(model.scores(some)) / max(np.std(imf.scores(some)), 1e-9))
        return [Sum([model, imf], [1.0, gain * spread]) for gain in FACTOR_GAINS]
    return [model]


def run(name: str, part: str, seed: int, protocol: Protocol) -> None:
    """Fit once and keep the outcome.

    Of several scorers the best on validation counts: that is more than the part could gain if it
    were chosen before.
    """
    place = place_of(name, part, seed)
    if Path(f"{place}.json").exists():
        return
    validation = protocol.validation
    started, cpu = time.perf_counter(), time.process_time()
    scorers = fit_part(part, seed, protocol)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    relevance = RelativeRating().fit(validation.train).transform(validation.held_out)
    outcomes = [
        evaluate(
            scorer, validation.train, validation.held_out, relevance, metrics=METRICS, n_bootstrap=0
        )
        for scorer in scorers
    ]
    outcome = min(outcomes, key=lambda each: each.metrics["mpr"] / each.metrics["ndcg@100"])
    sums = {f"{m}/{k}": v for m, s in outcome.per_user.items() for k, v in vars(s).items()}
    np.savez_compressed(f"{place}.npz", **sums)
    facts = {
        "set": name,
        "part": part,
        "seed": seed,
        "metrics": outcome.metrics,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
    }
    Path(f"{place}.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{name}, {part}, seed {seed}: {outcome.metrics}, {seconds:.0f} s", flush=True)


def place_of(name: str, part: str, seed: int) -> Path:
    """Where an outcome is kept, without its ending."""
    return OUTCOMES / f"{name}.{re.sub('[^a-z0-9]+', '-', part).strip('-')}.{seed}"


def per_seed(name: str, part: str, metric: str, seeds: list[int]) -> list[UserSums]:
    """A metric by user, of each seed that was run."""
    places = [Path(f"{place_of(name, part, seed)}.npz") for seed in seeds]
    found = [np.load(place) for place in places if place.exists()]
    return [UserSums(each[f"{metric}/total"], each[f"{metric}/weight"]) for each in found]


def change(without: list[UserSums], whole: list[UserSums]) -> tuple[float, float, float]:
    """Change in percent if the part is left out, and its 95 % interval over users and seeds."""
    means = resampled_means([without, whole], n_bootstrap=1000)
    low, high = percentile_interval(100.0 * (means[:, 0] / means[:, 1] - 1.0))
    mean = np.mean([s.mean for s in without]) / np.mean([s.mean for s in whole])
    return 100.0 * (float(mean) - 1.0), low, high


def seconds_of(name: str, part: str, seeds: list[int]) -> float:
    """Mean CPU seconds of a fit."""
    files = [Path(f"{place_of(name, part, seed)}.json") for seed in seeds]
    return float(np.mean([json.loads(f.read_text())["cpu_seconds"] for f in files if f.exists()]))


def changes(sets: list[str], seeds: list[int], names: list[str]) -> dict[str, Any]:
    """By part and data set: change of each metric with its interval, and the ratio of CPU time."""
    found: dict[str, Any] = {}
    for part in [name for name in names if name != "default"]:
        for name in sets:
            mine, whole = (
                {metric: per_seed(name, p, metric, seeds) for metric in METRICS}
                for p in (part, "default")
            )
            if mine["mpr"] and whole["mpr"]:
                cell = {m: [round(v, 2) for v in change(mine[m], whole[m])] for m in METRICS}
                ratio = seconds_of(name, part, seeds) / seconds_of(name, "default", seeds)
                found.setdefault(part, {})[name] = {**cell, "cpu": round(ratio, 2)}
    return found


def table(sets: list[str], parts: Mapping[str, Any]) -> str:
    """MPR / nDCG@100 by part and data set, bold if significant, the means, and the CPU time."""
    lines = [f"| change | {' | '.join(sets)} | mean | CPU time |", "|---" * (len(sets) + 3) + "|"]
    for part, by_set in parts.items():
        cells = [_cell(by_set[name]) if name in by_set else "" for name in sets]
        means = [np.mean([by_set[name][m][0] for name in by_set]) for m in METRICS]
        cpu = np.mean([by_set[name]["cpu"] for name in by_set])
        mean = " / ".join(f"{value:+.1f}" for value in means)
        lines.append(f"| {part} | {' | '.join(cells)} | {mean} | x {cpu:.1f} |")
    return "\n".join(lines)


def _cell(found: Mapping[str, Any]) -> str:
    figures = []
    for metric in METRICS:
        value, low, high = found[metric]
        figures.append(f"{value:+.1f}" if low <= 0.0 <= high else f"**{value:+.1f}**")
    return " / ".join(figures)


def ablation_section() -> str:
    """The section of docs/results.md: the present code, then the code with the deleted parts."""
    lines = [
        "## What each part is worth",
        "",
        "`make bench-ablation DATA=...`: change of MPR / nDCG@100 in percent if a part of the "
        "default fit is left out, or if one is added (a search, four networks, factors beside). "
        "MPR up and nDCG down is worse. Mean of two seeds, judged on the validation part of "
        "`compare`'s split; the test part is not used. Bold: the 95 % bootstrap interval over "
        "users and seeds does not contain 0 (the intervals are in benchmarks/results). *Four "
        "networks* is the mean score of four fits. *Factors beside* adds the scores of an exact "
        "matrix factorisation, with the best of five strengths chosen on the judged pairs "
        "themselves, so it is an upper bound.",
        "",
    ]
    earlier = SUMMARY.with_name("ablation-earlier.json")
    remarks = {
        SUMMARY: "The present default with the popularity tilt, commit {}. The tilt was deleted "
        "by this table: it is not worth 1 %, so the second row is the present default.",
        earlier: "The default when the other deleted parts were still there, commit {}. *A "
        "search* was `thorough` with five trainings and one alpha. Dropout and the weight average "
        "are not worth 1 % and are gone. Four networks would be worth it, but cost four times as "
        "much at every answer. So would exact factors beside the network, but they are no sum over "
        "the history ([decision 31](decisions/0031-the-start-as-als.md)).",
    }
    for file, remark in remarks.items():
        if file.exists():
            kept = json.loads(file.read_text())
            lines += [remark.format(kept["commit"]), "", table(kept["sets"], kept["parts"]), ""]
    return "\n".join(lines)


def main() -> int:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--sets", default=" ".join(NAMES), help="names with spaces")
    parser.add_argument("--of", default="parts", choices=("parts", "settings"))
    parser.add_argument("--parts", help="some of them, names with commas")
    parser.add_argument("--seeds", default="0 1", help="with spaces")
    options = parser.parse_args()
    OUTCOMES.mkdir(parents=True, exist_ok=True)
    sets, seeds = options.sets.split(), [int(seed) for seed in options.seeds.split()]
    known, summary = (PARTS, SUMMARY) if options.of == "parts" else (SETTINGS, SUMMARY_OF_SETTINGS)
    names = list(known) if options.parts is None else options.parts.split(",")
    for name in sets:
        protocol = Protocol(*SETS[name].read(options.data), ProtocolConfig(seed=0, split="random"))
        for seed in seeds:
            for part in names:
                run(name, part, seed, protocol)
    parts = changes(sets, seeds, list(known))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    kept = {"commit": commit, "sets": sets, "seeds": seeds, "parts": parts}
    summary.write_text(json.dumps(kept, indent=1) + "\n")
    print(table(sets, parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
