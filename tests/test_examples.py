"""The scripts in `examples/` run as they stand, and do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from tests.markdown_examples import ROOT
from tests.notebook_examples import run_notebook

EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.mark.filterwarnings("ignore:.*threadpool:RuntimeWarning")
def test_the_quick_start_of_implicit_gets_the_same_shapes_and_tastes(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("implicit")
    example = import_module("quickstart_implicit")
    counts = example.made_up_counts()
    answers = {n: example.quick_start(m, counts) for n, m in example.MODELS.items()}
    shapes = {
        name: {q: (ids.shape, scores.shape) for q, (ids, scores) in answer.items()}
        for name, answer in answers.items()
    }
    assert shapes["implicit"] == shapes["cfnade"]
    for answer in answers.values():
        of_taste = [item % 3 == 7 % 3 for item in answer["for a user"][0]]
        assert sum(of_taste) >= 3
    example.main()
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_scikit_learn_chooses_a_setting_on_new_users(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    search = import_module("pipeline_sklearn").main()
    assert -search.best_score_ < 35  # of 50 by chance
    assert search.best_params_["model__alpha"] in (3.0, 30.0)
    assert capsys.readouterr().out.count("MPR") == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_says(path, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    scope, cells = run_notebook(path)
    for cell in cells:
        assert cell.matches(), f"now: {cell.shown}\nof:\n{cell.source}"
    assert scope["model"].validation_mpr_ < 35 and (tmp_path / "model" / "model.json").exists()
    assert any("text/html" in out.get("data", {}) for cell in cells for out in cell.said)


def test_the_service_answers_without_torch_and_goes_on_after_a_bad_request():
    requests = [
        {"history": {"film-1": 3, "film-4": 1}, "disliked": ["film-3"], "n": 4},
        {"history": ["film-1", "film-nobody-knows"]},
        {"history": {"film-1": -1}},
        [],
        {},
    ]
    no_torch = "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
    service = EXAMPLES / "new_user_service.py"
    done = subprocess.run(
        [
            *(sys.executable, "-c", no_torch + "runpy.run_path(sys.argv[0], run_name='__main__')"),
            *(str(service), str(ROOT / "tests" / "storage" / "artifacts" / "v1")),
        ],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, third, fourth, fifth = map(json.loads, done.stdout.splitlines())
    items = [entry["item"] for entry in first["items"]]
    assert len(items) == 4 and not {"film-1", "film-4", "film-3"} & set(items)
    assert all(set(entry["because"]) <= {"film-1", "film-4"} for entry in first["items"])
    assert len(second["items"]) == len(fifth["items"]) == 10
    assert "at least 0" in third["error"] and fourth["error"]


def test_lenskit_judges_the_model_beside_its_own():
    pytest.importorskip("lenskit", reason="LensKit needs pandas 2; see `make test-lenskit`")
    from lenskit.data import ItemList, RecQuery, from_interactions_df
    from lenskit.training import TrainingOptions

    example = import_module("lenskit_evaluation")
    table = example.main()
    assert table.loc["cfnade", "NDCG@10"] > 0.3

    counts = example.plays()
    scorer = example.CFNADEScorer(n_hidden=4, max_epochs=2)
    data = from_interactions_df(counts)
    scorer.train(data, TrainingOptions(rng=0))
    model = scorer.model
    scorer.train(data, TrainingOptions(retrain=False))
    assert scorer.model is model
    items = ItemList([3, 999, 5])
    row = data.user_row(0)
    assert row.field("count").max() > 1
    scores = scorer(RecQuery(history_items=row), items).scores()
    history = counts[counts["user_id"] == 0].set_index("item_id")["count"].to_dict()
    (expected,) = model.scores(model.catalogue_.history(history))
    np.testing.assert_array_equal(scores, [expected[3], np.nan, expected[5]])
    assert np.isfinite(scorer(RecQuery(), ItemList([3])).scores()).all()
