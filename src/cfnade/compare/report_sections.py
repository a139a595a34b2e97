"""The sections of a report: from results to headings, paragraphs, figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cfnade.compare.comparison import Comparison, Result
from cfnade.compare.html_parts import (
    Cell,
    Picture,
    definitions,
    paragraph,
    picture,
    section,
    table,
)
from cfnade.compare.plot_style import model_label
from cfnade.compare.plots import comparison_plot, reliability_plot, sweep_plot
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
    """A line of a history."""

    name: str
    count: float
    relative_rating: float


@dataclass(frozen=True)
class Recommended:
    """A line of a recommendation."""

    name: str
    probability: float
    """That it is among what was held out, in (0, 1)."""

    share: float
    """Of all users who have the item, in (0, 1]."""


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


def headline(comparison: Comparison) -> str:
    """Every model's MPR in a sentence, the best first."""
    best, *others = (f"{model_label(r.model)} {_percent(r)}" for r in comparison.results)
    told = f"Lowest test MPR: {best}"
    return f"{told}, then {', '.join(others)}." if others else f"{told}."


def run_section(comparison: Comparison, words: Words, facts: Mapping[str, str]) -> str:
    """What was run: the data, the protocol, and more facts."""
    protocol = comparison.protocol
    parts = {part: protocol.get(f"n_{part}_pairs") for part in ("train", "validation", "test")}
    candidates = {
        "unseen": f"the {words.items} that are not in the history",
        "all": f"all {words.items}",
    }
    ratings = {
        "train": "fitted on what the models may know",
        "all": "fitted on all pairs, those of the test included, as in the paper",
    }
    validation = {
        "pairs": "a random part of the pairs of each user, or of some",
        "events": "as if events were parted: items that are new to a user",
        "sessions": "as if a basket were: new items that belong together",
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


def histograms_section(histograms: Sequence[Picture], words: Words) -> str:
    """Figure 1."""
    if not histograms:
        return ""
    told = (
        f"Bars show how many {words.users} have each count. What a count says depends on the item. "
        "The line is the relative rating that a count becomes: the share of the item's own "
        f"{words.users} whose count is no larger."
    )
    figures = (picture(p, f"histogram{number}") for number, p in enumerate(histograms))
    return section(
        "Figure 1: one count, two meanings",
        paragraph(told),
        f'<div class="pair">{"".join(figures)}</div>',
    )


def comparison_section(comparison: Comparison) -> str:
    """Chart and tables of all models."""
    told = (
        "Each model's settings were chosen on the validation pairs alone. It was then fitted on "
        "train and validation together, and judged on the test pairs once."
    )
    note = (
        "In small print: 95 % bootstrap intervals over users. All models are judged on the same "
        "users, so one can be reliably better than another although their intervals overlap: "
        "only where ≈ stands before a figure, the difference to the best, in bold, is within the "
        "noise of who was tested. Each model was fitted once."
    )
    alt = f"Test MPR of each model with its interval. {headline(comparison)}"
    return section(
        "Comparison",
        paragraph(told),
        picture(Picture(comparison_plot(comparison), alt), "comparison", css="single"),
        _metrics_table(comparison.results),
        paragraph(note, "note"),
        _settings_table(comparison.results),
    )


def _metrics_table(results: Sequence[Result]) -> str:
    names = list(results[0].metrics)
    rows: list[list[Cell | str]] = [
        [
            model_label(result.model),
            *(_value(result, name) for name in names),
        ]
        for result in results
    ]
    caption = "Test pairs. MPR in percent, lower is better; of the others, higher is better."
    return table(caption, ["Model", *(METRIC_LABELS.get(name, name) for name in names)], rows)


def _settings_table(results: Sequence[Result]) -> str:
    rows: list[list[Cell | str]] = [
        [
            model_label(result.model),
            f"{result.n_settings}",
            f"{result.search_seconds:.1f}",
            f"{result.fit_seconds:.1f}",
            f"{result.validation_mpr:.2f}",
            Cell(_settings(result.settings), is_number=False),
        ]
        for result in results
    ]
    heads: list[Cell | str] = [
        *("Model", "Settings tried", "Search, s", "Last fit, s", "Validation MPR"),
        Cell("Chosen", is_number=False),
    ]
    return table("How the settings were chosen, on the validation pairs.", heads, rows)


def calibration_section(comparison: Comparison) -> str:
    """How the probabilities hold, of the first model that gives any."""
    judged = [(r.model, r.calibration) for r in comparison.results if r.calibration is not None]
    if not judged:
        return ""
    model, calibration = judged[0]
    told = (
        f"{model_label(model)} gives the probability that an item is among those held out. Of "
        f"{calibration.n_pairs:,} pairs of a tested user and an item not in the history, "
        f"{calibration.base_rate:.3%} are. The sigmoid ranks, but likes weigh more in training; "
        "the calibrated one is corrected on validation pairs, and keeps the order."
    )
    found = reliabilities(calibration)
    rows: list[list[Cell | str]] = [
        [
            label.capitalize(),
            f"{kind.mean_probability:.3%}",
            f"{kind.brier:.6f}",
            f"{kind.brier_skill:.4f}",
            f"{kind.ece:.6f}",
        ]
        for label, kind in found.items()
    ]
    heads: list[Cell | str] = ["Probability", "Mean", "Brier score", "Brier skill", "ECE"]
    alt = "Share that came true against the probability told."
    for label, kind in found.items():
        points = (f"{came_true:.2%} at {p:.2%}" for p, came_true in kind.points)
        alt += f" {label.capitalize()}: {', '.join(points)}."
    caption = "Every point stands for an equal number of held-out items; on the line, it holds."
    return section(
        "How far the probabilities hold",
        paragraph(told),
        picture(Picture(reliability_plot(calibration), alt), "calibration", caption, css="single"),
        table("Brier score and calibration error: lower is better.", heads, rows),
    )


def sweep_section(sweep: Sweep | None, comparison: Comparison) -> str:
    """Figure 2."""
    if sweep is None:
        return ""
    told = (
        "At each alpha the settings that depend on it were chosen on validation. The figure shows "
        "test MPR, as the paper's does; no setting was chosen by it."
    )
    caption = "Bands: 95 % bootstrap intervals over users."
    for result in comparison.results:
        if result.model == "popularity":
            caption += f" Recommending what is popular gives {_percent(result)}."
    alt = "Test MPR against alpha."
    for model in dict.fromkeys(point.model for point in sweep.points):
        mprs = (f"{p.mpr:.2f} at {p.alpha:g}" for p in sweep.points if p.model == model)
        alt += f" {model_label(model)}: {', '.join(mprs)}."
    shown = picture(Picture(sweep_plot(sweep), alt), "sweep", caption, css="single")
    return section("Figure 2: MPR against alpha", paragraph(told), shown)


def recommendations_section(suggestions: Sequence[Suggestions], words: Words) -> str:
    """Histories and what is recommended for them."""
    if not suggestions:
        return ""
    told = (
        "The model has no table of users: a history is all it needs, anybody's. The "
        "probability is that of being among the items held out, had a part of the history been; "
        f"it ranks as the score does. Beside it: how many of all {words.users} have the item."
    )
    lists = (_suggestions(shown, words) for shown in suggestions)
    return section("Recommendations", paragraph(told), f'<div class="pair">{"".join(lists)}</div>')


def _suggestions(shown: Suggestions, words: Words) -> str:
    history = table(
        "History",
        [words.items.capitalize(), words.counts.capitalize(), "Relative rating"],
        [[k.name, f"{k.count:g}", f"{k.relative_rating:.2f}"] for k in shown.history],
    )
    recommended = table(
        "Recommended",
        [words.items.capitalize(), "Probability", "Have it"],
        [[r.name, f"{r.probability:.1%}", f"{r.share:.0%}"] for r in shown.recommended],
    )
    opening = f"<h3>{escape(shown.title)}</h3>{paragraph(shown.note, 'note')}"
    return f'<article class="list">{opening}{history}{recommended}</article>'


def training_section(training: Picture | None) -> str:
    """How the loss and the validation MPR went."""
    if training is None:
        return ""
    caption = "The dashed line marks the epoch that was chosen."
    return section("Training of CF-NADE", picture(training, "training", caption, css="single"))


def how_to_read_section(comparison: Comparison, words: Words) -> str:
    """What MPR means."""
    best, n_ranked = comparison.results[0], _n_ranked(comparison)
    place = round(best.metrics["mpr"] / 100 * n_ranked)
    return section(
        "How to read MPR",
        paragraph(
            "Each model ranks the candidates of a user. The percentage rank of a held-out item is "
            "0 % at the top of that list and 100 % at its end. MPR, the mean percentage ranking "
            "(Eq. 15 of the paper), is the mean over the held-out pairs, weighted by their "
            "relative rating. Guessing gives 50 %."
        ),
        paragraph(
            f"With {n_ranked:,} {words.items} in the list, an MPR of {_percent(best)} says that "
            f"what people chose stands at about place {place:,} on average, their odd choices "
            "included. Recall and NDCG look at the top of the list instead."
        ),
    )


def _n_ranked(comparison: Comparison) -> int:
    """How many items a list has, in the mean over users."""
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


def _settings(settings: Mapping[str, Any]) -> str:
    shown = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in settings.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items()) or "none"
