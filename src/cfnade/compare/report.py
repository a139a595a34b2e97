"""The report of a comparison: one HTML file with no script, which makes no request to any host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from cfnade.compare.html_parts import Cell, Picture, definitions, paragraph, picture, section, table
from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.plots import comparison_plot, model_looks, reliability_plot, sweep_plot
from cfnade.compare.reliability import reliabilities
from cfnade.compare.sweep import Sweep

METRIC_LABELS = {
    "mpr": "MPR",
    "mpr_unweighted": "MPR, unweighted",
    "recall@20": "Recall@20",
    "recall@50": "Recall@50",
    "recall_full@20": "Recall@20, of all",
    "ndcg@20": "NDCG@20",
    "ndcg@100": "NDCG@100",
}


@dataclass(frozen=True)
class Known:
    """An item of a history."""

    name: str
    count: float
    relative_rating: float


@dataclass(frozen=True)
class Recommended:
    """A recommended item: the probability that it is held out, and the share of users with it."""

    name: str
    probability: float
    share: float


@dataclass(frozen=True)
class Suggestions:
    """What a model recommends for one history."""

    title: str
    note: str
    history: Sequence[Known]
    recommended: Sequence[Recommended]


@dataclass(frozen=True)
class Words:
    """What users, items and counts are called here."""

    users: str = "users"
    items: str = "items"
    counts: str = "counts"


@dataclass(frozen=True)
class Report:
    """The content of a report; empty parts are left out. Histograms and sweep are Figures 1, 2."""

    title: str
    lead: str
    """What was done with which data, in a sentence or two."""

    comparison: Comparison
    words: Words = field(default_factory=Words)
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further facts of the run: versions, seconds."""

    histograms: Sequence[Picture] = ()
    sweep: Sweep | None = None
    training: Picture | None = None
    """Loss and validation MPR of the model that recommends."""

    suggestions: Sequence[Suggestions] = ()


def write_report(path: str | Path, report: Report) -> None:
    """Write a report as one HTML file; this needs matplotlib."""
    Path(path).write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The page as text."""
    comparison, words = report.comparison, report.words
    sections = [
        _run(comparison, words, report.facts),
        _histograms(report.histograms, words),
        _comparison(comparison),
        _calibration(comparison),
        _sweep(report.sweep, comparison),
        _recommendations(report.suggestions, words),
        _training(report.training),
        _how_to_read(comparison, words),
    ]
    template = Template(files("cfnade.compare").joinpath("report.html").read_text("utf-8"))
    body = "\n".join(filter(None, sections))
    lead, best = paragraph(report.lead, "lead"), paragraph(headline(comparison), "headline")
    title = escape(report.title)
    return template.substitute(title=title, lead=lead, headline=best, sections=body)


def headline(comparison: Comparison) -> str:
    """Every model's MPR in a sentence, the best first."""
    best, *others = (f"{_label(r.model)} {_percent(r)}" for r in comparison.results)
    then = f", then {', '.join(others)}" if others else ""
    return f"Lowest test MPR: {best}{then}."


def _run(comparison: Comparison, words: Words, facts: Mapping[str, str]) -> str:
    protocol = comparison.protocol
    parts = {part: protocol.get(f"n_{part}_pairs") for part in ("train", "validation", "test")}
    candidates = {"unseen": f"{words.items} that are not in the history", "all": words.items}
    ratings = {
        "train": "fitted on what the models may know",
        "all": "fitted on all pairs, the test pairs included, as in the paper",
    }
    validation = {
        "pairs": "a random part of the pairs of some or all users",
        "events": "split by events: items that are new to a user",
        "sessions": "split by sessions: new items that belong together",
    }
    listed = {
        "Data": f"{comparison.dataset}: {comparison.n_users:,} {words.users}, "
        f"{comparison.n_items:,} {words.items}, {comparison.n_pairs:,} pairs of both",
        "Pairs": ", ".join(f"{part} {n:,}" for part, n in parts.items() if n is not None),
        "Ranked": candidates.get(protocol.get("candidates", ""), ""),
        "Validation": validation.get(protocol.get("validation_by", ""), ""),
        "Relative ratings": ratings.get(protocol.get("ratings_from", ""), ""),
        "Seed": str(protocol.get("seed", "")),
        **facts,
    }
    return section("What was run", definitions(listed))


def _histograms(histograms: Sequence[Picture], words: Words) -> str:
    if not histograms:
        return ""
    text = (
        f"Bars show how many {words.users} have each count. What a count means depends on the "
        "item. The line is the relative rating of a count: the share of the item's own "
        f"{words.users} whose count is no larger."
    )
    figures = (picture(p, f"histogram{number}") for number, p in enumerate(histograms))
    pair = f'<div class="pair">{"".join(figures)}</div>'
    return section("Figure 1: one count, two meanings", paragraph(text), pair)


def _comparison(comparison: Comparison) -> str:
    results = comparison.results
    text = (
        "Each model's settings were chosen on the validation pairs alone. It was then fitted on "
        "train and validation together, and judged on the test pairs once."
    )
    note = (
        "The best figure of each column is bold. ≈ marks figures whose difference to it is not "
        "significant (paired bootstrap over users: two models can differ significantly although "
        "their intervals overlap). Small print: 95 % bootstrap intervals over users. Each model "
        "was fitted once."
    )
    alt = f"Test MPR of each model with its interval. {headline(comparison)}"
    names = list(results[0].metrics)
    figures = table(
        "Test pairs. MPR in percent, lower is better; of the others, higher is better.",
        ["Model", *(METRIC_LABELS.get(name, name) for name in names)],
        [[_label(r.model), *(_value(r, name) for name in names)] for r in results],
    )
    heads = ("Model", "Settings tried", "Looks", "Search, s", "Final fit, s", "Validation MPR")
    settings = table(
        "How the settings were chosen. A look is one evaluation on the validation pairs.",
        [*heads, Cell("Chosen", is_number=False)],
        [
            [
                _label(r.model),
                f"{r.n_settings}",
                f"{r.n_looks}",
                f"{r.search_seconds:.1f}",
                f"{r.fit_seconds:.1f}",
                f"{r.validation_mpr:.2f}",
                Cell(_settings(r.settings), is_number=False),
            ]
            for r in results
        ],
    )
    shown = picture(Picture(comparison_plot(comparison), alt), "comparison", css="single")
    return section("Comparison", paragraph(text), shown, figures, paragraph(note, "note"), settings)


def _calibration(comparison: Comparison) -> str:
    """How well probabilities hold, of the first model that gives any."""
    judged = [(r.model, r.calibration) for r in comparison.results if r.calibration is not None]
    if not judged:
        return ""
    model, calibration = judged[0]
    text = (
        f"{_label(model)} gives the probability that an item is among those held out. Of "
        f"{calibration.n_pairs:,} pairs of a tested user and an item not in the history, "
        f"{calibration.base_rate:.3%} are. The sigmoid of the score is no probability, as likes "
        "weigh more in training; the calibrated value is fitted on validation pairs."
    )
    found = reliabilities(calibration)
    alt = "Observed share against the predicted probability."
    for label, kind in found.items():
        points = (f"{observed:.2%} at {p:.2%}" for p, observed in kind.points)
        alt += f" {label.capitalize()}: {', '.join(points)}."
    caption = "Every point stands for the same number of held-out items. The line is perfect."
    figures = table(
        "Brier score and expected calibration error (ECE): lower is better.",
        ["Value", "Mean", "Brier score", "Brier skill", "ECE"],
        [
            [
                label.capitalize(),
                f"{kind.mean_probability:.3%}",
                f"{kind.brier:.6f}",
                f"{kind.brier_skill:.4f}",
                f"{kind.ece:.6f}",
            ]
            for label, kind in found.items()
        ],
    )
    plot = Picture(reliability_plot(calibration), alt)
    shown = picture(plot, "calibration", caption, css="single")
    return section("How well the probabilities hold", paragraph(text), shown, figures)


def _sweep(sweep: Sweep | None, comparison: Comparison) -> str:
    if sweep is None:
        return ""
    text = (
        "At each alpha the settings that depend on it were chosen on validation. The figure shows "
        "test MPR, as the paper's does; no setting was chosen by it."
    )
    caption = "Bands: 95 % bootstrap intervals over users."
    for result in comparison.results:
        if result.model == "popularity":
            caption += f" Recommending popular items gives {_percent(result)}."
    alt = "Test MPR against alpha."
    for model in dict.fromkeys(point.model for point in sweep.points):
        mprs = (f"{p.mpr:.2f} at {p.alpha:g}" for p in sweep.points if p.model == model)
        alt += f" {_label(model)}: {', '.join(mprs)}."
    shown = picture(Picture(sweep_plot(sweep), alt), "sweep", caption, css="single")
    return section("Figure 2: MPR against alpha", paragraph(text), shown)


def _recommendations(suggestions: Sequence[Suggestions], words: Words) -> str:
    if not suggestions:
        return ""
    text = (
        "The model has no user parameters: it recommends for any history. The probability is that "
        "of being held out, had a part of the history been held out; it ranks as the score does. "
        f"The last column is the share of all {words.users} who have the item."
    )
    lists = (_suggestions(shown, words) for shown in suggestions)
    return section("Recommendations", paragraph(text), f'<div class="pair">{"".join(lists)}</div>')


def _suggestions(shown: Suggestions, words: Words) -> str:
    items = words.items.capitalize()
    history = table(
        "History",
        [items, words.counts.capitalize(), "Relative rating"],
        [[k.name, f"{k.count:g}", f"{k.relative_rating:.2f}"] for k in shown.history],
    )
    recommended = table(
        "Recommended",
        [items, "Probability", "Have it"],
        [[r.name, f"{r.probability:.1%}", f"{r.share:.0%}"] for r in shown.recommended],
    )
    opening = f"<h3>{escape(shown.title)}</h3>{paragraph(shown.note, 'note')}"
    return f'<article class="list">{opening}{history}{recommended}</article>'


def _training(training: Picture | None) -> str:
    if training is None:
        return ""
    caption = "The dashed line marks the chosen epoch."
    return section("Training of CF-NADE", picture(training, "training", caption, css="single"))


def _how_to_read(comparison: Comparison, words: Words) -> str:
    best, n_ranked = comparison.results[0], _n_ranked(comparison)
    place = round(best.metrics["mpr"] / 100 * n_ranked)
    text = (
        "MPR (Eq. 15 of the paper) is the mean over the held-out pairs, weighted by their relative "
        f"rating. With {n_ranked:,} {words.items} in the list, an MPR of {_percent(best)} means "
        f"that held-out {words.items} stand at about place {place:,} on average, unusual choices "
        "included. Recall and NDCG judge the top of the list."
    )
    return section("How to read MPR", paragraph(text))


def _n_ranked(comparison: Comparison) -> int:
    """Items in a ranked list, averaged over users."""
    if comparison.protocol.get("candidates") == "all":
        return comparison.n_items
    n_known = comparison.n_pairs
    if not comparison.protocol.get("is_fixed_split"):
        n_known -= comparison.protocol.get("n_test_pairs", 0)
    return round(comparison.n_items - n_known / max(comparison.n_users, 1))


def _value(result: Result, metric: str) -> Cell:
    digits = 2 if metric.startswith("mpr") else 3
    low_to_high = " to ".join(f"{x:.{digits}f}" for x in result.intervals.get(metric, ()))
    mark = "≈\N{NO-BREAK SPACE}" if result.is_level_with_best(metric) else ""
    figure = f"{mark}{result.metrics[metric]:.{digits}f}"
    return Cell(figure, low_to_high, is_strong=result.is_best(metric))


def _percent(result: Result) -> str:
    return f"{result.metrics['mpr']:.2f}\N{NO-BREAK SPACE}%"


def _label(model: str) -> str:
    return model_looks(model)[0]


def _settings(settings: Mapping[str, Any]) -> str:
    shown = (f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())
    return ", ".join(shown) or "none"
