"""Small outcomes made by hand, for the tests of figures and reports."""

from __future__ import annotations

from dataclasses import replace

from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.reliability import Calibration, Reliability
from cfnade.compare.sweep import Sweep, SweepPoint

PROTOCOL = {
    "seed": 7,
    "candidates": "unseen",
    "ratings_from": "train",
    "n_train_pairs": 8100,
    "n_validation_pairs": 900,
    "n_test_pairs": 1000,
}


def result(model: str, mpr: float) -> Result:
    metrics = {"mpr": mpr, "recall@20": 0.25}
    intervals = {"mpr": (mpr - 0.2, mpr + 0.3), "recall@20": (0.2, 0.3)}
    return Result(model, metrics, intervals, 1.25, 33.5, 9, mpr + 1, {"alpha": 30.0})


def calibration() -> Calibration:
    holds = Reliability(0.0019, 0.05, 0.0004, 0.0021, [(0.001, 0.0012), (0.05, 0.048)])
    is_too_sure = Reliability(0.26, -120.0, 0.41, 0.415, [(0.4, 0.001), (1.0, 0.05)])
    undone = Reliability(0.047, -20.0, 0.09, 0.0947, [(0.09, 0.001), (0.99, 0.05)])
    return Calibration(200, 40_000, 0.0021, holds, undone, is_too_sure)


def comparison() -> Comparison:
    best, level, behind = {"mpr": (0.0, 0.0)}, {"mpr": (-0.1, 0.7)}, {"mpr": (2.4, 3.8)}
    results = [
        replace(result("cfnade", 12.4), to_best=best),
        replace(result("imf", 12.73), to_best=level),
        replace(result("popularity", 15.5), to_best=behind),
    ]
    return Comparison("groceries", 2448, 1865, 10_000, PROTOCOL, results)


def sweep() -> Sweep:
    points = [
        SweepPoint(model, alpha, mpr, (mpr - 0.2, mpr + 0.2), mpr, 3, {}, 1.0)
        for alpha, pair in {1.0: (12.9, 13.5), 30.0: (12.4, 12.8)}.items()
        for model, mpr in zip(("cfnade", "imf"), pair, strict=True)
    ]
    return Sweep("groceries", [1.0, 30.0], PROTOCOL, points)
