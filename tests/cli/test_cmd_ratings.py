"""`cfnade ratings` as a user meets it."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

pytest.importorskip("torch")

from cfnade.cli.main import run
from cfnade.progress import Callbacks
from tests.cli.helpers import last_error, set_options
from tests.planted_ratings import SMALL, planted_ratings

QUICK = set_options(**{**SMALL, "max_epochs": 20})


@pytest.fixture(scope="module")
def stars(tmp_path_factory):
    path = tmp_path_factory.mktemp("stars") / "stars.csv"
    pairs = planted_ratings().tocoo()
    rows = zip(pairs.row, pairs.col, pairs.data, strict=True)
    path.write_text("user,movie,stars\n" + "".join(f"u{u},m{m},{r}\n" for u, m, r in rows))
    return path


@pytest.fixture(scope="module")
def model(stars):
    place = stars.parent / "model"
    assert run(["ratings", "fit", str(stars), "--out", str(place), *QUICK]) == 0
    return place


def test_a_fit_says_what_it_did_and_leaves_no_checkpoint(model, capsys):
    assert not model.with_name("model.checkpoint").exists()
    assert run(["inspect", str(model)]) == 0
    assert "ratings" in capsys.readouterr().out


def test_after_ctrl_c_a_line_says_how_to_continue(stars, tmp_path, capsys, monkeypatch):
    def stop(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    command = ["ratings", "fit", str(stars), "--out", str(tmp_path / "model"), *QUICK]
    with monkeypatch.context() as patched:
        patched.setattr("cfnade.fit.rating_estimator._CHECKPOINT_SECONDS", 0.0)
        stopped = nullcontext(Callbacks(on_epoch=stop))
        patched.setattr("cfnade.cli.cmd_ratings.fit_progress", lambda: stopped)
        assert run(command) == 130
    assert "continue with the same command and --resume" in capsys.readouterr().err
    assert run([*command, "--resume"]) == 0


def test_resuming_without_a_checkpoint_starts_from_the_beginning(stars, tmp_path, capsys):
    out = tmp_path / "model"
    assert run(["ratings", "fit", str(stars), "--out", str(out), *QUICK, "--resume"]) == 0
    assert "starting from the beginning" in capsys.readouterr().err


def test_predict_for_anyone_and_for_a_user(model, capsys):
    assert run(["ratings", "predict", str(model), "m0=5", "m2=5", "m1=1", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["items"]
    assert len(found) == 10 and found[0]["rating"] >= found[-1]["rating"]
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1.0)
    assert list(found[0]["probabilities"]) == ["1", "2", "3", "4", "5"]
    assert run(["ratings", "predict", str(model), "--user", "u3", "--items", "m1,m2"]) == 0
    assert "m1" in capsys.readouterr().out


def test_compare_prints_a_table_and_writes_json_and_a_figure(stars, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out, figure = tmp_path / "table.json", tmp_path / "rmse.svg"
    command = ["ratings", "compare", str(stars), "--models", "mean,biases", "--seeds", "2"]
    assert run([*command, "--json", str(out), "--figure", str(figure)]) == 0
    assert "biases" in capsys.readouterr().out and figure.exists()
    results = json.loads(out.read_text())["results"]
    assert {row["model"] for row in results} == {"biases", "mean"}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["compare", "DATA", "--models", "magic"], "there is no model 'magic'"),
        (["compare", "DATA", "--scale", "1,2,3"], "not on the scale 1, 2, 3"),
        (["compare", "DATA", "--figure", "rmse.pdf"], "--figure must end in .svg or .png"),
        (["compare", "DATA", "--scale", "one"], "--scale takes numbers"),
        (["compare", "DATA", "--set", "n_hiden=3"], "n_hiden"),
        (["predict", "MODEL"], "give ratings as ITEM=RATING, or --user"),
        (["predict", "MODEL", "m0=9"], "1 rating not on the scale"),
        (["predict", "MODEL", "m0"], "give each item once, with its rating"),
        (["predict", "MODEL", "m0=2", "m0=3"], "give each item once, with its rating"),
        (["predict", "MODEL", "nothing=3"], "item 'nothing' is not in this model"),
        (["predict", "MODEL", "--user", "nobody"], "user 'nobody' is not in this model"),
        (["fit", "DATA", "--out", "MODEL", "--set", "n_hiden=3"], "n_hiden"),
    ],
)
def test_wrong_use_ends_in_one_line(stars, model, capsys, command, message):
    places = {"DATA": str(stars), "MODEL": str(model)}
    assert run(["ratings", *(places.get(word, word) for word in command)]) == 2
    assert message in last_error(capsys)
