"""The outcome of a comparison in words: how much of what is held out each model finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.plots import model_looks

FOUND = ("recall_full@20", "recall@20")
"""Shares of the held-out items in a list of 20, the best first: of all of a user's items, or of at
most 20 of them."""


@dataclass(frozen=True)
class InWords:
    """The answer that a comparison gives."""

    metric: str
    results: list[Result]
    """The best first."""

    sentence: str
    """What each model finds, as in "CF-NADE finds 24 of 100"."""

    certainty: str
    """Whether chance may decide who is first."""


def in_words(comparison: Comparison, things: str = "items") -> InWords:
    """Put a comparison into words that need no knowledge of metrics.

    Args:
        comparison: Its results have one of `FOUND`.
        things: What is held out, such as "purchases".
    """
    measured = comparison.results[0].metrics
    metric = next(name for name in FOUND if name in measured)
    results = sorted(comparison.results, key=lambda result: -result.metrics[metric])
    labels = [model_looks(result.model)[0] for result in results]
    found = [100.0 * result.metrics[metric] for result in results]
    is_close = len(found) > 1 and round(found[0]) == round(found[1])
    figures = [f"{value:.1f}" if is_close else f"{value:.0f}" for value in found]
    kind = "hidden" if comparison.protocol.get("split", "random") == "random" else "later"
    sentence = f"In a list of 20, {labels[0]} finds {figures[0]} of 100 {kind} {things}"
    groups = groupby(zip(labels[1:], figures[1:], strict=True), key=lambda pair: pair[1])
    others = [f"{_listed([label for label, _ in pairs])} {figure}" for figure, pairs in groups]
    if others:
        sentence += f"; {', '.join(others)}"
    return InWords(metric, results, f"{sentence}.", _certainty(results, labels, metric))


def _certainty(results: Sequence[Result], labels: Sequence[str], metric: str) -> str:
    if len(results) == 1:
        return "No other model was compared."
    if any(metric not in result.to_best for result in results):
        return "Too few people were tested to say whether the order is more than chance."
    level = [
        label
        for result, label in zip(results, labels, strict=True)
        if result.is_level_with_best(metric)
    ]
    if not level:
        return f"The lead of {labels[0]} is significant."
    tie = f"The lead of {labels[0]} over {_listed(level)} is not significant: call it a tie."
    behind = [label for label in labels[1:] if label not in level]
    return f"{tie} Its lead over {_listed(behind)} is significant." if behind else tie


def _listed(labels: Sequence[str]) -> str:
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last
