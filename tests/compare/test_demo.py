from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cfnade import ImplicitCFNADE
from cfnade.compare import demo
from cfnade.compare.demo import MADE_UP_HISTORY, N_SHOWN, Demo, run_demo
from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, MissingExtraError


@pytest.fixture(scope="module")
def stages() -> list[str]:
    return []


def first_households(*args: Any, **options: Any) -> Interactions:
    data, few = read_interactions(*args, **options), slice(200)
    return Interactions(data.counts[few], data.user_ids[few], data.item_ids)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, stages: list[str]) -> Iterator[Demo]:
    """The demo on less data with fewer trials: a check in seconds that everything works."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "read_interactions", first_households)
        patch.setattr(demo, "MIN_ITEM_USERS", 250)
        patch.setattr(demo, "FIGURE_1_ITEMS", ("Fluid milk white only", "Catsup"))
        patch.setattr(demo, "MAX_TRIALS", {"imf": 1, "ease": 1, "cfnade": 1})
        patch.setattr(demo, "ALPHAS", (3.0, 30.0))
        patch.setattr(demo, "MAX_TRIALS_PER_ALPHA", 1)
        small = {"n_hidden": 16, "max_epochs": 3, "patience": 1}
        patch.setattr(demo, "CFNADE_START", demo.CFNADE_START | small)
        yield run_demo(tmp_path_factory.mktemp("demo") / "new" / "out", on_stage=stages.append)


def test_the_demo_compares_all_models_on_one_split(done: Demo) -> None:
    models = [result.model for result in done.comparison.results]
    assert sorted(models) == ["cfnade", "ease", "imf", "popularity"]
    assert done.comparison.protocol["n_test_pairs"] == done.sweep.protocol["n_test_pairs"]


def test_the_results_hold_the_comparison_the_sweep_and_the_versions(done: Demo) -> None:
    results = json.loads(done.results.read_text())
    assert results["comparison"]["results"][0]["model"] == done.comparison.results[0].model
    assert [point["alpha"] for point in results["sweep"]["points"]] == [3, 3, 30, 30]
    assert "cfnade" in results["run"]["Versions"]


def test_the_report_has_both_figures_and_recommendations_for_some_people(done: Demo) -> None:
    html = done.report.read_text(encoding="utf-8")
    for shown in ("Figure 1", "Fluid milk white only", "Figure 2", "Household ", "Ground coffee"):
        assert shown in html
    assert "Coverage" in html and "Novelty" in html
    assert html.count("<svg") == 6  # with the reliability plot
    titles = [shown.title for shown in done.suggestions]
    assert len(set(titles)) == 4 and all(title in html for title in titles)


def test_the_saved_model_recommends_what_the_report_says(done: Demo) -> None:
    model = ImplicitCFNADE.load(done.model)
    names, _ = model.recommend_for(MADE_UP_HISTORY, n=N_SHOWN)
    chances = model.probability(MADE_UP_HISTORY, names)
    shown = done.suggestions[-1].recommended
    assert [line.name for line in shown] == names.tolist()
    assert [line.probability for line in shown] == pytest.approx(chances.tolist())


def test_the_saved_model_was_trained_for_the_epochs_that_were_chosen(done: Demo) -> None:
    (chosen,) = [r.settings for r in done.comparison.results if r.model == "cfnade"]
    assert ImplicitCFNADE.load(done.model).best_epoch_ == chosen["max_epochs"]


def test_nothing_already_bought_is_recommended(done: Demo) -> None:
    for suggestions in done.suggestions:
        bought = {line.name for line in suggestions.history}
        assert not bought & {line.name for line in suggestions.recommended}


def test_the_purchases_are_left_as_a_log_that_every_command_reads(done: Demo) -> None:
    assert read_interactions(done.purchases).n_users == 2467


def test_the_stages_are_announced_in_order(done: Demo, stages: list[str]) -> None:
    assert stages[0] == "Reading the purchases"
    assert stages[1].startswith("1,469,307 lines of receipts became 1,219,435 purchase events")
    assert [sentence.split()[0] for sentence in stages[2:]] == ["Comparing", "Sweeping", "Fitting"]


def test_a_missing_package_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(demo.NEEDED, "no_such_package", "train")
    with pytest.raises(MissingExtraError, match=r"no_such_package.*cfnade\[train\]"):
        run_demo(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ConfigError, match="cannot make the folder"):
        run_demo(tmp_path / "out")
