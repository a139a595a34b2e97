"""`cfnade compare` with its usual models and CF-NADE's parts: python benchmarks/compare.py DATA.

DATA is a folder with the Parquet files. Beside the models only `--split random` is given, and
`--test` for sets with a test file. Outcomes are kept in benchmarks/results/compare/ and are not run
again; to run one again, delete it. With `--by-time` event logs are compared, and kept in
benchmarks/results/compare_time/; with `--kinds` logs of several kinds of events, with one to
predict, in benchmarks/results/compare_kinds/; with `--typed` four sets as a newcomer types it,
without any option, in benchmarks/results/compare_typed/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from versions import commit, named

from cfnade.compare.comparison import DEFAULT_MODELS
from cfnade.data.datasets import write_purchases

OUTCOMES = Path(__file__).parent / "results" / "compare"
TIMED_OUTCOMES = OUTCOMES.parent / "compare_time"
KINDS_OUTCOMES = OUTCOMES.parent / "compare_kinds"
TYPED_OUTCOMES = OUTCOMES.parent / "compare_typed"

SETS = (
    "ml-1m",
    "lastfm-2k",
    "online-retail",
    "completejourney",
    "gowalla-checkins",
    "ml-100k",
    "movietweetings-100k",
    "tafeng",
    "lastfm-lightgcn",
)


PARTS = ("cfnade-network", "cfnade-no-network")
"""CF-NADE's network alone, and all that it has beside: in every table."""

TIMED_SETS = (
    "tafeng-events",
    "online-retail-events",
    "ml-1m",
    "gowalla-checkins",
    "foursquare-nyc",
    "completejourney-events",
)
"""Event logs, which are split by one point in time; Ta-Feng by each user's next basket."""


TYPED_SETS = ("ml-1m", "lastfm-2k", "online-retail", "completejourney")
"""Sets for the command without options; two of them have times."""

KIND_SETS = {"retailrocket-small-events": "transaction", "beibei-events": "buy"}
"""Logs with kinds of events, and the kind to predict."""


def arguments_of(name: str, data: Path, scratch: Path) -> list[str]:
    """The arguments of `cfnade compare` for one data set; pairs are held out at random."""
    random = ["--split", "random", "--models", ",".join((*DEFAULT_MODELS, *PARTS))]
    if name == "completejourney":
        write_purchases(scratch / "purchases.parquet")  # product types, of the embedded data
        return [str(scratch / "purchases.parquet"), *random]
    if (data / f"{name}-test.parquet").exists():
        train, test = (str(data / f"{name}-{part}.parquet") for part in ("train", "test"))
        return [train, "--test", test, *random]
    return [str(data / f"{name}.parquet"), *random]


def timed_arguments_of(name: str, data: Path) -> list[str]:
    """The arguments for one event log, with CF-NADE without times as another model."""
    models = ["--models", ",".join((*DEFAULT_MODELS, *PARTS, "cfnade-undated"))]
    if name == "tafeng-events":  # the next basket is the test part
        train, test = (str(data / f"{name}-{part}.parquet") for part in ("train", "test"))
        return [train, "--test", test, *models]
    if (data / f"{name}-test.parquet").exists():  # of each user: put together and split anew
        return [str(data / f"{name}-t*.parquet"), *models]
    return [str(data / f"{name}.parquet"), *models]


def typed_arguments_of(name: str, data: Path, scratch: Path) -> list[str]:
    """The file alone."""
    return arguments_of(name, data, scratch)[:1]


def kinds_arguments_of(name: str, data: Path) -> list[str]:
    """The arguments for one log with kinds of events."""
    models = (*DEFAULT_MODELS, *PARTS, "collective", "cfnade-target")
    options = ["--models", ",".join(models), "--target-event", KIND_SETS[name]]
    if (data / f"{name}-test.parquet").exists():
        train, test = (str(data / f"{name}-{part}.parquet") for part in ("train", "test"))
        return [train, "--test", test, *options]
    return [str(data / f"{name}.parquet"), *options]


def table(outcomes: dict[str, dict[str, Any]]) -> str:
    """One table for all data sets, for docs/results.md."""
    found = {result["model"] for outcome in outcomes.values() for result in outcome["results"]}
    models = sorted(found, key=lambda model: (model == "cfnade", model))
    lines = [
        f"| data (users x items) | {' | '.join(models)} | minutes |",
        "|---" * (len(models) + 2) + "|",
    ]
    for name, outcome in outcomes.items():
        by_model = {result["model"]: result for result in outcome["results"]}
        cells = [_cell(by_model[model]) if model in by_model else "" for model in models]
        size = f"{outcome['n_users']:,} x {outcome['n_items']:,}"
        cells.append(f"{outcome['seconds'] / 60:.1f}" if "seconds" in outcome else "")
        lines.append(f"| {name} ({size}) | {' | '.join(cells)} |")
    lines += ["", *(_wins(outcomes, metric) for metric in ("mpr", "ndcg@100")), *_edges(outcomes)]
    lines += ["", *_searches(outcomes, models), ""]
    lines += [f"Commit: {named(outcome.get('commit') for outcome in outcomes.values())}."]
    return "\n".join([*lines, ""])


def _wins(outcomes: Mapping[str, dict[str, Any]], metric: str) -> str:
    """How often CF-NADE is ahead of all tuned baselines; neither its own parts nor popularity."""
    n_first = n_significant = 0
    for outcome in outcomes.values():
        by_model = {result["model"]: result for result in outcome["results"]}
        others = [
            result
            for name, result in by_model.items()
            if not name.startswith("cfnade") and result["n_settings"] > 1
        ]
        own = by_model["cfnade"]["metrics"][metric]
        sign = 1.0 if metric == "mpr" else -1.0
        n_first += all(sign * own < sign * other["metrics"][metric] for other in others)
        n_significant += _mark(by_model["cfnade"], metric) == "* " and all(
            not _mark(other, metric) for other in others
        )
    return (
        f"`cfnade` against tuned baselines, {metric}: first on {n_first} of {len(outcomes)}, on "
        f"{n_significant} significantly ahead of each.  "
    )


def _searches(outcomes: Mapping[str, dict[str, Any]], models: list[str]) -> list[str]:
    """What the search of each model got."""
    marks = {"time": " (time)", "trials": " (trials)"}
    lines = [
        "Searches: settings tried / looks at validation / seconds; in brackets what ended one that "
        "might have gone on.",
        "",
        f"| data | {' | '.join(models)} |",
        "|---" * (len(models) + 1) + "|",
    ]
    for name, outcome in outcomes.items():
        shown = {
            result["model"]: f"{result['n_settings']} / {result['n_looks']} / "
            f"{result['search_seconds']:.0f}{marks.get(result.get('stopped_by'), '')}"
            for result in outcome["results"]
            if "n_looks" in result
        }
        if shown:
            lines.append(f"| {name} | {' | '.join(shown.get(model, '') for model in models)} |")
    return lines if len(lines) > 4 else []


def by_mpr_alone(outcomes: Mapping[str, dict[str, Any]]) -> list[str]:
    """Says which outcomes are from before all models were chosen by one criterion."""
    names = [
        name
        for name, outcome in outcomes.items()
        if "choose_by" not in outcome.get("protocol", {"choose_by": None})
    ]
    if not names:
        return []
    return [
        f"On {', '.join(names)} baselines were chosen by validation MPR alone, and CF-NADE's "
        "readout by MPR / nDCG@100 ([decision 45](decisions/0045-one-criterion-for-all.md) came "
        "later): that favours CF-NADE on nDCG.",
        "",
    ]


def _edges(outcomes: Mapping[str, dict[str, Any]]) -> list[str]:
    """Chosen values at an end of their grid."""
    ends = [
        f"{name}: {result['model']} ({edge['setting']}={edge['value']:g})"
        for name, outcome in outcomes.items()
        for result in outcome["results"]
        for edge in result.get("at_edge", ())
    ]
    return [f"Chosen at an end of the grid: {'; '.join(ends)}.  "] if ends else []


def _cell(result: dict[str, Any]) -> str:
    mpr, ndcg = result["metrics"]["mpr"], result["metrics"]["ndcg@100"]
    return f"{_mark(result, 'mpr')}{mpr:.2f} / {_mark(result, 'ndcg@100')}{ndcg:.4f}"


def _mark(result: dict[str, Any], metric: str) -> str:
    low, high = result["to_best"][metric]
    if low == high == 0.0:
        return "* "
    return "~ " if low <= 0.0 <= high else ""


def main() -> int:
    """Run the missing ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--sets", default="", help="names with spaces")
    parser.add_argument("--by-time", action="store_true", help="event logs, split by time")
    parser.add_argument("--kinds", action="store_true", help="logs with kinds of events")
    parser.add_argument("--typed", action="store_true", help="the command without options")
    options = parser.parse_args()
    usual, outcomes = SETS, OUTCOMES
    if options.by_time:
        usual, outcomes = TIMED_SETS, TIMED_OUTCOMES
    elif options.kinds:
        usual, outcomes = tuple(KIND_SETS), KINDS_OUTCOMES
    elif options.typed:
        usual, outcomes = TYPED_SETS, TYPED_OUTCOMES
    for name in options.sets.split() or usual:
        outcome = outcomes / f"{name}.json"
        if outcome.exists():
            continue
        outcome.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="cfnade-") as scratch:
            if options.by_time:
                command = timed_arguments_of(name, options.data)
            elif options.kinds:
                command = kinds_arguments_of(name, options.data)
            elif options.typed:
                command = typed_arguments_of(name, options.data, Path(scratch))
            else:
                command = arguments_of(name, options.data, Path(scratch))
            print(f"cfnade compare {' '.join(command)}", flush=True)
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "cfnade", "compare", *command, "--json", str(outcome)]
            )
        if done.returncode:
            return done.returncode
        found = json.loads(outcome.read_text())
        found |= {"seconds": round(time.perf_counter() - started, 1), "commit": commit()}
        outcome.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
