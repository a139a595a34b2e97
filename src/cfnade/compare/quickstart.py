"""`cfnade quickstart`: from a table to a model, recommendations for three people and a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.user_table import UserTable
from cfnade.compare.html_report import Row, card, facts_list, fill
from cfnade.data.interactions import Interactions
from cfnade.data.item_lookup import ItemLookup
from cfnade.errors import DataError, n_of
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.html_repr import facts_of_fit
from cfnade.progress import Callbacks

N_PEOPLE = 3
"""People to recommend for."""

N_HISTORY = 5
"""Most items of a history to show."""

N_RECOMMENDED = 5
"""Recommendations for each."""

_CHANCES = (
    "The percentage is the probability, calibrated on held-out items, that this is one of the "
    "user's next or missing items."
)
_SCORES = "The numbers are scores: they order the items, and mean nothing else."

_ONLY_NEW = (
    "Shown are items that are new to the user; `cfnade recommend` leaves out only those with a "
    "{target} event."
)

_CHANCE = 40.0  # MPR in percent from which a model is hardly better than chance


@dataclass(frozen=True)
class Sample:
    """What is recommended for somebody of the data."""

    user: Any
    n_items: int
    """In the history."""
    history: Sequence[Mapping[str, Any]]
    """The items with the largest counts: `item`, `name` and `count`, at most `N_HISTORY`."""
    recommendations: list[dict[str, Any]]
    """As docs/json.md describes them, with their reasons."""

    @property
    def title(self) -> str:
        """The user and the history in a line."""
        shown = ", ".join(f"{entry['name']} ({entry['count']:g})" for entry in self.history)
        n_more = self.n_items - len(self.history)
        more = f" and {n_more:,} more" if n_more else ""
        return f"user {self.user}, who has {shown}{more}"


@dataclass(frozen=True)
class Quickstart:
    """What a quick start found and wrote."""

    data: Mapping[str, str]
    """The data in words."""
    headline: str
    """How good the model is, in a sentence."""
    fit: Mapping[str, str]
    """The fit in words."""
    samples: Sequence[Sample]
    about_samples: str
    """What their numbers mean, in a sentence; with a target event, also which items are shown."""
    next_steps: Sequence[tuple[str, str]]
    """Commands, with what each is for."""
    model: Path
    report: Path

    def to_json(self) -> dict[str, Any]:
        """As docs/json.md describes it."""
        steps = [{"command": command, "purpose": purpose} for command, purpose in self.next_steps]
        places = {"model": str(self.model), "report": str(self.report)}
        return {**asdict(self), **places, "next_steps": steps}


def quick_start(
    data: Interactions,
    out: Path,
    *,
    source: str,
    options: str = "",
    items: Any = None,
    seed: int = 0,
    callbacks: Callbacks | None = None,
) -> Quickstart:
    """Fit a model, recommend for three people, and write `model` and `report.html`.

    Args:
        data: To learn from.
        out: Folder to write to.
        source: Where the data came from, for the commands to type next.
        options: How they were read, likewise, such as `--user-col who`.
        items: What is known about items, as for `ImplicitCFNADE.fit`.
        seed: Of the fit.
        callbacks: For progress.

    Raises:
        DataError: If the data cannot be used, or the report cannot be written.
        MissingExtraError: If torch is not installed.
    """
    with _writing(out):  # before the fit, which takes long
        out.mkdir(parents=True, exist_ok=True)
    model = ImplicitCFNADE(random_state=seed).fit(data, items=items, callbacks=callbacks)
    model.save(out / "model", data={"name": Path(source).name})
    samples = _samples(model, data)
    found = Quickstart(
        data=_in_words(data),
        headline=_headline(model),
        fit={k: v for k, v in (facts_of_fit(model) or {}).items() if v and k != "fitted on"},
        samples=samples,
        about_samples=_about(samples, data.target_event),
        next_steps=_next_steps(model, samples, out / "model", source, options),
        model=out / "model",
        report=out / "report.html",
    )
    with _writing(found.report):
        found.report.write_text(render_quickstart(found, Path(source).name), encoding="utf-8")
    return found


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what prevents writing into one line."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; choose another place with --out"
        ) from error


def typical_rows(data: Interactions) -> list[int]:
    """Users with few, a usual number and many items: the middle of each third.

    Those who have all items are taken only if there is nobody else.
    """
    n_items = np.diff(data.counts.indptr)
    order = np.argsort(n_items, kind="stable")
    order = order[n_items[order] > 0]
    has_some = n_items[order] < data.n_items
    order = order[has_some] if has_some.any() else order
    places = (2 * np.arange(N_PEOPLE) + 1) * len(order) // (2 * N_PEOPLE)
    rows: list[int] = order[np.unique(places)].tolist()
    return rows


def _samples(model: ImplicitCFNADE, data: Interactions) -> list[Sample]:
    """Recommendations for typical users, with reasons: items that they have not touched at all.

    With a target event others may rank first, but say little to somebody who meets the model.
    """
    answers, catalogue, rows = model.answers_, model.catalogue_, typical_rows(data)
    table = UserTable.of(answers, data)
    queries = []
    for row in rows:
        touched: list[Any] = []  # also by events that have no weight
        if data.log is not None:
            touched = data.item_ids[data.log.item[data.log.user == row]].tolist()
        history = table.histories[[row]]
        queries.append(answers.query(history, N_RECOMMENDED, explain=True, filter_items=touched))
    samples = []
    for row, answer in zip(rows, answers.recommend(queries), strict=True):
        own = data.counts[[row]]
        most = np.argsort(-own.data, kind="stable")[:N_HISTORY].tolist()
        history = [
            {**catalogue.entry(int(own.indices[place])), "count": float(own.data[place])}
            for place in most
        ]
        found = answer.to_json(catalogue.entry)["recommendations"]
        samples.append(Sample(data.user_ids[[row]].tolist()[0], own.nnz, history, found))
    return samples


def _about(samples: Sequence[Sample], target: str | None) -> str:
    """What the numbers mean, and which items are shown."""
    recommended = (entry for sample in samples for entry in sample.recommendations)
    has_chances = any(entry["probability"] is not None for entry in recommended)
    only_new = "" if target is None else f" {_ONLY_NEW.format(target=target)}"
    return (_CHANCES if has_chances else _SCORES) + only_new


def _in_words(data: Interactions) -> dict[str, str]:
    """The data in a few lines."""
    counts = data.counts
    n_events = "" if data.log is None else f", {n_of(int(data.log.n_events), 'event')}"
    spreads = {
        "count of a pair": counts.data,
        "items of a user": np.diff(counts.indptr),
        "users of an item": np.bincount(counts.indices, minlength=data.n_items),
    }
    pairs = n_of(data.n_pairs, "pair")
    words = {
        "read": f"{n_of(data.n_users, 'user')}, {n_of(data.n_items, 'item')}, {pairs}{n_events}",
        **{name: _spread(values) for name, values in spreads.items()},
    }
    if data.log is not None and data.log.lines():
        words["events"] = "; ".join(data.log.lines())
    most = np.argsort(-spreads["users of an item"], kind="stable")[:N_PEOPLE].tolist()
    words["in most histories"] = ", ".join(map(data.item_label, most))
    return words


def _spread(values: NDArray[Any]) -> str:
    low, median, high = np.percentile(values, [0, 50, 100]).tolist()
    return f"{low:,g} to {high:,g}, half of them at most {median:,g}"


def _headline(model: ImplicitCFNADE) -> str:
    """How good the model is, in words."""
    mpr = model.validation_mpr_
    if mpr is None:
        return (
            "Nothing could be held out, so it is not known how good the recommendations are: "
            "users need several items each."
        )
    warning = "" if mpr < _CHANCE else " These data say little about what people like."
    return (
        f"Items that were held out stood {mpr:.1f} % down the list on average; 0 % is its top, and "
        f"chance gives 50 %.{warning}"
    )


def _next_steps(
    model: ImplicitCFNADE, samples: Sequence[Sample], folder: Path, source: str, options: str
) -> list[tuple[str, str]]:
    """Commands to type next, and what each is for."""
    lookup = ItemLookup(model.catalogue_, model.scorer_.relative_rating.n_watchers)
    liked = samples[len(samples) // 2].history[:2]
    items = [shlex.quote(lookup.written(entry["item"])) for entry in liked]
    place, data = shlex.quote(str(folder)), shlex.quote(source)
    history = " ".join([f"{items[0]}=3", *items[1:]])
    return [
        (f"cfnade recommend {place} {history} --explain", "for anybody, by what they have"),
        (f"cfnade similar {place} {items[0]}", "items for the same people"),
        (f"cfnade compare {data}{options}", "is it better than ALS? needs cfnade[bench]"),
        (f"cfnade serve {place}", "HTTP, and a page to try it; needs cfnade[serve]"),
    ]


def render_quickstart(found: Quickstart, name: str) -> str:
    """The report as one HTML file without scripts."""
    steps = (
        f'<li><code>{escape(command)}</code><p class="note">{escape(purpose)}</p></li>'
        for command, purpose in found.next_steps
    )
    blocks = {
        "title": escape(f"Recommendations from {name}"),
        "headline": escape(found.headline),
        "values": escape(found.about_samples),
        "samples": "".join(map(_card, found.samples)),
        "data": facts_list(found.data),
        "fit": facts_list(found.fit),
        "next": "".join(steps),
    }
    return fill("quickstart.html", blocks)


def _card(sample: Sample) -> str:
    chances = [entry["probability"] for entry in sample.recommendations]
    full = max((chance for chance in chances if chance is not None), default=0.0) or 1.0
    rows = (
        Row(
            name=entry["name"],
            note=_because(entry),
            value=f"{entry['score']:.3f}" if chance is None else f"{chance:.1%}",
            bar=None if chance is None else chance / full,
        )
        for entry, chance in zip(sample.recommendations, chances, strict=True)
    )
    history = ((entry["name"], entry["count"]) for entry in sample.history)
    n_more = sample.n_items - len(sample.history)
    more = f", and {n_more:,} more" if n_more else ""
    return card(f"User {sample.user}", f"Has these items{more}; with their counts.", history, rows)


def _because(entry: Mapping[str, Any]) -> str:
    reasons = ", ".join(reason["name"] for reason in entry["because"])
    return f"because of {reasons}" if reasons else ""
