"""The outcome of the accuracy benchmark, as one JSON and as a section of docs/results.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_sets import PUBLISHED_GOWALLA, AccuracySet
from nested import against
from versions import named

from cfnade.metrics.formulas import UserSums

REFERENCE = "cfnade"
START, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
NAMES = {
    "mpr": "MPR %",
    "ndcg@100": "nDCG@100",
    "recall@20": "Recall@20",
    "recall_full@20": "Recall@20, over all held out",
    "ndcg@20": "nDCG@20",
}
MARKS = {"win": "", "loss": " **(ahead)**", "within noise": " (=)"}


VERDICT = ("cfnade_less_this", "interval_of_it", "cfnade")
"""Fields of a method's comparison with CF-NADE."""


def collect(
    cells: Path, sets: Mapping[str, AccuracySet], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All cells that exist, with each method's comparison with CF-NADE.

    Args:
        cells: Folder of the cells, by data set.
        sets: Data sets.
        before: What was collected before. Its comparisons are kept where the figures of both
            methods have not changed, as the figures of single users are not stored.
    """
    found = {}
    for name, dataset in sets.items():
        folder = cells / name
        if not (folder / "split.json").exists():
            continue
        methods = {}
        for file in sorted(folder.glob("*.json")):
            if file.name != "split.json" and not file.name.endswith(".choice.json"):
                methods[file.stem] = _method(folder, file.stem, dataset)
        _keep_verdicts(methods, (before or {}).get("sets", {}).get(name, {}).get("methods", {}))
        split = json.loads((folder / "split.json").read_text())
        found[name] = {"split": split, "metrics": list(dataset.metrics), "methods": methods}
    return {"reference": REFERENCE, "sets": found}


def _keep_verdicts(methods: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Keep earlier comparisons where the figures of both methods have not changed."""

    def mean(found: Mapping[str, Any], name: str, metric: str) -> float | None:
        figure = found.get(name, {}).get("figures", {}).get(metric, {})
        return figure.get("mean")

    for name, method in methods.items():
        for metric, figure in method.get("figures", {}).items():
            is_as_before = all(
                mean(methods, each, metric) == mean(before, each, metric)
                for each in (name, REFERENCE)
            )
            if is_as_before and "cfnade" not in figure:
                earlier = before[name]["figures"][metric]
                figure |= {key: earlier[key] for key in VERDICT if key in earlier}


def _method(folder: Path, name: str, dataset: AccuracySet) -> dict[str, Any]:
    """One method on one data set: each metric under the settings chosen for it."""
    kept = json.loads((folder / f"{name}.json").read_text())
    if "failed" in kept:
        return {"failed": kept["failed"]}
    chosen = json.loads((folder / f"{name}.choice.json").read_text())
    first = next(iter(chosen.values()))
    figures = {}
    for metric in dataset.metrics:
        by = chosen_by(metric, kept["judged"])
        judged = kept["judged"][by]
        figures[metric] = {
            "mean": judged["metrics"][metric],
            "interval": judged["intervals"][metric],
            "by_seed": judged["by_seed"][metric],
            "chosen_by": by,
            "fit_seconds": judged["fit_seconds"],
            **_against_reference(folder, name, metric, by),
        }
    return {
        "figures": figures,
        "choices": chosen,
        "search_seconds": first["search_seconds"],
        "n_settings": first["n_settings"],
        "n_looks": first.get("n_looks", 0),
        "commit": kept.get("commit"),
        "all_metrics": next(iter(kept["judged"].values()))["metrics"],
    }


def chosen_by(metric: str, judged: Mapping[str, Any]) -> str:
    """Whose settings are shown for a metric: earlier cells were chosen by MPR and by nDCG."""
    if "mpr" not in judged:
        return next(iter(judged))
    lists = [by for by in judged if by != "mpr"]
    return lists[0] if lists and not metric.startswith("mpr") else "mpr"


def _against_reference(folder: Path, name: str, metric: str, by: str) -> dict[str, Any]:
    """Difference of CF-NADE to this method by user; empty if the users' figures are missing."""
    reference, users = folder / f"{REFERENCE}.npz", folder / f"{name}.npz"
    if name == REFERENCE or not reference.exists() or not users.exists():
        return {}
    judged = json.loads((folder / f"{REFERENCE}.json").read_text())["judged"]
    own = _sums(reference, chosen_by(metric, judged), metric)
    difference, interval, verdict = against(own, _sums(users, by, metric), metric)
    return {"cfnade_less_this": difference, "interval_of_it": interval, "cfnade": verdict}


def _sums(path: Path, by: str, metric: str) -> list[UserSums]:
    """The figures of single users, for each seed."""
    with np.load(path) as arrays:
        weight = arrays[f"{by}/{metric}/weight"]
        return [UserSums(total, weight) for total in arrays[f"{by}/{metric}/total"]]


def write_document(collected: dict[str, Any], root: Path, instead: Path | None = None) -> None:
    """Put the section between its marks in docs/results.md, or into a file of its own."""
    section = accuracy_section(collected)
    if instead is not None:
        instead.write_text(section)
        return
    path = root / "docs" / "results.md"
    text = path.read_text()
    if START in text:
        before, _, rest = text.partition(START)
        text = before + section.rstrip("\n") + rest.partition(END)[2]
    else:
        text = text.rstrip("\n") + "\n\n" + section
    path.write_text(text)


def accuracy_section(collected: dict[str, Any]) -> str:
    """The tables, from what was collected."""
    sets = collected["sets"]
    lines = [START, "", "## Accuracy: every method, tuned alike", "", *_protocol_lines(), ""]
    lines += _earlier_rule(sets)
    lines += _sizes(sets)
    for metric in ("mpr", "ndcg@100", "recall@20"):
        lines += _table(metric, {n: s for n, s in sets.items() if metric in s["metrics"]})
    lines += _seconds(sets)
    lines += _edges(sets)
    if "gowalla-lightgcn" in sets:
        lines += _gowalla(sets["gowalla-lightgcn"])
    return "\n".join([*lines, END, ""])


def _protocol_lines() -> list[str]:
    return [
        "`make bench-accuracy DATA=folder` (`benchmarks/accuracy.py`; outcomes in "
        "`benchmarks/results/accuracy.json`). The split of each data set is fixed: its own test "
        "part where it has one (without pairs that are in train), else 10 % of each user's items, "
        "seed 0. Each method searches its grid on validation as long as MPR / nDCG@100 falls (on "
        "Gowalla's published split: as nDCG@20 rises). The choice is written to a file, fitted on "
        "train and validation with up to three seeds (one for deterministic methods) and tested "
        "once, for all tables ([decision 45](decisions/0045-one-criterion-for-all.md)). Figures "
        "are means over seeds with 95 % bootstrap intervals over users and seeds. "
        "`cfnade-network` is CF-NADE without the direct path, `cfnade-no-network` the matrix "
        "factorisation and the direct path without a network; `cfnade-paper` has the paper's "
        "settings except for alpha and the learning rate, and tries four at most. The table of "
        "seconds has the settings that each method tried and its looks at validation.",
        "",
        "Marks compare with `cfnade` (paired bootstrap over users): none, `cfnade` is "
        "significantly better; (=), no significant difference; **(ahead)**, the other is "
        "significantly better. Blank: not run.",
    ]


def _earlier_rule(sets: Mapping[str, Any]) -> list[str]:
    """The cells that were chosen before all models had the same rule."""
    earlier = [
        name
        for name, found in sets.items()
        if any("mpr" in method.get("choices", {}) for method in found["methods"].values())
    ]
    if not earlier:
        return []
    return [
        f"Not rerun since, and chosen by the earlier rule: {', '.join(earlier)}. There CF-NADE was "
        "chosen by MPR, and each baseline by MPR for the MPR table and by validation nDCG for the "
        "others. Intervals there are over users alone. Those without a test part of their own were "
        "read with at least five items per user and five users per item (Last.fm: three), and "
        "with star ratings as counts. The benchmark now reads them as `cfnade compare` does.",
        "",
    ]


def _is_tuned_baseline(name: str, method: Mapping[str, Any]) -> bool:
    """Whether a win over it counts: not one of our own models, and with settings to choose."""
    return not name.startswith(REFERENCE) and method.get("n_settings", 0) > 1


def _sizes(sets: Mapping[str, Any]) -> list[str]:
    lines = [
        "| data | users | items | pairs | for validation | for the test | split | validation by "
        "| commit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in sets.items():
        split = found["split"]
        cells = [f"{split[f'n_{what}']:,}" for what in ("users", "items", "pairs")]
        cells += [f"{split[f'n_{part}_pairs']:,}" for part in ("validation", "test")]
        kind = "the files' own" if split["is_fixed_split"] else "random"
        by = split.get("validation_by", "pairs")
        commits = named(method.get("commit") for method in found["methods"].values())
        lines.append(f"| {name} | {' | '.join(cells)} | {kind} | {by} | {commits} |")
    return [*lines, ""]


def _is_method(name: str) -> bool:
    return not name.startswith(f"{REFERENCE}, ")  # not an ablation


def _methods(sets: Mapping[str, Any]) -> list[str]:
    """CF-NADE first, then the others as they come."""
    names = dict.fromkeys(m for found in sets.values() for m in found["methods"] if _is_method(m))
    ours = sorted(name for name in names if name.startswith(REFERENCE))
    return ours + [name for name in names if name not in ours]


def _table(metric: str, sets: Mapping[str, Any]) -> list[str]:
    if not sets:
        return []
    methods = _methods(sets)
    lower = " (lower is better)" if metric == "mpr" else ""
    lines = [f"### {NAMES[metric]}{lower}", "", "| method | " + " | ".join(sets) + " |"]
    lines.append("|---|" + "---|" * len(sets))
    for method in methods:
        cells = [_figure(found["methods"].get(method), metric) for found in sets.values()]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    counted = [
        found["methods"][method]["figures"][metric]["cfnade"]
        for found in sets.values()
        for method in methods
        if "cfnade" in found["methods"].get(method, {}).get("figures", {}).get(metric, {})
        and _is_tuned_baseline(method, found["methods"][method])
    ]
    counts = ", ".join(f"{counted.count(kind)} {kind}" for kind in MARKS)
    return [*lines, "", f"`cfnade` against tuned baselines: {counts}.", ""]


def _figure(method: dict[str, Any] | None, metric: str) -> str:
    if method is None:
        return ""
    if "failed" in method:
        return "not fitted"
    figure = method["figures"][metric]
    digits = 2 if metric == "mpr" else 4
    low, high = figure["interval"]
    mark = MARKS.get(figure.get("cfnade", "win"), "")
    return f"{figure['mean']:.{digits}f} ({low:.{digits}f}-{high:.{digits}f}){mark}"


def _seconds(sets: Mapping[str, Any]) -> list[str]:
    lines = [
        "### Seconds",
        "",
        "Search on validation + one final fit (of the MPR table), on one thread of a busy machine, "
        "so upper bounds; in brackets the number of settings tried, and of looks if known.",
        "",
        "| method | " + " | ".join(sets) + " |",
        "|---|" + "---|" * len(sets),
    ]
    for name in _methods(sets):
        cells = []
        for found in sets.values():
            method = found["methods"].get(name)
            if method is None or "failed" in method:
                cells.append("")
                continue
            figure = next(iter(method["figures"].values()))
            fit = np.mean(figure["fit_seconds"])
            looks = f", {method['n_looks']}" if method.get("n_looks") else ""
            tried = f"({method['n_settings']}{looks})"
            cells.append(f"{method['search_seconds']:.0f} + {fit:.1f} {tried}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _edges(sets: Mapping[str, Any]) -> list[str]:
    """Choices at an end of their grid, and failures: where the comparison may be unfair."""
    edges = [
        f"{name}: {method} ({', '.join(choice['at_edge'])})"
        for name, found in sets.items()
        for method, kept in found["methods"].items()
        if _is_method(method) and "choices" in kept
        for choice in [next(iter(kept["choices"].values()))]
        if choice.get("at_edge")
    ]
    failed = [
        f"{name}: {method}: {kept['failed']}"
        for name, found in sets.items()
        for method, kept in found["methods"].items()
        if "failed" in kept
    ]
    lines = []
    if edges:
        lines += [f"Chosen at an end of the grid: {'; '.join(edges)}.", ""]
    if failed:
        lines += [f"Not fitted: {'; '.join(failed)}.", ""]
    return lines


def _most_tried(found: Mapping[str, Any]) -> int:
    return max(method.get("n_settings", 0) for method in found["methods"].values())


def _gowalla(found: dict[str, Any]) -> list[str]:
    """Our figures beside the published ones, under the published protocol."""
    lines = [
        "### Gowalla, the split of NGCF and LightGCN",
        "",
        "Train and test as published; all items that are not in a user's train part are ranked, "
        "and recall is over all held-out items. Published figures are from their papers or "
        "RecZoo's table, or as their source says. Our settings are chosen on a part of train, by "
        "nDCG@20. CF-NADE's own settings are not searched here; the others try "
        f"{_most_tried(found)} settings at most, so they may be better than this.",
        "",
        "| method | Recall@20 | nDCG@20 | search s | fit s | source |",
        "|---|---|---|---|---|---|",
    ]
    for name in _methods({"": found}):
        method = found["methods"][name]
        if "failed" in method:
            continue
        figures = method["figures"]
        cells = [_figure(method, metric) for metric in ("recall_full@20", "ndcg@20")]
        fit = np.mean(figures["ndcg@20"]["fit_seconds"])
        lines.append(
            f"| {name} | {' | '.join(cells)} | {method['search_seconds']:.0f} | {fit:.0f} | here |"
        )
    for name, recall, ndcg, source in PUBLISHED_GOWALLA:
        lines.append(f"| {name} | {recall:.4f} | {ndcg:.4f} | | | {source} |")
    return [*lines, ""]
