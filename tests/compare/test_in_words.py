from __future__ import annotations

from dataclasses import replace

import pytest

from cfnade.compare.in_words import in_words
from cfnade.compare.outcome import Comparison
from tests.compare.outcomes import PROTOCOL, result


def outcome(
    found: dict[str, float],
    level: tuple[str, ...] = (),
    metric: str = "recall_full@20",
    **facts: str,
) -> Comparison:
    """Models by the share that they find; `level` are those that tie with the best."""
    best = max(found, key=found.__getitem__)
    results = []
    for model, share in found.items():
        behind = (-0.02, 0.01 if model in level else -0.01)
        to_best = {metric: (0.0, 0.0) if model == best else behind}
        metrics = {"mpr": 12.0, "recall@20": 0.5, metric: share}
        results.append(replace(result(model, 12.0), metrics=metrics, to_best=to_best))
    return Comparison("groceries", 10, 20, 30, {**PROTOCOL, **facts}, results)


def test_the_best_is_named_first_and_equal_figures_together() -> None:
    found = {"popularity": 0.187, "ease": 0.226, "cfnade": 0.241, "imf": 0.232}
    words = in_words(outcome(found), "purchases")
    assert words.sentence == (
        "In a list of 20, CF-NADE finds 24 of 100 hidden purchases; IMF and EASE 23, Popularity 19."
    )
    assert words.certainty == "The lead of CF-NADE is significant."
    assert [r.model for r in words.results] == ["cfnade", "imf", "ease", "popularity"]


def test_a_lead_that_whole_numbers_hide_has_a_decimal() -> None:
    words = in_words(outcome({"ease": 0.244, "cfnade": 0.241, "random": 0.01}, split="time"))
    assert words.sentence == (
        "In a list of 20, EASE finds 24.4 of 100 later items; CF-NADE 24.1, Random 1.0."
    )


@pytest.mark.parametrize(
    ("level", "certainty"),
    [
        (("imf",), "The lead of EASE over IMF is not significant: call it a tie. "
                   "Its lead over CF-NADE is significant."),
        (("imf", "cfnade"), "The lead of EASE over IMF and CF-NADE is not significant: "
                            "call it a tie."),
    ],
)  # fmt: skip
def test_a_tie_is_called_a_tie(level: tuple[str, ...], certainty: str) -> None:
    assert (
        in_words(outcome({"ease": 0.3, "imf": 0.29, "cfnade": 0.28}, level)).certainty == certainty
    )


def test_with_few_people_nobody_is_called_best() -> None:
    bare = outcome({"ease": 0.3, "imf": 0.29})
    bare = replace(bare, results=[replace(r, to_best={}) for r in bare.results])
    assert in_words(bare).certainty.startswith("Too few people")
    assert in_words(outcome({"cfnade": 0.3})).certainty == "No other model was compared."


def test_the_share_of_all_items_is_taken_before_that_of_twenty() -> None:
    assert in_words(outcome({"cfnade": 0.3})).metric == "recall_full@20"
    words = in_words(outcome({"cfnade": 0.3}, metric="recall@20"))
    assert words.metric == "recall@20" and " 30 of 100 " in words.sentence
