"""The report of the demo: one HTML file with no script, which makes no request to any host.

It has the answer first, then recommendations, figures and the method. The words are in
`report.html`, the figures and numbers are filled in here; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from cfnade.compare.html_report import Row, card, facts_list, fill
from cfnade.compare.in_words import InWords, in_words
from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.plots import (
    comparison_plot,
    headline,
    model_looks,
    percent,
    reliability_plot,
    sweep_plot,
    to_svg,
)
from cfnade.compare.reliability import Calibration, reliabilities
from cfnade.compare.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_LISTED = 20
"""Length of the lists that the answer is about."""

LIST_LABELS = {
    "coverage": "Coverage, %",
    "gini": "Gini",
    "novelty": "Novelty, bits",
    "diversity": "Diversity",
}
METRIC_LABELS = {
    "mpr": "MPR",
    "mpr_unweighted": "MPR, unweighted",
    "recall@20": "Recall@20",
    "recall@50": "Recall@50",
    "recall_full@20": "Recall@20, of all",
    "ndcg@20": "NDCG@20",
    "ndcg@100": "NDCG@100",
}


ABOUT = {
    "imf": "matrix factorisation by ALS",
    "ials": "matrix factorisation by ALS",
    "ease": "regression of items on items",
    "popularity": "the same list for everybody",
    "cfnade": "this library",
}
"""What a model is, in a few words."""


@dataclass(frozen=True)
class Known:
    """An item of a history."""

    name: str
    count: float


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


def render(
    lead: str,
    facts: Mapping[str, str],
    histograms: Sequence[Figure],
    comparison: Comparison,
    sweep: Sweep,
    suggestions: Sequence[Suggestions],
    training: Figure,
) -> str:
    """The page as text.

    Args:
        lead: What was done with which data, in a sentence or two.
        facts: Further facts of the run: versions, seconds.
        histograms: Figure 1.
        comparison: Of popularity and of a model that gives probabilities, among others.
        sweep: Figure 2.
        suggestions: Of the final model.
        training: Loss and validation MPR of the final model.
    """
    results, protocol = comparison.results, comparison.protocol
    calibration = next(r.calibration for r in results if r.calibration is not None)
    n_known = comparison.n_pairs - protocol["n_test_pairs"]
    n_ranked = round(comparison.n_items - n_known / comparison.n_users)  # averaged over users
    answer = in_words(comparison, "purchases")
    words = {
        "answer": answer.sentence,
        "certainty": answer.certainty,
        "by_chance": f"{min(100.0, 100 * N_LISTED / max(n_ranked, 1)):.1g}",
        "lead": lead,
        "headline": headline(comparison),
        "dataset": comparison.dataset,
        "seed": str(protocol["seed"]),
        "base_rate": f"{calibration.base_rate:.3%}",
        "best_mpr": percent(results[0]),
        "popularity_mpr": percent(next(r for r in results if r.model == "popularity")),
        "n_users": f"{comparison.n_users:,}",
        "n_items": f"{comparison.n_items:,}",
        "n_pairs": f"{comparison.n_pairs:,}",
        "n_train": f"{protocol['n_train_pairs']:,}",
        "n_validation": f"{protocol['n_validation_pairs']:,}",
        "n_test": f"{protocol['n_test_pairs']:,}",
        "n_judged": f"{calibration.n_pairs:,}",
        "n_ranked": f"{n_ranked:,}",
        "place": f"{round(results[0].metrics['mpr'] / 100 * n_ranked):,}",
    }
    svgs = (to_svg(figure, f"histogram{number}") for number, figure in enumerate(histograms))
    blocks = {
        "found": _found(answer),
        "facts": facts_list(facts),
        "histograms": "".join(f"<figure>{svg}</figure>" for svg in svgs),
        "comparison": to_svg(comparison_plot(comparison), "comparison"),
        "metrics": _metrics_table(results),
        "lists": _lists_table(results),
        "settings": _settings_table(results),
        "chosen": _chosen(results),
        "calibration": to_svg(reliability_plot(calibration), "calibration"),
        "reliability": _reliability_table(calibration),
        "sweep": to_svg(sweep_plot(sweep), "sweep"),
        "suggestions": "".join(map(_suggestions, suggestions)),
        "training": to_svg(training, "training"),
    }
    return fill("report.html", blocks | {name: escape(text) for name, text in words.items()})


def _found(answer: InWords) -> str:
    """A bar for each model: what it finds of 100 things."""
    longest = max(result.metrics[answer.metric] for result in answer.results) or 1.0
    rows = ""
    for result in answer.results:
        share, (low, high) = result.metrics[answer.metric], result.intervals[answer.metric]
        about = ABOUT.get(result.model)
        rows += (
            f'<li class="{"first" if result.is_best(answer.metric) else ""}">'
            f"<span>{_label(result)}{f' <small>{about}</small>' if about else ''}</span>"
            f"<b>{100 * share:.1f} <small>{100 * low:.1f} to {100 * high:.1f}</small></b>"
            f'<i style="width:{100 * share / longest:.1f}%"></i></li>'
        )
    return f'<ol class="found">{rows}</ol>'


def _metrics_table(results: Sequence[Result]) -> str:
    return _table(
        "Test pairs. MPR in percent, lower is better; of the others, higher is better.",
        [
            {"Model": _label(r)} | {METRIC_LABELS.get(m, m): _value(r, m) for m in r.metrics}
            for r in results
        ],
    )


def _lists_table(results: Sequence[Result]) -> str:
    """What the lists are like apart from accuracy; empty if it was not measured."""
    judged = [(_label(r), r.beyond_accuracy) for r in results if r.beyond_accuracy is not None]
    if not judged:
        return ""
    rows = []
    for label, found in judged:
        figures = {**asdict(found), "coverage": 100 * found.coverage}
        shown = {text: f"{figures[name]:.3g}" for name, text in LIST_LABELS.items()}
        rows.append({"Model": label, **shown})
    return _table(
        f"The first {judged[0][1].n} items for each tested user, apart from accuracy. Coverage: "
        "share of all items in any list. Gini: 0 if all items are listed equally often. Novelty: "
        "mean self-information. Diversity: mean dissimilarity within a list, by co-occurrence.",
        rows,
    )


def _settings_table(results: Sequence[Result]) -> str:
    return _table(
        "How the settings were chosen, by the same metrics for all models. A look is one "
        "evaluation on the validation pairs. Ended by: the limit that ended a search; if none did, "
        "no step on the grid was better.",
        [
            {
                "Model": _label(r),
                "Settings tried": f"{r.n_settings}",
                "Looks": f"{r.n_looks}",
                "Search, s": f"{r.search_seconds:.1f}",
                "Ended by": r.stopped_by or "",
                "Final fit, s": f"{r.fit_seconds:.1f}",
                "Validation MPR": f"{r.validation_mpr:.2f}",
            }
            for r in results
        ],
    )


def _chosen(results: Sequence[Result]) -> str:
    texts = ((r, "; ".join([_settings(r.settings), *map(str, r.at_edge)])) for r in results)
    return "".join(f"<dt>{_label(r)}</dt><dd>{escape(text)}</dd>" for r, text in texts)


def _reliability_table(calibration: Calibration) -> str:
    return _table(
        "Brier score and expected calibration error (ECE): lower is better.",
        [
            {
                "Value": label.capitalize(),
                "Mean": f"{kind.mean_probability:.3%}",
                "Brier score": f"{kind.brier:.6f}",
                "Brier skill": f"{kind.brier_skill:.4f}",
                "ECE": f"{kind.ece:.6f}",
            }
            for label, kind in reliabilities(calibration).items()
        ],
    )


def _suggestions(shown: Suggestions) -> str:
    full = max((one.probability for one in shown.recommended), default=0.0) or 1.0
    rows = (
        Row(
            name=one.name,
            note=f"{one.share:.0%} have it".replace(" ", "\N{NO-BREAK SPACE}"),
            value=f"{one.probability:.1%}",
            bar=one.probability / full,
        )
        for one in shown.recommended
    )
    history = ((known.name, known.count) for known in shown.history)
    return card(shown.title, shown.note, history, rows)


def _table(caption: str, rows: Sequence[Mapping[str, str]]) -> str:
    """A table that scrolls sideways on narrow screens, under its caption; cells are HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in rows[0])
    body = ""
    for row in rows:
        first, *others = row.values()
        cells = "".join(f"<td>{cell}</td>" for cell in others)
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    return (
        f'<p class="caption">{caption}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _value(result: Result, metric: str) -> str:
    """A figure with its interval in small print; the best is bold."""
    digits = 2 if metric.startswith("mpr") else 3
    low, high = (f"{x:.{digits}f}" for x in result.intervals[metric])
    figure = f"{result.metrics[metric]:.{digits}f}"
    if result.is_best(metric):
        figure = f"<strong>{figure}</strong>"
    elif result.is_level_with_best(metric):
        figure = f"≈\N{NO-BREAK SPACE}{figure}"
    return f"{figure}<small>{low} to {high}</small>"


def _label(result: Result) -> str:
    return escape(model_looks(result.model)[0])


def _settings(settings: Mapping[str, Any]) -> str:
    shown = (f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())
    return ", ".join(shown) or "none"
