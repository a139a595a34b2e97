"""`cfnade tune` as a user meets it, and what the other commands do with its file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from cfnade.cli.main import run
from cfnade.fit.settings import read_settings
from tests.cli.helpers import set_options

pytest.importorskip("optuna")

QUICK = [*set_options(n_hidden=8, max_epochs=4), "--search", "alpha,learning-rate"]


@pytest.fixture(scope="module")
def tuned(events, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "settings.toml"
    table = out.with_name("trials.json")
    arguments = ["tune", str(events), "--out", str(out), *QUICK, "--trials", "3"]
    assert run([*arguments, "--json", str(table)]) == 0
    return out


def test_tune_writes_settings_that_fit_reads(tuned, events, tmp_path, capsys):
    outcome = json.loads(tuned.with_name("trials.json").read_text())
    assert outcome["dataset"] == "events" and len(outcome["trials"]) == 3
    assert outcome["best"]["settings"].keys() == {"alpha", "learning_rate"}
    out = tmp_path / "model"
    fit = ["fit", str(events), "--settings", str(tuned), "--out", str(out)]
    assert run([*fit, "--set", "n_hidden=4"]) == 0
    settings = json.loads((out / "model.json").read_text())["settings"]
    for name, value in outcome["best"]["settings"].items():
        assert settings[name] == value
    assert settings["n_hidden"] == 4 and settings["max_epochs"] == 4


def test_the_table_shows_the_best_trials_and_the_recipe(tuned, events, capsys):
    arguments = ["tune", str(events), "--out", str(tuned), *QUICK, "--trials", "3", "--resume"]
    assert run(arguments) == 0
    shown = capsys.readouterr()
    assert "3 settings tried, 0 pruned" in shown.out
    assert "learning_rate" in shown.out and "30" in shown.out
    assert f"wrote {tuned}" in " ".join(shown.err.split())


def test_evaluate_takes_the_file_and_refuses_a_split_that_was_seen(tuned, events, capsys):
    arguments = ["evaluate", str(events), "--settings", str(tuned), "--json", "-"]
    assert run(arguments) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    (ours,) = (result for result in results if result["model"] == "cfnade")
    assert ours["settings"]["alpha"] == read_settings(tuned).settings["alpha"]
    for options in (["--seed", "1"], ["--test-share", "0.2"]):
        assert run([*arguments, *options]) == 2
        assert "some test pairs have been seen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recipe", "paper"], "--recipe does not go with --settings"),
        (["--settings", "nowhere.toml"], "cannot read the settings in nowhere.toml"),
        (["--start-from", "model"], "--settings does not go with --start-from"),
    ],
)
def test_wrong_use_of_the_file_is_refused(tuned, events, tmp_path, capsys, options, message):
    fit = ["fit", str(events), "--out", str(tmp_path / "x"), "--settings", str(tuned)]
    assert run([*fit, *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_interrupted_search_leaves_settings_and_goes_on(events, tmp_path):
    out = tmp_path / "settings.toml"
    command = [sys.executable, "-m", "cfnade", "tune", str(events), "--out", str(out), *QUICK]
    process = subprocess.Popen(
        [*command, "--trials", "100000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not out.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the best settings so far are in" in errors and "--resume" in errors
    assert "Traceback" not in errors
    n_done = read_settings(out).search["n_trials"]
    done = subprocess.run(
        [*command, "--trials", str(n_done + 1), "--resume"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert read_settings(out).search["n_trials"] == n_done + 1
