"""`cfnade quickstart`: from a table to a model, recommendations for three people and a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.user_table import UserTable
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
    """Recommendations for typical users, with reasons."""
    answers, catalogue, rows = model.answers_, model.catalogue_, typical_rows(data)
    table = UserTable.of(answers, data)
    queries = []
    for row in rows:
        filters: dict[str, Any] = {}
        if table.owned is not None:
            left_out = catalogue.ids[table.owned[[row]].indices]
            filters = {"filter_already_liked_items": False, "filter_items": left_out}
        history = table.histories[[row]]
        queries.append(answers.query(history, N_RECOMMENDED, explain=True, **filters))
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
    steps = "\n".join(f"{command}  # {purpose}" for command, purpose in found.next_steps)
    blocks = {
        "title": escape(f"Recommendations from {name}"),
        "headline": escape(found.headline),
        "samples": "".join(map(_sample_table, found.samples)),
        "data": _facts(found.data),
        "fit": _facts(found.fit),
        "next": escape(steps),
    }
    template = files("cfnade.compare").joinpath("quickstart.html").read_text("utf-8")
    return Template(template).substitute(blocks)


def _sample_table(sample: Sample) -> str:
    value = "probability"
    if all(entry[value] is None for entry in sample.recommendations):
        value = "score"
    rows = "".join(
        f'<tr><th scope="row">{escape(entry["name"])}</th><td>{_figure(entry, value)}</td>'
        f"<td>{escape(', '.join(reason['name'] for reason in entry['because']))}</td></tr>"
        for entry in sample.recommendations
    )
    title = escape(sample.title)
    return (
        f'<h3>{title[:1].upper()}{title[1:]}</h3><div class="scroll"><table><thead><tr>'
        f'<th scope="col">Recommended</th><th scope="col">{value.capitalize()}</th>'
        f'<th scope="col">Because of</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _figure(entry: Mapping[str, Any], value: str) -> str:
    if entry[value] is None:
        return ""
    return f"{entry[value]:.3f}" if value == "score" else f"{entry[value]:.1%}"


def _facts(facts: Mapping[str, str]) -> str:
    return "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
