"""`cfnade evaluate`, `compare` and `sweep` as a user meets them."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from cfnade.baselines import EASE
from cfnade.cli import cmd_compare, console
from cfnade.cli.main import run
from cfnade.cli.options import parse_seconds
from cfnade.compare.contender import Contender
from cfnade.errors import ConfigError
from tests.cli.helpers import QUICK, check_refused, last_error
from tests.networks import group_counts

FINDING = r"ease: MPR \d+\.\d\d %, nDCG@100 0\.\d{4}; (\d) settings in \d s, \1 looks at validation"


def test_evaluate_shows_chance_and_popularity_beside_the_model(events, capsys):
    assert run(["evaluate", str(events), *QUICK, "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {result["model"] for result in results} == {"random", "popularity", "cfnade"}


def test_an_items_table_goes_to_cfnade(events, catalogue, tmp_path, capsys):
    arguments = ["evaluate", str(events), *QUICK, "--json", "-"]
    assert run([*arguments, "--items", str(catalogue)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    settings = {result["model"]: result["settings"] for result in results}
    assert "half" in settings["cfnade"]["feature_strengths"]
    other = tmp_path / "other.csv"
    other.write_text("item_id,genre\nx,War\ny,War\n")
    for command in ("compare", "evaluate", "sweep"):
        check_refused(
            capsys, [command, str(events), "--items", str(other)], "has none of the items"
        )


def test_evaluate_judges_the_probabilities(events, capsys):
    assert run(["evaluate", str(events), *QUICK, "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    by_model = {result["model"]: result["calibration"] for result in results}
    assert by_model["popularity"] is None
    judged = by_model["cfnade"]
    assert 0 < judged["base_rate"] < 1 and judged["n_users"] > 0
    assert judged["calibrated"]["ece"] < judged["sigmoid"]["ece"]
    assert run(["evaluate", str(events), *QUICK]) == 0
    told = capsys.readouterr().out
    assert "weighting undone" in told and "Brier skill" in told


def test_evaluate_validates_as_the_settings_say(events, capsys):
    arguments = ["evaluate", str(events), *QUICK, "--json", "-"]
    for more, by in [
        ([], "pairs"),
        (["--set", "validation_by=events"], "events"),
        (["--set", "validation_by=events", "--validation-by", "pairs"], "pairs"),
    ]:
        assert run([*arguments, *more]) == 0
        assert json.loads(capsys.readouterr().out)["protocol"]["validation_by"] == by
    assert run(["compare", str(events), "--validation-by", "time"]) == 2
    assert "--validation-by must be one of pairs, events, sessions" in last_error(capsys)


def write_log(path, order="date"):
    """Users with 12 events each in the order of their items, which wander over the days."""
    lines = [f"user,item,{order}\n"]
    for user in range(40):
        for place in range(12):
            day = f"2024-05-{1 + place + user % 5:02d}" if order == "date" else place
            lines.append(f"{user},i{(user // 2 + place * (1 + user % 3)) % 15},{day}\n")
    lines.append("99,new," + ("2024-05-16" if order == "date" else "0") + "\n")
    path.write_text("".join(lines))
    return path


def test_compare_splits_by_time_if_it_can_and_says_so(tmp_path, capsys):
    log = write_log(tmp_path / "log.csv")
    arguments = ["compare", str(log), "--models", "popularity", "--json", "-"]
    assert run(arguments) == 0
    shown = capsys.readouterr()
    protocol = json.loads(shown.out)["protocol"]
    assert protocol["split"] == "time"
    assert protocol["split_time"].startswith("2024-05-1")
    assert (protocol["n_born_users"], protocol["n_born_items"]) == (1, 1)
    assert f"from {protocol['split_time']} on, are the test part" in shown.err
    assert run(arguments[:-2]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"all events from {protocol['split_time']} on, without 1 pair of 1 user and 1" in shown
    for split in ("last", "random"):
        assert run([*arguments, "--split", split]) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out)["protocol"]["split"] == split
        assert "are the test part" not in shown.err
    assert run([*arguments, "--time-col", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["protocol"]["split"] == "random"


def test_an_order_is_split_by_the_last_events_and_not_by_time(tmp_path, capsys):
    log = write_log(tmp_path / "log.csv", order="position")
    assert run(["compare", str(log), "--models", "popularity"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The test part is the last events of each user" in shown
    check_refused(capsys, ["compare", "LOG", "--split", "time"], "compared across users", LOG=log)
    check_refused(
        capsys,
        ["compare", "LOG", "--split", "x"],
        "split must be one of random, time, last",
        LOG=log,
    )
    wrong = ["compare", "LOG", "--split", "last", "--validation-by", "pairs"]
    check_refused(capsys, wrong, "leave out --validation-by", LOG=log)


def test_settings_tuned_with_one_split_are_not_judged_on_another(tmp_path, capsys):
    log, settings = write_log(tmp_path / "log.csv"), tmp_path / "settings.toml"
    tuned = ["tune", str(log), "--out", str(settings), "--trials", "1", *QUICK]
    assert run(tuned) == 0
    capsys.readouterr()
    judged = ["evaluate", str(log), "--settings", str(settings), *QUICK]
    assert run([*judged, "--split", "random"]) == 2
    assert "split 'time': with seed 0, 0.1 and 'random' some test pairs" in capsys.readouterr().err
    assert run(judged) == 0


def test_compare_prints_a_table_and_writes_json(events, tmp_path, capsys):
    out = tmp_path / "deep" / "table.json"
    assert run(["compare", str(events), "--models", "popularity,ease", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "popularity" in printed and "MPR" in printed
    written = json.loads(out.read_text())
    assert [r["model"] for r in written["results"]] == ["ease", "popularity"]
    mpr = written["results"][0]["metrics"]["mpr"]
    assert f"* {mpr:.2f}" in printed  # the best
    assert f"* {written['results'][1]['metrics']['mpr']:.2f}" not in printed


def test_a_fixed_test_part_tells_what_it_leaves_out(events, tmp_path, capsys):
    test = tmp_path / "test.csv"
    unseen = next(k for k in range(20) if group_counts()[[0]].toarray()[0, k] == 0)
    test.write_text(f"user_id,item_id\n0,i{unseen}\n0,i0\nnew-user,i3\n1,new-item\n")
    arguments = ["compare", str(events), "--test", str(test), "--models", "popularity"]
    assert run([*arguments, "--json", "-"]) == 0
    told = capsys.readouterr()
    protocol = json.loads(told.out)["protocol"]
    assert protocol["n_unknown_user_pairs"] == protocol["n_unknown_item_pairs"] == 1
    assert "2 of 4 test pairs are left out" in told.err
    assert "only 1 user tested" in told.err
    assert not any(result["to_best"] for result in json.loads(told.out)["results"])


def test_where_the_test_repeats_train_a_line_says_how_validation_is_split(events, tmp_path, capsys):
    test = tmp_path / "test.csv"
    rows = "".join(f"{user},i{k}\n" for user in range(60) for k in range(20))
    arguments = ["compare", str(events), "--test", str(test), "--models", "popularity"]
    for once_or_twice, told in [(rows, "the last session"), (rows * 2, "split by events")]:
        test.write_text("user_id,item_id\n" + once_or_twice)
        assert run(arguments) == 0
        assert told in capsys.readouterr().err
    assert run([*arguments, "--validation-by", "pairs"]) == 0
    assert "validation is split" not in capsys.readouterr().err


def test_sweep_shows_and_draws_mpr_against_alpha(events, tmp_path, capsys):
    figure = tmp_path / "mpr.svg"
    arguments = ["sweep", str(events), "--models", "imf", "--alphas", "1,10"]
    assert run([*arguments, "--figure", str(figure)]) == 0
    shown = capsys.readouterr()
    assert "alpha" in shown.out and f"drew {figure}" in shown.err
    assert "<svg" in figure.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "nowhere.csv"], "nowhere.csv"),
        (["compare", "DATA", "--item-col", "film"], "'user_id', 'item_id'"),
        (["compare", "DATA", "--models", "svd"], "there is no model 'svd'"),
        (["compare", "DATA", "--models", ","], "at least one model"),
        (["compare", "DATA", "--candidates", "some"], "some"),
        (["sweep", "DATA", "--alphas", "1,x"], "--alphas takes numbers"),
        (["sweep", "DATA", "--figure", "mpr.bmp"], ".svg or .png, got 'mpr.bmp'"),
    ],
)
def test_wrong_use_ends_in_one_line_and_exit_code_2(arguments, message, events, capsys):
    check_refused(capsys, arguments, message, DATA=events)


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    pairs = group_counts().tocoo()
    frame = pd.DataFrame({"user": pairs.row, "item": pairs.col, "count": pairs.data})
    path = tmp_path_factory.mktemp("data") / "plays.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("2m", 120.0), ("1.5m", 90.0), ("1h", 3600.0), ("45", 45.0), ("none", None)],
)
def test_a_budget_is_a_time(text, seconds) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-3s", "soon", "2 m", "1d", "nan"])
def test_another_budget_is_refused(text) -> None:
    with pytest.raises(ConfigError, match="--budget takes a time such as 90s, 2m or none, got"):
        parse_seconds(text)


def test_a_wrong_budget_is_refused_before_the_table_is_read(capsys) -> None:
    assert run(["compare", "nowhere.csv", "--budget", "soon"]) == 2
    assert "--budget takes a time such as 90s" in capsys.readouterr().err


def test_lists_are_judged_on_request_in_table_and_json(events, tmp_path, capsys):
    out = tmp_path / "table.json"
    arguments = ["compare", str(events), "--models", "popularity,ease", "--json", str(out)]
    assert run(arguments) == 0
    assert "coverage" not in capsys.readouterr().out
    assert json.loads(out.read_text())["results"][0]["beyond_accuracy"] is None
    assert run([*arguments, "--beyond-accuracy"]) == 0
    shown = capsys.readouterr().out
    assert "the first 20 items for each tested user" in shown and "novelty" in shown
    for result in json.loads(out.read_text())["results"]:
        found = result["beyond_accuracy"]
        assert list(found) == ["n", "coverage", "gini", "novelty", "diversity"]
        assert found["n"] == 20 and f"{100 * found['coverage']:.1f}" in shown


def test_budget_and_trials_bound_the_search_and_are_in_table_and_json(plays, tmp_path, capsys):
    out = tmp_path / "table.json"
    arguments = ["compare", str(plays), "--models", "popularity,ease", "--json", str(out)]
    for options, budget, words in [
        ([], {"seconds": 60.0, "max_trials": 20}, "60 s and at most 20 trials a model"),
        (
            ["--budget", "2m", "--trials", "2"],
            {"seconds": 120.0, "max_trials": 2},
            "120 s and at most 2 trials a model",
        ),
        (["--budget", "none"], {"seconds": None, "max_trials": 20}, "at most 20 trials a model"),
    ]:
        assert run([*arguments, *options]) == 0
        written = json.loads(out.read_text())
        assert written["budget"] == budget
        assert max(r["n_settings"] for r in written["results"]) <= budget["max_trials"]
        shown = capsys.readouterr().out
        assert "trials" in shown and "looks" in shown
        assert f"chosen on validation in {words}" in " ".join(shown.split())


def test_every_stage_and_every_finished_model_has_a_line(plays, capsys, monkeypatch):
    monkeypatch.setattr(console, "LOG_EVERY", 0.0)
    assert run(["compare", str(plays), "--models", "ease"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ease: choosing settings"
    tried = [line for line in lines if "tried" in line]
    pattern = r"ease: choosing settings, {} tried, best validation MPR \d+\.\d\d %"
    assert re.fullmatch(pattern.format("1 setting"), tried[0])
    assert re.fullmatch(pattern.format("2 settings"), tried[1])
    assert lines[-3:-1] == ["ease: final fit", "ease: testing"]
    assert re.match(FINDING, lines[-1])


def test_trials_are_not_logged_more_often_than_every_ten_seconds(plays, capsys):
    assert console.LOG_EVERY == 10.0
    assert run(["compare", str(plays), "--models", "ease"]) == 0
    assert "tried, best" not in capsys.readouterr().err


def test_a_setting_at_an_end_of_its_grid_is_named_in_line_and_caption(plays, capsys, monkeypatch):
    narrow = Contender(
        EASE, {"regularization": 1e6}, {"regularization": (1e6, 2e6, 1e7)}
    )  # far too much
    monkeypatch.setattr(cmd_compare, "MODELS", {"mine": lambda seed: narrow})
    assert run(["compare", str(plays), "--models", "mine"]) == 0
    shown = capsys.readouterr()
    end = "regularization=1e+06 is the smallest value tried"
    assert shown.err.splitlines()[-1].endswith(f"; {end}")
    assert f"mine: {end}." in " ".join(shown.out.split())


def test_after_ctrl_c_the_same_command_goes_on(plays, capsys, monkeypatch):
    def press_ctrl_c(seed):
        def make(**settings):
            raise KeyboardInterrupt

        return Contender(make)

    arguments = ["compare", str(plays), "--models", "ease,popularity", "--seed", "7"]
    monkeypatch.setitem(cmd_compare.MODELS, "popularity", press_ctrl_c)
    for more in ([], ["--fresh"]):
        assert run([*arguments, *more]) == 130
        told = capsys.readouterr().err
        assert "stopped; the same command continues with the models that are not done" in told
        assert "ease: choosing settings" in told  # --fresh begins with the first model
    assert run(arguments) == 130
    told = capsys.readouterr().err
    assert "ease: choosing settings" not in told
    assert "(done by an earlier call; --fresh does it again)" in told
    monkeypatch.undo()
    assert run(arguments) == 0
    shown = capsys.readouterr()
    assert "ease: choosing settings" not in shown.err
    assert "popularity: choosing settings" in shown.err
    assert "ease" in shown.out and "popularity" in shown.out
    assert run(arguments) == 0  # it was complete, so nothing is kept
    assert "ease: choosing settings" in capsys.readouterr().err


def test_no_recency_leaves_every_baseline_without_times(tmp_path, capsys):
    log = write_log(tmp_path / "log.csv")
    arguments = ["compare", str(log), "--models", "popularity", "--trials", "1", "--json", "-"]
    looks = []
    for option in ("--recency", "--no-recency"):
        assert run([*arguments, option]) == 0
        (result,) = json.loads(capsys.readouterr().out)["results"]
        assert ("trend_half_life" in result["settings"]) == (option == "--recency")
        looks.append(result["n_looks"])
    assert looks[0] > looks[1] == 1


def test_all_models_are_chosen_by_the_metric_that_is_asked_for(plays, tmp_path, capsys):
    out = tmp_path / "table.json"
    arguments = ["compare", str(plays), "--models", "popularity,ease", "--trials", "2"]
    for options, by, words in (
        ([], None, "for all models by MPR and nDCG@100 alike"),
        (["--choose-by", "mpr"], "mpr", "for all models by mpr;"),
    ):
        assert run([*arguments, *options, "--json", str(out)]) == 0
        written = json.loads(out.read_text())
        assert written["protocol"]["choose_by"] == by
        assert [r["stopped_by"] for r in written["results"] if r["model"] == "ease"] == ["trials"]
        shown = " ".join(capsys.readouterr().out.split())
        assert words in shown and "(trials)" in shown
    assert run([*arguments, "--choose-by", "luck"]) == 2
    assert "no metric 'luck'" in capsys.readouterr().err
