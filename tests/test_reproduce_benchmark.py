"""`make reproduce` goes on where it stopped, chooses on validation, says what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfnade.compare.contender import Contender
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, TrainingError
from tests.networks import SMALL, group_counts

pytest.importorskip("implicit")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PAGE = "# Reproduction\n\n{start}\n\nbefore this\n\n{end}\n\n## Ratings\n\nkept\n"


@pytest.fixture
def reproduce(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reproduce

    def small(name: str) -> Contender:
        return reproduce.contender(name).holding(**SMALL)

    models = {
        "imf": lambda seed: reproduce.contender("imf").holding(factors=2),
        "cfnade-paper": lambda seed: small("cfnade-paper").holding(learning_rate=3e-3),
        "cfnade": lambda seed: replace(small("cfnade"), grid={}),
    }
    monkeypatch.setattr(reproduce, "MODELS", models)
    return reproduce


def read():
    return Interactions.from_matrix(group_counts()), None


@pytest.fixture
def cells(reproduce, tmp_path):
    cells = reproduce.Cells(tmp_path / "cells")
    models = list(reproduce.MODELS)
    reproduce.run_set("ml-100k", read, cells, models=models, alphas=[3.0, 30.0], trials=2)
    return cells


def test_each_cell_has_its_figures_at_its_alpha_and_is_run_once(reproduce, cells, monkeypatch):
    found = cells.of("ml-100k")
    models = list(reproduce.MODELS)
    places = [(cell["model"], cell["alpha"]) for cell in found]
    assert places == [(model, alpha) for model in models for alpha in (3.0, 30.0)]
    for cell in found:
        assert cell["settings"]["alpha"] == cell["alpha"]
        assert cell["interval"][0] <= cell["mpr"] <= cell["interval"][1] and cell["commit"]
    monkeypatch.setattr(reproduce, "run_cell", None)  # nothing is left to do
    reproduce.run_set("ml-100k", None, cells, models=models, alphas=[3.0, 30.0], trials=2)


def test_the_search_at_one_alpha_starts_where_that_at_the_nearest_ended(
    reproduce, cells, monkeypatch
):
    place = cells.place("ml-100k", "imf", 30.0)
    facts = json.loads(place.read_text())
    assert set(facts["on_grid"]) == {"strength"}  # the factors are held
    place.write_text(json.dumps(facts | {"on_grid": {"strength": 90.0}}))
    starts = []

    def search(candidate, *others):
        starts.append(candidate.start["strength"])
        raise TrainingError("seen enough")

    imf = replace(reproduce.MODELS["imf"](0), search_by=search)
    monkeypatch.setitem(reproduce.MODELS, "imf", lambda seed: imf)
    for alpha in (100.0, 4.0):
        reproduce.run_set("ml-100k", read, cells, models=["imf"], alphas=[alpha], trials=1)
    assert starts == [
        90.0,
        json.loads(cells.place("ml-100k", "imf", 3.0).read_text())["on_grid"]["strength"],
    ]


def test_a_model_without_its_software_is_left_out_and_a_failed_fit_is_kept(
    reproduce, cells, monkeypatch
):
    def fail(candidate, validation, *others):
        raise TrainingError("it diverged")

    def no_java(candidate, validation, *others):
        raise ConfigError("no Java")

    for name, search in (("failing", fail), ("imf-spark", no_java)):
        candidate = replace(reproduce.contender("imf"), search_by=search)
        monkeypatch.setitem(reproduce.MODELS, name, lambda seed, c=candidate: c)
    models = ["failing", "imf-spark"]
    reproduce.run_set("ml-100k", read, cells, models=models, alphas=[3.0], trials=1)
    kept = json.loads(cells.place("ml-100k", "failing", 3.0).read_text())
    assert kept["failed"] == "it diverged"
    assert not cells.place("ml-100k", "imf-spark", 3.0).exists()
    assert {cell["model"] for cell in cells.of("ml-100k")} == {"imf", "cfnade-paper", "cfnade"}


def test_the_page_has_the_best_by_validation_next_to_the_papers_figure(reproduce, cells, tmp_path):
    cell = cells.place("ml-100k", "imf", 30.0)
    facts = json.loads(cell.read_text())
    best = {"mpr": 20.0, "validation_mpr": 0.1, "at_edge": ["factors=2 is the largest value tried"]}
    cell.write_text(json.dumps(facts | best))
    other = cells.place("ml-100k", "cfnade-paper", 3.0)
    facts = json.loads(other.read_text())
    other.write_text(json.dumps(facts | {"mpr": 15.0, "validation_mpr": 0.1}))
    page = tmp_path / "docs" / "reproduction.md"
    page.parent.mkdir()
    page.write_text(PAGE.format(start=reproduce.START, end=reproduce.END))
    reproduce.write_section(cells, page, [3.0, 30.0, 300.0])
    text = page.read_text()
    assert "before this" not in text and text.endswith("## Ratings\n\nkept\n")
    assert "| the paper's own | 7.36 (100) |  | 5.24 (300) | -29 % |" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| ml-100k |"))
    assert row.startswith("| ml-100k |  | 20.00 (30) | 15.00 (3) |  | -25 % |")
    assert "against IMF, tuned: lower MPR on 1 of 1 data sets, significantly on 0" in text
    assert "median -25 % (-25 to -25 %)" in text
    assert "lastfm-2k" in text.partition("Not run: ")[2].partition("\n")[0]
    assert "IMF, tuned on ml-100k at alpha 300" in text
    assert "ml-100k, IMF, tuned: factors=2 is the largest value tried, alpha=30" in text
    assert "![Test MPR against alpha on ml-100k](figures/reproduce-ml-100k.svg)" in text
    assert (page.parent / "figures" / "reproduce-ml-100k.svg").exists()
    reproduce.write_section(cells, page, [3.0, 30.0, 300.0])
    assert page.read_text() == text


def test_differences_are_judged_by_user_and_what_was_found_is_kept(reproduce, cells, tmp_path):
    def page() -> str:
        return reproduce.section(cells, tmp_path / "figures", [3.0, 30.0])

    sums = dict(np.load(cells.place("ml-100k", "imf", 3.0).with_suffix(".npz")))
    best = {"imf": {"mpr": 10.0}, "cfnade": {"mpr": 10.0}, "cfnade-paper": {"mpr": 9.0}}
    for model, cell in best.items():  # the default as good as IMF, the paper's model better
        less = 1.0 * (model == "cfnade-paper")
        place = cells.place("ml-100k", model, 3.0)
        facts = json.loads(place.read_text())
        place.write_text(json.dumps(facts | cell | {"validation_mpr": 0.1}))
        total = sums["total"] - less * sums["weight"]
        np.savez(place.with_suffix(".npz"), total=total, weight=sums["weight"])
    text = page()
    (row,) = (line for line in text.splitlines() if line.startswith("| ml-100k |"))
    assert row.endswith("| 9.00 (3) |  | -10 % |  |  |  | 10.00 (3) |  | +0 % (=) |")
    lower = "against IMF, tuned: lower MPR on 1 of 1 data sets, significantly on 1"
    assert f"{reproduce.NAMES['cfnade-paper']} {lower}" in text
    for file in (cells.folder / "ml-100k").glob("*.npz"):  # on another machine
        file.unlink()
    assert page() == text
    cell = cells.place("ml-100k", "imf", 3.0)  # another figure since
    cell.write_text(json.dumps(json.loads(cell.read_text()) | {"mpr": 11.0}))
    assert "significantly on 1" not in page()


def test_without_cells_the_page_says_so(reproduce, tmp_path):
    assert "Nothing was run yet." in reproduce.section(reproduce.Cells(tmp_path), tmp_path)


def test_the_papers_models_are_run_as_the_paper_says(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reproduce as module

    spark = module.MODELS["imf-spark"](0)
    assert (spark.start["factors"], spark.start["regularization"]) == (256, 0.1)
    assert list(spark.grid) == ["alpha"]  # nothing else is searched
    assert spark.fixed["session"] is None  # MLlib's steps, without Java
    paper = module.MODELS["cfnade-paper"](0)
    assert paper.start["recipe"] == "paper" and "max_epochs" not in paper.start
    assert list(module.MODELS) == list(module.NAMES) == [*module.BASELINES, *module.OURS]
    assert module.relative(5.2436, 7.362) == pytest.approx(-28.8, abs=0.1)
