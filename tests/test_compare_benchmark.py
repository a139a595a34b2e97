"""The tables of `make bench-compare` count wins over tuned baselines, and name ends of grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
LEVEL, BEHIND, BEST = (-0.1, 0.1), (0.1, 0.3), (0.0, 0.0)


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import compare

    return compare


def row(model: str, mpr: float, to_best: tuple[float, float], n_settings: int = 5, **more: Any):
    return {
        "model": model,
        "metrics": {"mpr": mpr, "ndcg@100": 1 / mpr},
        "to_best": {"mpr": to_best, "ndcg@100": to_best},
        "n_settings": n_settings,
        **more,
    }


def outcome(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"n_users": 10, "n_items": 5, "results": list(rows)}


def test_wins_are_over_tuned_baselines_and_level_ones_are_not_significant(benchmark):
    outcomes = {
        "clear": outcome(row("cfnade", 5.0, BEST), row("imf", 6.0, BEHIND)),
        "level": outcome(row("cfnade", 5.0, BEST), row("imf", 5.1, LEVEL)),
        "lost": outcome(row("imf", 5.0, BEST), row("cfnade", 5.5, BEHIND)),
        "untuned": outcome(
            row("cfnade", 5.0, BEST), row("popularity", 4.0, LEVEL, 1), row("imf", 6.0, BEHIND)
        ),
    }
    text = benchmark.table(outcomes)
    for metric in ("mpr", "ndcg@100"):
        assert f"tuned baselines, {metric}: first on 3 of 4, on 2 significantly" in text
    assert "| data (users x items) | imf | popularity | cfnade | minutes |" in text
    assert "end of the grid" not in text


def test_values_at_an_end_of_their_grid_stand_below_the_table(benchmark):
    edge = {"setting": "factors", "value": 2048, "end": "largest"}
    found = outcome(row("cfnade", 5.0, BEST), row("imf", 6.0, BEHIND, at_edge=[edge]))
    assert "Chosen at an end of the grid: plays: imf (factors=2048)." in benchmark.table(
        {"plays": found}
    )


def test_outcomes_of_an_earlier_rule_and_their_version_are_named(benchmark):
    rows = row("cfnade", 5.0, BEST), row("imf", 6.0, BEHIND)
    now = outcome(*rows) | {"protocol": {"choose_by": None}, "commit": "abc1234"}
    before = outcome(*rows) | {"protocol": {"seed": 0}}
    both = {"new": now, "old": before}
    assert "On old baselines were chosen by validation MPR" in benchmark.by_mpr_alone(both)[0]
    assert benchmark.by_mpr_alone({"new": now}) == []
    assert "Commit: abc1234, not recorded with the outcome." in benchmark.table(both)
    assert "Commit: abc1234." in benchmark.table({"new": now})


def test_what_each_search_got_stands_below_the_table(benchmark):
    searched = {"n_looks": 60, "search_seconds": 61.4}
    found = outcome(
        row("cfnade", 5.0, BEST, **searched, stopped_by=None),
        row("imf", 6.0, BEHIND, n_settings=9, **searched, stopped_by="time"),
        row("popularity", 7.0, BEHIND),
    )
    text = benchmark.table({"plays": found})
    assert "| plays | 9 / 60 / 61 (time) |  | 5 / 60 / 61 |" in text


def test_parts_of_cfnade_are_not_the_best_other_model_next_to_als(benchmark):
    import default_fit

    rows = [row("cfnade-network", 4.0, BEHIND), row("ease", 7.0, BEHIND), row("imf", 6.0, BEHIND)]
    found = default_fit._baselines(outcome(row("cfnade", 5.0, BEST), *rows))
    assert found == ["6.00 / 0.1667", "ease 7.00", "ease 0.1429"]


def test_the_network_alone_and_all_but_the_network_are_in_every_comparison(benchmark, tmp_path):
    for command in (
        benchmark.arguments_of("ml-1m", tmp_path, tmp_path),
        benchmark.timed_arguments_of("ml-1m", tmp_path),
        benchmark.kinds_arguments_of("beibei-events", tmp_path),
    ):
        models = command[command.index("--models") + 1].split(",")
        assert {"cfnade", "cfnade-network", "cfnade-no-network", "imf"} <= set(models)
