"""Output of the command line: tables on standard output, progress on standard error."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Column, Table

from cfnade.compare.comparison import JobProgress, OnProgress
from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.reliability import reliabilities
from cfnade.compare.report import Suggestions
from cfnade.compare.sweep import Sweep
from cfnade.errors import DataError, n_of
from cfnade.progress import progress_bar as progress_bar  # for the commands
from cfnade.progress import report as report_line

ROOM_FOR_ALL = 135
"""Width of the table of a comparison with all figures."""

WIDE = 160
"""Width if standard output is not a terminal, so that tables are not cut."""

LOG_EVERY = 10.0
"""Seconds between log lines of a search without a terminal, at least."""

_CONTROLS = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

out = Console(width=None if sys.stdout.isatty() else WIDE)
err = Console(stderr=True)


def visible(text: str) -> str:
    """Text with control characters as escapes: names come from data, and a terminal obeys them."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def escape(text: str) -> str:
    """Text from data for a table."""
    return escape_markup(visible(text))


def say(message: str) -> None:
    """Print a line on standard error."""
    err.print(visible(message), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def resumable(checkpoint: Path) -> Iterator[None]:
    """After Ctrl-C, say how to continue, if a checkpoint was kept."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint.exists():
            say(f"stopped; continue with the same command and --resume (see {checkpoint})")
        raise


@contextmanager
def job_progress() -> Iterator[OnProgress]:
    """A callback that shows the progress of a comparison or sweep."""
    words = {"search": "choosing settings", "fit": "final fit", "test": "testing"}
    stage, logged_at = "", 0.0
    with progress_bar() as bar:
        task = bar.add_task("reading", total=1)

        def on_progress(job: JobProgress) -> None:
            nonlocal stage, logged_at
            if job.result is not None:
                again = " (done by an earlier call; --fresh does it again)" if job.is_kept else ""
                report_line(bar, finding(job.result) + again, with_bar=True)
                return
            doing, now = f"{job.model}: {words[job.doing]}", time.monotonic()
            found = ""
            if job.best_mpr is not None:
                tried = n_of(job.n_trials, "setting")
                found = f", {tried} tried, best validation MPR {job.best_mpr:.2f} %"
            if doing != stage or now - logged_at >= LOG_EVERY:
                stage, logged_at = doing, now
                report_line(bar, doing + found, with_bar=False)
            total = max(job.n_most, 1)
            bar.update(task, description=doing + found, completed=job.n_done, total=total)

        yield on_progress


def finding(result: Result) -> str:
    """The main figures of a model in a line."""
    metrics = result.metrics
    line = (
        f"{result.model}: MPR {metrics['mpr']:.2f} %, nDCG@100 {metrics['ndcg@100']:.4f}; "
        f"{n_of(result.n_settings, 'setting')} in {result.search_seconds:.0f} s, "
        f"{n_of(result.n_looks, 'look')} at validation, final fit {result.fit_seconds:.0f} s"
    )
    return "; ".join([line, *map(str, result.at_edge)])


def comparison_table(comparison: Comparison) -> Table:
    """The figures with their intervals, best MPR first."""
    n_test_users = comparison.protocol["n_test_users"]
    rows = [_figures(result) for result in comparison.results]
    names = [name for name in rows[0] if out.width >= ROOM_FOR_ALL or name in _FIRST]
    table = Table(
        *(Column(n, justify="left" if n == "model" else "right", overflow="fold") for n in names),
        title=f"{escape(comparison.dataset)}: {n_of(comparison.n_users, 'user')}, "
        f"{n_of(comparison.n_items, 'item')}, {n_of(comparison.n_pairs, 'pair')}; "
        f"{comparison.protocol['n_test_pairs']:,} held out, of {n_of(n_test_users, 'user')}",
        caption=f"{_split_how(comparison.protocol)}MPR in percent, lower is better (50 = chance); "
        "recall and nDCG, higher is better. 95 % bootstrap interval over users. * is the best; ~ "
        "is not significantly worse (paired bootstrap over users). One fit each"
        f"{_chosen_how(comparison)}.",
        caption_justify="left",
    )
    for row in rows:
        table.add_row(*(row[name] for name in names))
    return table


def _split_how(protocol: dict[str, Any]) -> str:
    """How the test part was held out, and who and what is left out of it, unless at random."""
    split = protocol.get("split", "random")
    if protocol["is_fixed_split"] or split == "random":
        return ""
    what = "The test part is the last events of each user"
    if split == "time":
        what = f"The test part is all events from {protocol['split_time']} on"
    born = ""
    if protocol["n_born_pairs"]:
        users, items = (n_of(protocol[f"n_born_{who}s"], who) for who in ("user", "item"))
        pairs = n_of(protocol["n_born_pairs"], "pair")
        born = f", without {pairs} of {users} and {items} first seen after the split"
    return f"{what}{born}. "


def _chosen_how(comparison: Comparison) -> str:
    """What each model got for its search, and which settings ended at the end of their grid."""
    if all(result.n_settings == 1 for result in comparison.results):
        return ""
    seconds, most = comparison.budget["seconds"], comparison.budget["max_trials"]
    within = [] if seconds is None else [f"{seconds:g} s"]
    within += [f"at most {most} trials"] if isinstance(most, int) else []
    ends = [f". {r.model}: {edge}" for r in comparison.results for edge in r.at_edge]
    longer = "" if seconds is None else ", or as long as the slowest took"
    by = comparison.protocol.get("choose_by") or "MPR and nDCG@100 alike"
    return (
        f", settings chosen on validation in {' and '.join(within) or 'some trials'} a model"
        f"{longer}, for all models by {by}; a look is one evaluation there; (time) and (trials): "
        f"the limit that ended a search, else no step on the grid was better{''.join(ends)}"
    )


_STOPPED = {None: "", "time": " (time)", "trials": " (trials)"}
"""Behind the seconds of a search that a limit ended."""

_FIRST = ("model", "MPR % (95 %)", "ndcg@100", "trials", "looks", "search s")
"""Columns of a comparison in a narrow terminal."""


def _figures(result: Result) -> dict[str, str]:
    """A row of the table, by heading."""
    metrics, (low, high) = result.metrics, result.intervals["mpr"]
    shown = ("recall@20", "recall@50", "ndcg@20", "ndcg@100")
    return {
        "model": result.model,
        "MPR % (95 %)": _marked(result, "mpr", f"{metrics['mpr']:.2f} ({low:.2f}-{high:.2f})"),
        "unweighted": _marked(result, "mpr_unweighted", f"{metrics['mpr_unweighted']:.2f}"),
        **{name: _marked(result, name, f"{metrics[name]:.4f}") for name in shown},
        "trials": str(result.n_settings),
        "looks": str(result.n_looks),
        "search s": f"{result.search_seconds:.1f}{_STOPPED[result.stopped_by]}",
        "fit s": f"{result.fit_seconds:.1f}",
    }


def _marked(result: Result, metric: str, figure: str) -> str:
    """A figure, marked if it is the best or not significantly worse."""
    if result.is_best(metric):
        return f"[bold]* {figure}[/bold]"
    return f"~ {figure}" if result.is_level_with_best(metric) else figure


def calibration_table(comparison: Comparison) -> Table | None:
    """Calibration of the models' probabilities on the test part; None without any."""
    judged = [(r.model, r.calibration) for r in comparison.results if r.calibration is not None]
    if not judged:
        return None
    table = Table(
        "model",
        "probability",
        *map(_right, ("mean", "Brier score", "Brier skill", "ECE")),
        title=f"{escape(comparison.dataset)}: probabilities of held-out items, "
        f"{judged[0][1].base_rate:.3%} of the pairs",
        caption="calibrated: what recommend shows; the others are the network's own scores. Brier "
        "skill: 1 is perfect, 0 is as good as the base rate. ECE: mean distance from the observed "
        "rate, lower is better.",
        caption_justify="left",
    )
    for model, calibration in judged:
        for label, found in reliabilities(calibration).items():
            figures = (f"{found.brier:.6f}", f"{found.brier_skill:.4f}", f"{found.ece:.6f}")
            table.add_row(model, label, f"{found.mean_probability:.3%}", *figures)
    return table


def lists_table(comparison: Comparison) -> Table | None:
    """What the models' lists are like apart from accuracy; None if it was not measured."""
    judged = [(r.model, r.beyond_accuracy) for r in comparison.results if r.beyond_accuracy]
    if not judged:
        return None
    listed = f"the first {judged[0][1].n} items for each tested user"
    table = Table(
        "model",
        *map(_right, ("coverage %", "Gini", "novelty", "diversity")),
        title=f"{escape(comparison.dataset)}: {listed}",
        caption="coverage: share of all items in anyone's list. Gini: 0 if all items are listed "
        "equally often, near 1 if few are. novelty: mean self-information in bits. diversity: mean "
        "dissimilarity within a list, by co-occurrence in the training data.",
        caption_justify="left",
    )
    for model, found in judged:
        figures = (f"{100 * found.coverage:.1f}", f"{found.gini:.3f}", f"{found.novelty:.2f}")
        table.add_row(model, *figures, f"{found.diversity:.3f}")
    return table


def show_comparison(comparison: Comparison, json_file: str | None) -> None:
    """Print the tables of a comparison, or JSON."""
    report(comparison_table(comparison), comparison.to_json(), json_file)
    for table in (lists_table(comparison), calibration_table(comparison)):
        if table is not None and json_file != "-":
            out.print(table)


def sweep_table(sweep: Sweep) -> Table:
    """MPR of each model at each alpha."""
    models = list(dict.fromkeys(point.model for point in sweep.points))
    title = f"{escape(sweep.dataset)}: test MPR % against alpha"
    table = Table(*map(_right, ("alpha", *models)), title=title)
    for alpha in sweep.alphas:
        at = {point.model: point for point in sweep.points if point.alpha == alpha}
        cells = [
            f"{at[m].mpr:.2f} ({at[m].interval[0]:.2f}-{at[m].interval[1]:.2f})" for m in models
        ]
        table.add_row(f"{alpha:g}", *cells)
    return table


def recommendation_table(found: list[dict[str, Any]]) -> Table:
    """Recommended items, best first, with their reasons if known."""
    value = shown_value(found)
    table = Table(_right(""), "item", _right(value))
    if any("because" in entry for entry in found):
        table.add_column("because of")
    for place, entry in enumerate(found, start=1):
        reasons = [escape(", ".join(map(_reason, entry["because"])))] if "because" in entry else []
        table.add_row(str(place), escape(_label(entry)), _value(entry, value), *reasons)
    if value == "probability" and any(entry[value] is None for entry in found):
        table.caption = "Blank: items of the history have no probability."
        table.caption_justify = "left"
    return table


def shown_value(entries: list[dict[str, Any]]) -> str:
    """The number to show: `probability`, or `score` if the model has no calibrator."""
    return "probability" if any(e["probability"] is not None for e in entries) else "score"


def _value(entry: dict[str, Any], value: str, sign: str = "") -> str:
    """A probability in percent, empty for an item of the history; or a score."""
    if value == "score":
        return f"{entry['score']:{sign}.3f}"
    return "" if entry[value] is None else f"{entry[value]:{sign}.2%}"


def similar_table(item: dict[str, Any], found: list[dict[str, Any]]) -> Table:
    """Items similar to another, best first."""
    title = escape(f"like {_label(item)}")
    table = Table(_right(""), "item", _right("similarity"), title=title)
    for place, entry in enumerate(found, start=1):
        table.add_row(str(place), escape(_label(entry)), f"{entry['similarity']:.3f}")
    return table


def audience_table(items: list[dict[str, Any]]) -> Table:
    """Users for some items, highest score first."""
    value = shown_value([user for item in items for user in item["users"]])
    table = Table("item", _right(""), "user", _right(value))
    for item in items:
        for place, user in enumerate(item["users"], start=1):
            label = escape(_label(item)) if place == 1 else ""
            table.add_row(label, str(place), escape(str(user["user"])), _value(user, value))
    return table


def explanation_table(explained: dict[str, Any]) -> Table:
    """The effect of each entry of a history on an item, largest first."""
    value = shown_value([explained])
    table = Table(
        "entry of the history",
        _right(f"effect on {value}"),
        title=escape(f"{_label(explained)}: {value} {_value(explained, value)}"),
        caption=f"{_about_repeat(explained)}Effect: the value with the entry, minus the value "
        "without it.",
        caption_justify="left",
    )
    if any("shared" in effect for effect in explained["effects"]):
        table.add_column("in common")
    for effect in explained["effects"]:
        kind = "" if effect["liked"] else " (disliked)"
        shared = [escape(shared_values(effect["shared"]))] if "shared" in effect else []
        table.add_row(escape(_label(effect) + kind), _value(effect, value, "+"), *shared)
    return table


def _about_repeat(explained: dict[str, Any]) -> str:
    """What the score of an item of the history is made of; empty for other items."""
    if not explained["in_history"]:
        return ""
    repeat = explained["repeat"]
    if repeat is None:
        return (
            "The item is in the history, and this model does not score repeats: its score means "
            "nothing, and there is no probability.\n"
        )
    return (
        f"The item is in the history. Its score is that of a repeat: {repeat['from_count']:+.3f} "
        f"for its count of {repeat['count']:g}, {repeat['from_item']:+.3f} for the item, by how "
        "often people come back to it or go on to the event to predict (higher than for "
        f"{repeat['above']:.0%} of the items). There is no probability for a repeat.\n"
    )


def shared_values(shared: dict[str, list[str]]) -> str:
    """What two items have in common, in words: `genre=Drama, Crime; year=1994`."""
    return "; ".join(f"{column}={', '.join(values)}" for column, values in shared.items())


def _label(entry: dict[str, Any]) -> str:
    """An item's name and id, or the id if that is the name."""
    name, item = entry["name"], str(entry["item"])
    return item if name == item else f"{name} ({item})"


def _reason(effect: dict[str, Any]) -> str:
    """An entry of the history, and what it has in common with the recommended item."""
    shared = shared_values(effect.get("shared", {}))
    return f"{_label(effect)} [{shared}]" if shared else _label(effect)


def suggestions_table(suggestions: Suggestions) -> Table:
    """A history and its recommendations, side by side."""
    table = Table("history", "recommended", title=escape(suggestions.title))
    for known, one in zip_longest(suggestions.history, suggestions.recommended):
        table.add_row(
            "" if known is None else escape(f"{known.name} ({known.count:g})"),
            "" if one is None else escape(f"{one.name}  {one.probability:.1%}"),
        )
    return table


def facts_table(title: str, facts: dict[str, Any]) -> Table:
    """Named figures, one per row."""
    table = Table(title=escape(title), show_header=False)
    for name, value in facts.items():
        shown = _shown(value)
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {_shown(part)}" for key, part in value.items())
        table.add_row(name.replace("_", " "), escape(shown))
    return table


def _shown(value: Any) -> str:
    form = ",.4g" if isinstance(value, float) else "," if isinstance(value, int) else ""
    return format(value, form)


def _right(name: str) -> Column:
    return Column(name, justify="right")


def report(table: Table, value: dict[str, Any], json_file: str | None) -> None:
    """Print a table and write JSON to the file, if there is one; only JSON if the file is `-`.

    Raises:
        DataError: If the file cannot be written.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    text = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # JSON leaves these
    if json_file == "-":
        sys.stdout.write(text)
        return
    if json_file is not None:
        path = Path(json_file)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DataError(
                f"cannot write {json_file}: {error.strerror}; choose another place"
            ) from error
    out.print(table)
