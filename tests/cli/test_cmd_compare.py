"""`cfnade evaluate`, `compare` and `sweep` as a user meets them."""

from __future__ import annotations

import json

import pytest

from cfnade.cli.main import run
from tests.cli.helpers import QUICK, check_refused, last_error
from tests.networks import group_counts


def test_evaluate_shows_chance_and_popularity_beside_the_model(events, capsys):
    assert run(["evaluate", str(events), *QUICK, "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {result["model"] for result in results} == {"random", "popularity", "cfnade"}


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
