"""`cfnade fit` as a user meets it: a new model, more data, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from cfnade import ImplicitCFNADE
from cfnade.cli.main import run
from tests.cli.helpers import QUICK, check_refused, recommended, set_options
from tests.networks import group_counts


def test_fit_saves_a_model_and_leaves_no_checkpoint(model):
    assert sorted(path.name for path in model.parent.iterdir()) == ["model"]
    described = json.loads((model / "model.json").read_text())
    assert described["settings"]["n_hidden"] == 8
    assert described["data"]["n_users"] == 60


@pytest.mark.parametrize("place", ["m.checkpoint", "m"])
def test_a_folder_with_files_of_others_is_refused_and_kept(events, tmp_path, capsys, place):
    folder = tmp_path / place
    (folder / "src").mkdir(parents=True)
    for path in ("thesis.txt", "src/model.py"):
        (folder / path).write_text("keep me")
    for content in (None, "{}", '{"format": 2, "files": {}, "network": {}}'):
        if content is not None:
            (folder / "model.json").write_text(content)
        arguments = ["fit", str(events), "--out", str(tmp_path / "m"), *QUICK]
        assert run(arguments) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert "is not a" in line and "choose another place" in line
    assert [(folder / p).read_text() for p in ("thesis.txt", "src/model.py")] == ["keep me"] * 2


def test_a_model_with_files_of_others_beside_it_is_kept(model, events, tmp_path, capsys):
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m" / "thesis.txt").write_text("keep me")
    arguments = ["fit", str(events), "--out", str(tmp_path / "m"), *QUICK]
    check_refused(capsys, arguments, "is not a saved model (it holds 'thesis.txt')")
    assert (tmp_path / "m" / "thesis.txt").read_text() == "keep me"


def test_plan_says_what_a_fit_would_do_and_stops(events, tmp_path, capsys):
    out = tmp_path / "model"
    assert run(["fit", str(events), "--plan", "--out", str(out), *QUICK]) == 0
    assert "60 users" in capsys.readouterr().out
    assert not out.exists()


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_a_model_of_16_bits_is_saved_inspected_and_used(dtype, events, model, tmp_path, capsys):
    out = tmp_path / "model"
    assert run(["fit", str(events), "--out", str(out), "--dtype", dtype, *QUICK]) == 0
    assert run(["inspect", str(out), "--verify"]) == 0
    assert {"float16": "F16", "int16": "I16"}[dtype] in capsys.readouterr().out
    small, whole = (recommended(capsys, str(m), "i0=3", "i2") for m in (out, model))
    assert [entry["item"] for entry in small] == [entry["item"] for entry in whole]


def test_an_unknown_type_of_weights_is_refused_before_the_fit(events, tmp_path, capsys):
    arguments = ["fit", str(events), "--out", str(tmp_path / "model"), "--dtype", "int8"]
    check_refused(capsys, arguments, "--dtype must be one of float32, float16, int16; got 'int8'")


def test_without_a_terminal_fit_logs_a_line_for_each_stage(events, tmp_path, capsys):
    out = tmp_path / "model"
    assert run(["fit", str(events), "--out", str(out), *QUICK]) == 0
    captured = capsys.readouterr()
    *before, training, readout, calibration, last = captured.err.splitlines()
    assert before == ["factors", "direct path"]
    look = r"validation MPR (\d+\.\d\d) % \(best \1 %\)"
    assert re.fullmatch(rf"training, epoch 6: loss \d+\.\d{{4}}, {look}", training)
    assert (readout, calibration, last) == ("readout", "calibration", "direct path of all pairs")
    outcome = r"60 users, 20 items, \d+ pairs: trained for 6 epochs, validation MPR \d+\.\d\d %"
    assert re.fullmatch(f"{outcome}; saved to {out}\n", captured.out)


@pytest.fixture(scope="module")
def more_events(tmp_path_factory):
    """The same people, who have two titles more."""
    pairs = group_counts().tocoo()
    new = pd.DataFrame({"user_id": range(60), "item_id": [f"new{k % 2}" for k in range(60)]})
    known = pd.DataFrame({"user_id": pairs.row, "item_id": [f"i{k}" for k in pairs.col]})
    path = tmp_path_factory.mktemp("more") / "more.csv"
    pd.concat([known, new]).to_csv(path, index=False)
    return path


def test_fit_goes_on_from_a_model_with_more_data(model, more_events, tmp_path, capsys):
    out = tmp_path / "second"
    base = ["fit", str(more_events), "--start-from", str(model), "--out"]
    assert run([*base, str(out), "--epochs", "2", "--train", "new"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 new items: trained for 2 epochs more, 22 items in all" in told
    described = json.loads((out / "model.json").read_text())
    assert described["settings"]["n_hidden"] == 8 and described["network"]["n_items"] == 22
    assert described["training"]["partial_fits"][0]["train"] == "new"
    # in its own place as well, though its weights are mapped from there
    assert run(["fit", str(more_events), "--start-from", str(out), "--out", str(out)]) == 0
    assert "0 new items: trained for 10 epochs more" in " ".join(capsys.readouterr().out.split())
    assert len(recommended(capsys, str(out), "new0", "-n", "30")) == 21


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--resume"], "--resume does not go with --start-from"),
        (["--recipe", "paper"], "--recipe does not go with --start-from"),
        (["--set", "n_hidden=4"], "n_hidden cannot change in a trained model"),
        (["--train", "old"], "train must be one of all, new; got 'old'"),
    ],
)
def test_what_has_no_meaning_for_a_trained_model_is_told(
    model, more_events, tmp_path, capsys, options, message
):
    base = ["fit", "DATA", "--start-from", "MODEL", "--out", "OUT", *options]
    out = tmp_path / "out"
    check_refused(capsys, base, message, DATA=more_events, MODEL=model, OUT=out)
    assert not out.exists()


@pytest.mark.parametrize("options", [["--epochs", "3"], ["--train", "new"]])
def test_options_of_going_on_are_told_where_there_is_nothing_to_go_on_from(
    more_events, tmp_path, capsys, options
):
    base = ["fit", "DATA", "--out", "OUT", *options]
    message = "--epochs and --train need --start-from"
    check_refused(capsys, base, message, DATA=more_events, OUT=tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "depth=3"], "there is no setting 'depth'"),
        (["--set", "n_hidden=0"], "n_hidden must be"),
        (["--recipe", "best"], "there is no recipe 'best'"),
        (["--set", "alpha=much"], "alpha must be a finite number"),
        (["--set", "max_epochs=0"], "max_epochs must be"),
        (["--seed", "-1"], "seed"),
    ],
)
def test_wrong_settings_end_in_one_line_and_exit_code_2(events, tmp_path, capsys, options, message):
    base = ["fit", "DATA", "--out", "OUT", *options]
    check_refused(capsys, base, message, DATA=events, OUT=tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--out is missing"),
        (["--out", "."], "not a saved model"),
        (["--out", "/proc/nowhere/model"], "/proc/nowhere"),
    ],
)
def test_a_place_that_no_model_can_be_saved_in_is_refused(events, capsys, options, message):
    check_refused(capsys, ["fit", "DATA", *options], message, DATA=events)


def test_an_interrupted_fit_says_how_to_go_on_and_goes_on(events, tmp_path):
    out = tmp_path / "model"
    # A checkpoint after every epoch, so that this takes no longer than it must.
    program = "import cfnade.fit.pipeline as p; p.CHECKPOINT_SECONDS = 0.0; "
    program += "from cfnade.cli.main import main; main()"
    command = [sys.executable, "-c", program, "fit", str(events), "--out", str(out)]
    command += set_options(n_hidden=8, item_l2=0.1, patience=100000, recipe__start="random")
    endless, short = set_options(max_epochs=100000), set_options(max_epochs=3)
    process = subprocess.Popen([*command, *endless], stderr=subprocess.PIPE, text=True)
    state = tmp_path / "model.checkpoint" / "training" / "state.json"
    deadline = time.monotonic() + 60
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert state.exists()
    assert process.returncode == 130
    assert "--resume" in errors and "Traceback" not in errors
    done = subprocess.run([*command, *short, "--resume"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (out / "model.json").exists()


def test_resuming_without_a_checkpoint_starts_from_the_beginning(events, tmp_path, capsys):
    out = tmp_path / "model"
    command = ["fit", str(events), "--out", str(out), *QUICK, "--resume"]
    assert run(command) == 0
    errors = capsys.readouterr().err
    said = f"there is no checkpoint in {out}.checkpoint: starting from the beginning"
    assert errors.replace("\n", " ").count(said) == 1
    assert run(command[:-1]) == 0
    assert "no checkpoint" not in capsys.readouterr().err
    assert not out.with_name("model.checkpoint").exists()


def test_fit_with_an_items_table_adds_its_items(described_model, events, tmp_path, capsys):
    model = ImplicitCFNADE.load(described_model)
    assert model.n_features_in_ == 22 and model.catalogue_.features.columns == (
        "category",
        "genres",
    )
    more = tmp_path / "more.csv"
    more.write_text("item,category,genres\ni99,film,War\n")
    arguments = ["--start-from", str(described_model), "--items", str(more), "--epochs", "0"]
    assert run(["fit", str(events), *arguments, "--out", str(tmp_path / "grown")]) == 0
    assert "23 items in all" in capsys.readouterr().out
    assert "i99" in ImplicitCFNADE.load(tmp_path / "grown").recommend_for(["i0"], 30)[0]


def test_fit_reports_items_of_the_table_and_refuses_doubled_ones(
    events, catalogue, tmp_path, capsys
):
    out = ["--out", str(tmp_path / "model"), *QUICK]
    assert run(["fit", str(events), "--items", str(catalogue), *out]) == 0
    assert "20 items and 2 more of the items table" in capsys.readouterr().out
    doubled = tmp_path / "doubled.csv"
    doubled.write_text(catalogue.read_text() + "i3,film,War\n")
    check_refused(
        capsys,
        ["fit", str(events), "--items", str(doubled), *out],
        "1 item has several rows in the items table: those of 'i3' differ in 'category', 'genres'",
    )


# Names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--names", "NAMES"],
            "found no item column; the columns are 'code', 'wording', 'colour'; "
            "name one of these as --item-col",
        ),
        (
            ["--names", "KNOWN"],
            "the columns are 'item', 'wording', 'colour'; name one of these as ",
        ),
        (["--names", "KNOWN", "--name-col", "words"], "there is no name column 'words'"),
        (["--name-col", "wording"], "no name column 'wording'; the columns are "),
    ],
)
def test_a_table_without_names_says_which_columns_it_has(
    arguments, message, events, tmp_path, capsys
):
    places = {"DATA": events, "NAMES": tmp_path / "names.csv", "KNOWN": tmp_path / "known.csv"}
    places["NAMES"].write_text("code,wording,colour\ni0,Tea,red\n")
    places["KNOWN"].write_text("item,wording,colour\ni0,Tea,red\n")
    check_refused(capsys, ["fit", "DATA", "--out", "unused", *arguments], message, **places)


def test_a_table_of_names_may_call_its_columns_as_the_data_do(tmp_path, capsys):
    data, names, out = tmp_path / "odd.csv", tmp_path / "names.csv", tmp_path / "model"
    data.write_text("who,sku_code\n" + "".join(f"u{k % 9},x{k % 4}\n" for k in range(30)))
    names.write_text("sku_code,wording,colour\nx0,Tea,red\n")
    arguments = ["fit", str(data), "--user-col", "who", "--item-col", "sku_code", "--events"]
    arguments += ["--out", str(out), *QUICK, "--name-col"]
    assert run([*arguments, "wording", "--names", str(names)]) == 0
    assert ImplicitCFNADE.load(out).catalogue_.label("x0") == "Tea"
    assert run([*arguments, "who"]) == 0  # of the data themselves
    assert ImplicitCFNADE.load(out).catalogue_.label("x0") == "u0"
