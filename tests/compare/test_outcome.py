"""The figures of a comparison, and their way to JSON and back."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from cfnade.compare.contender import Edge
from cfnade.compare.outcome import Result
from tests.compare.outcomes import calibration, comparison, result


@pytest.mark.parametrize("is_calibrated", [True, False])
def test_a_result_comes_back_from_json(is_calibrated):
    whole = replace(
        result("imf", 7.0),
        at_edge=(Edge("factors", 512.0, "largest"),),
        to_best={"mpr": (-0.1, 0.2)},
        calibration=calibration() if is_calibrated else None,
    )
    back = Result.from_json(json.loads(json.dumps(asdict(whole))))
    assert json.dumps(asdict(back)) == json.dumps(asdict(whole))
    assert (back.at_edge, back.to_best, back.intervals) == (
        whole.at_edge,
        whole.to_best,
        whole.intervals,
    )


def test_the_best_is_marked_and_what_is_not_significantly_worse():
    best, level, behind = comparison().results
    assert best.is_best("mpr") and not best.is_level_with_best("mpr")
    assert level.is_level_with_best("mpr") and not level.is_best("mpr")
    assert not behind.is_level_with_best("mpr") and not behind.is_best("mpr")
    assert not best.is_best("recall@20")  # not compared
