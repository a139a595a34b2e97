from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from cfnade.compare.rating_comparison import (
    MODELS,
    RatingComparison,
    compare_ratings,
    rating_plot,
)
from cfnade.data.rating_table import read_ratings
from cfnade.errors import ArtifactError, DataError
from tests.planted_ratings import SMALL, planted_ratings


@pytest.fixture(scope="module")
def table():
    return read_ratings(planted_ratings())


def test_cells_are_tuned_tested_and_kept(table, tmp_path):
    done = []

    def run():
        return compare_ratings(
            table,
            ["mean", "biases", "cfnade"],
            [0, 1],
            dataset="planted",
            max_trials=2,
            settings={**SMALL, "weight_decay": 1e-4},
            keep=tmp_path,
            on_cell=lambda *cell: done.append(cell),
        )

    comparison = run()
    assert len(done) == 6 and len(list(tmp_path.iterdir())) == 6
    results = comparison.summary()
    assert results[0]["model"] == "cfnade"
    assert [row["n_seeds"] for row in results] == [2, 2, 2]
    for row in results:
        low, high = row["rmse_interval"]
        assert low <= row["rmse"] <= high
    best = results[0]
    assert best["log_loss"] < np.log(5) and best["ece"] < 0.1
    again = run()
    assert len(done) == 6 and again.summary() == results
    assert json.loads(json.dumps(again.to_json()))["results"][0]["model"] == "cfnade"
    (tmp_path / "mean-0.json").write_text("[]")
    with pytest.raises(ArtifactError, match="delete it"):
        run()
    (tmp_path / "mean-0.json").write_text('{"model": "mean", "data": "other"}')
    with pytest.raises(ArtifactError, match="is of other data"):
        run()


def test_what_the_first_split_found_serves_the_others_if_asked(table):
    def trials(**options):
        comparison = compare_ratings(
            table, ["mf", "biases"], [0, 1], dataset="planted", max_trials=3, **options
        )
        return {(c["model"], c["seed"]): (c["n_trials"], c["settings"]) for c in comparison.cells}

    each, once = trials(), trials(search_each=False)
    for model in ("mf", "biases"):
        assert each[model, 1][0] > 1 and once[model, 1][0] == 0
        assert once[model, 0] == each[model, 0]
        expected = once[model, 0][1] | ({"random_state": 1} if model == "mf" else {})
        assert once[model, 1][1] == expected


def test_too_few_ratings_to_hold_any_out_end_in_one_line():
    few = read_ratings(planted_ratings(n_users=4, n_items=4, share=1.0))
    with pytest.raises(DataError, match=r"16 ratings are too few .* at least 50"):
        compare_ratings(few, ["biases"], [0], dataset="planted", max_trials=6)


def test_metrics_are_those_of_the_test_part_alone(table):
    comparison = compare_ratings(table, ["mean"], [3], dataset="planted", max_trials=1)
    train, test = table.split(0.1, 3)
    errors = test.values - train.values.mean()
    (cell,) = comparison.cells
    assert cell["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert cell["mae"] == pytest.approx(np.abs(errors).mean())
    assert comparison.summary()[0]["rmse_interval"] == cell["rmse_interval"]


@pytest.mark.parametrize("name", MODELS)
def test_the_default_settings_are_in_the_grid(name):
    make, grid = MODELS[name]
    for setting, values in grid.items():
        assert getattr(make(), setting) in values


def test_the_interval_over_seeds_is_students():
    cells = [{"model": "a", "seed": s, "rmse": v, "mae": v} for s, v in enumerate((0.8, 0.9, 1.0))]
    row = RatingComparison("planted", {}, cells).summary()[0]
    assert row["rmse"] == pytest.approx(0.9)
    assert row["rmse_interval"] == pytest.approx([0.9 - 0.2484, 0.9 + 0.2484], abs=1e-4)
    assert row["log_loss"] is None


def test_the_plot_is_described_in_words():
    pytest.importorskip("matplotlib")
    cell = {
        "model": "cfnade",
        "seed": 0,
        "rmse": 0.9,
        "mae": 0.7,
        "points": [(0.1, 0.1), (0.5, 0.6)],
    }
    cell |= {"rmse_interval": [0.85, 0.95], "mae_interval": [0.65, 0.75]}
    figure = rating_plot(RatingComparison("planted", {}, [cell]))
    assert "cfnade 0.9000" in str(figure.get_label()) and len(figure.axes) == 2
    bottom, top = figure.axes[0].get_ylim()
    assert top < 0 < bottom  # the first row, the best, is on top
