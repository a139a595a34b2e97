"""The command line as a user meets it: exit codes, one-line errors, files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from rich.console import Console

from cfnade.cli import console
from cfnade.cli.main import run
from tests.networks import group_counts

QUICK = [
    "--set",
    "n_hidden=8",
    "--set",
    "max_epochs=6",
    "--set",
    "learning_rate=0.02",
]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """An event log: one row for each count."""
    pairs = group_counts().tocoo()
    rows = pairs.data.astype(int)
    frame = pd.DataFrame(
        {"user_id": pairs.row.repeat(rows), "item_id": [f"i{k}" for k in pairs.col.repeat(rows)]}
    )
    path = tmp_path_factory.mktemp("data") / "events.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(events, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    assert run(["fit", str(events), "--out", str(folder), *QUICK]) == 0
    return folder


def last_error(capsys) -> str:
    """The one line of an error; stages of the job may be logged before it."""
    *stages, last = capsys.readouterr().err.strip().splitlines()
    known = r"\S+: (choosing settings|final fit|testing|MPR .*)"
    assert all(re.fullmatch(known, line) for line in stages)
    assert last.startswith("cfnade: ")
    return last


def test_fit_saves_a_model_and_leaves_no_checkpoint(model):
    assert sorted(path.name for path in model.parent.iterdir()) == ["model"]
    described = json.loads((model / "model.json").read_text())
    assert described["settings"]["n_hidden"] == 8
    assert described["data"]["n_users"] == 60


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
    base = ["fit", str(more_events), "--start-from", str(model), "--out", str(tmp_path / "x")]
    assert run([*base, *options]) == 2
    assert message in last_error(capsys)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("options", [["--epochs", "3"], ["--train", "new"]])
def test_options_of_going_on_are_told_where_there_is_nothing_to_go_on_from(
    more_events, tmp_path, capsys, options
):
    assert run(["fit", str(more_events), "--out", str(tmp_path / "x"), *options]) == 2
    assert "--epochs and --train need --start-from" in last_error(capsys)


def test_recommend_takes_a_history_by_id(model, capsys):
    arguments = ["recommend", str(model), "i0=5", "i2", "-n", "3"]
    assert run([*arguments, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["recommendations"]
    assert len(found) == 3
    assert not {"i0", "i2"} & {entry["item"] for entry in found}
    assert run(arguments) == 0
    assert found[0]["item"] in capsys.readouterr().out


def test_recommend_gives_scores_and_calibrated_probabilities(model, capsys):
    arguments = ["recommend", str(model), "i0=5", "i2", "-n", "20"]
    assert run([*arguments, "--include-seen", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["recommendations"]
    probability = {entry["item"]: entry["probability"] for entry in found}
    assert probability["i0"] is None and probability["i2"] is None
    values = [value for value in probability.values() if value is not None]
    assert len(values) == 18 and values == sorted(values, reverse=True)
    scores = [entry["score"] for entry in found]
    assert scores == sorted(scores, reverse=True)
    assert run([*arguments, "--dislike", "i3"]) == 0
    shown = capsys.readouterr().out
    assert "probability" in shown and "score" not in shown


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


def test_recommend_takes_the_history_of_a_user_of_a_table(model, events, capsys):
    arguments = ["recommend", str(model), "--data", str(events), "--user", "3", "--json", "-"]
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)["recommendations"]
    seen = {f"i{item}" for item in group_counts()[[3]].indices}
    assert found and not seen & {entry["item"] for entry in found}


def test_recommend_leaves_out_what_it_is_told_to(model, capsys):
    base = ["recommend", str(model), "i0", "-n", "30", "--json", "-"]
    assert run([*base, "--exclude", "i3", "--include-seen"]) == 0
    items = {e["item"] for e in json.loads(capsys.readouterr().out)["recommendations"]}
    assert items == {f"i{k}" for k in range(20)} - {"i3"}


def recommended(capsys, *arguments: str) -> list[dict]:
    assert run(["recommend", *arguments, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)["recommendations"]


def test_recommend_takes_dislikes_and_a_list_to_choose_from(model, capsys):
    found = recommended(
        capsys, str(model), "i0", "--dislike", "i4", "--only", "i4", "--only", "i6", "--only", "i8"
    )
    assert {entry["item"] for entry in found} == {"i6", "i8"}
    plain = recommended(capsys, str(model), "i0", "--only", "i6")
    strong = recommended(capsys, str(model), "i0", "--only", "i6", "--dislike", "i4=5000")
    assert plain[0]["probability"] != strong[0]["probability"]


def test_recommend_tells_because_of_what(model, capsys):
    arguments = ["recommend", str(model), "i0=5", "i2", "i3", "-n", "3", "--explain"]
    found = recommended(capsys, *arguments[1:])
    for entry in found:
        assert all(e["liked"] and e["score"] > 0 for e in entry["because"])
        assert {e["item"] for e in entry["because"]} <= {"i0", "i2", "i3"}
    assert any(entry["because"] for entry in found)
    assert run(arguments) == 0
    assert "because of" in capsys.readouterr().out


def test_recommend_for_all_users_writes_what_it_would_say_to_each(model, events, tmp_path, capsys):
    out = tmp_path / "deep" / "all.parquet"
    arguments = ["recommend", str(model), "--data", str(events), "-n", "3", "--exclude", "i1"]
    assert run([*arguments, "--out", str(out), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    table = pd.read_parquet(out)
    assert told == {"file": str(out), "n_users": 60, "n_recommendations": len(table)}
    assert list(table.columns) == ["user_id", "item_id", "rank", "score", "probability"]
    assert table["user_id"].nunique() == 60 and not (table["item_id"] == "i1").any()
    assert [path.name for path in out.parent.iterdir()] == ["all.parquet"]
    alone = recommended(capsys, *arguments[1:], "--user", "3")
    of_user = table[table["user_id"] == 3]
    assert of_user["item_id"].tolist() == [entry["item"] for entry in alone]
    assert of_user["rank"].tolist() == [1, 2, 3]


def test_a_table_with_items_the_model_does_not_know_is_told(model, tmp_path, capsys):
    table = tmp_path / "more.csv"
    table.write_text("user_id,item_id\nanna,i0\nanna,new-1\nben,new-2\n")
    out = tmp_path / "all.parquet"
    assert run(["recommend", str(model), "--data", str(table), "--out", str(out)]) == 0
    assert "item 'new-1' and 1 more are not in this model" in capsys.readouterr().err
    assert pd.read_parquet(out)["user_id"].tolist() == ["anna"] * 10 + ["ben"] * 10
    table.write_text("user_id,item_id\nanna,new-1\n")
    assert run(["recommend", str(model), "--data", str(table), "--out", str(out)]) == 2
    assert "the model knows none of the items: they look like 'new-1'" in capsys.readouterr().err


def test_similar_finds_other_items(model, capsys):
    assert run(["similar", str(model), "i4", "-n", "5", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["item"], told["name"], len(told["similar"])) == ("i4", "i4", 5)
    assert "i4" not in {entry["item"] for entry in told["similar"]}
    assert run(["similar", str(model), "i4", "--only", "i6", "--exclude", "i5"]) == 0
    shown = capsys.readouterr().out
    assert "like i4" in shown and "i6" in shown


def test_explain_tells_what_each_entry_does(model, events, capsys):
    arguments = ["explain", str(model), "i6", "i0=5", "i3", "--dislike", "i5=9"]
    assert run([*arguments, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["item"] == "i6" and 0 < told["probability"] < 1
    assert {e["item"]: e["liked"] for e in told["effects"]} == {"i0": True, "i3": True, "i5": False}
    assert run(arguments) == 0
    assert "i5 (disliked)" in capsys.readouterr().out
    of_user = ["explain", str(model), "i6", "--data", str(events), "--user", "3", "--json", "-"]
    assert run(of_user) == 0
    told = json.loads(capsys.readouterr().out)
    assert {e["item"] for e in told["effects"]} == {f"i{k}" for k in group_counts()[[3]].indices}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommend", "MODEL", "x"], "item 'x' is not in this model (20 items)"),
        (["recommend", "MODEL"], "give a history by ITEM=COUNT"),
        (["recommend", "MODEL", "--user", "3"], "--user and --data go together"),
        (["recommend", "MODEL", "i0=many"], "ITEM or ITEM=COUNT, got 'i0=many'"),
        (["recommend", "MODEL", "--data", "DATA", "--user", "77"], "user '77' is not in the table"),
        (["recommend", "nowhere", "i0"], "there is no model in nowhere"),
        (["recommend", "MODEL", "i0", "--data", "DATA", "--user", "3"], "give a history by"),
        (["recommend", "MODEL", "i0", "--dislike", "i2=0.5"], "weights of disliked items must be"),
        (["recommend", "MODEL", "i0", "--dislike", "i2=x"], "ITEM or ITEM=WEIGHT, got 'i2=x'"),
        (["recommend", "MODEL", "i0", "--dislike", "i0"], "both in the history and disliked"),
        (["recommend", "MODEL", "i0", "--only", "x"], "item 'x' is not in this model"),
        (["recommend", "MODEL", "i0", "--out", "r.parquet"], "--out is for all users of a table"),
        (
            ["recommend", "MODEL", "--data", "DATA", "--out", "r.csv"],
            "a .parquet file, got 'r.csv'",
        ),
        (
            ["recommend", "MODEL", "--data", "DATA", "--out", "/proc/nowhere/r.parquet"],
            "/proc/nowhere",
        ),
        (["similar", "MODEL", "x"], "item 'x' is not in this model"),
        (["similar", "nowhere", "i0"], "there is no model in nowhere"),
        (["explain", "MODEL", "x", "i0"], "item 'x' is not in this model"),
        (["explain", "MODEL", "i0"], "give a history by ITEM=COUNT"),
        (["compare", "nowhere.csv"], "nowhere.csv"),
        (["compare", "DATA", "--item-col", "film"], "'user_id', 'item_id'"),
        (["compare", "DATA", "--models", "svd"], "there is no model 'svd'"),
        (["compare", "DATA", "--candidates", "some"], "some"),
        (["sweep", "DATA", "--alphas", "1,x"], "--alphas takes numbers"),
        (["fit", "DATA", "--out", "OUT", "--set", "depth=3"], "there is no setting 'depth'"),
        (["fit", "DATA", "--out", "OUT", "--set", "alpha"], "--set takes NAME=VALUE"),
        (["fit", "DATA", "--out", "OUT", "--set", "n_hidden=0"], "n_hidden must be"),
        (["fit", "DATA", "--out", "OUT", "--recipe", "best"], "there is no recipe 'best'"),
        (["fit", "DATA", "--out", "OUT", "--set", "alpha=much"], "alpha must be a finite number"),
        (["fit", "DATA", "--out", "OUT", "--set", "max_epochs=0"], "max_epochs must be"),
        (["fit", "DATA", "--out", "OUT", "--resume"], "there is no checkpoint in"),
        (["fit", "DATA", "--out", "OUT", "--seed", "-1"], "seed"),
        (["fit", "DATA", "--out", "/proc/nowhere/model"], "/proc/nowhere"),
        (["fit", "DATA", "--out", "."], "not a saved model"),
        (["sweep", "DATA", "--figure", "mpr.bmp"], ".svg or .png, got 'mpr.bmp'"),
        (["compare", "DATA", "--models", ","], "at least one model"),
        (["fit", "DATA"], "--out"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_use_ends_in_one_line_and_exit_code_2(
    arguments, message, model, events, tmp_path, capsys
):
    known = {"MODEL": str(model), "DATA": str(events), "OUT": str(tmp_path / "out")}
    assert run([known.get(argument, argument) for argument in arguments]) == 2
    assert message in last_error(capsys)


def test_a_missing_column_names_those_there_are(events, capsys):
    assert run(["data", "describe", str(events), "--user-col", "viewer"]) == 2
    line = last_error(capsys)
    assert "viewer" in line and "user_id" in line and "item_id" in line


def test_describe_tells_how_a_table_is_read(events, capsys):
    assert run(["data", "describe", str(events), "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["n_users"], facts["n_items"]) == (60, 20)
    assert facts["count_max"] == group_counts().data.max()


def test_evaluate_shows_chance_and_popularity_beside_the_model(events, capsys):
    assert run(["evaluate", str(events), *QUICK, "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {result["model"] for result in results} == {"random", "popularity", "cfnade"}


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


@pytest.mark.parametrize(("width", "has_all"), [(80, False), (160, True)])
def test_the_table_fits_the_terminal(events, capsys, monkeypatch, width, has_all):
    monkeypatch.setattr(console, "out", Console(width=width))
    assert run(["compare", str(events), "--models", "popularity,ease", "--trials", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (heads,) = [line for line in lines if "ndcg@100" in line]
    assert all(name in heads for name in ("MPR % (95 %)", "trials", "looks", "search s"))
    assert ("recall@50" in heads) == has_all
    assert sum("popularity" in line for line in lines) == 1  # no row is broken in two


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("user,item,qty", "each row counts as one event; unused columns: 'qty'"),
        ("user,item,timestamp", ""),
        ("user,item,plays", ""),
    ],
)
def test_a_column_that_may_hold_counts_and_is_not_read_is_told(tmp_path, capsys, header, told):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n1,a,3\n2,b,4\n")
    assert run(["data", "describe", str(path)]) == 0
    assert capsys.readouterr().err.startswith(told)
    assert run(["data", "describe", str(path), "--events"]) == 0
    assert capsys.readouterr().err == ""


def test_json_to_standard_output_has_nothing_else_on_it(events, capsys):
    assert run(["compare", str(events), "--models", "popularity", "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)


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


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--user-col", "who"], "name one of these as --user-col"),
        (["--test-share", "1.5"], "--test-share must be"),
        (["--trials", "0"], "see cfnade compare --help"),
        (["--models", "cfnade", "--trials", "x"], "see cfnade compare --help"),
    ],
)
def test_errors_name_options_and_not_arguments_of_python(events, capsys, wrong, told):
    assert run(["compare", str(events), *wrong]) == 2
    assert told in last_error(capsys)


@pytest.mark.parametrize("name", ["readout__direct", "recipe__refit", "recipe__item_mean"])
def test_a_switch_is_true_or_false_and_no_other_text(events, capsys, name):
    assert run(["evaluate", str(events), "--set", f"{name}=no"]) == 2
    inner = name.split("__")[1]
    assert f"{inner} must be true or false, got 'no'" in last_error(capsys)


def test_an_empty_recommendation_says_why(model, capsys):
    assert run(["recommend", str(model), "i0=5", "--only", "i0"]) == 0
    assert "(see --include-seen)" in capsys.readouterr().err
    assert run(["recommend", str(model), "i0=5", "--only", "i0", "--include-seen"]) == 0
    assert capsys.readouterr().err == ""


def test_simulate_writes_a_service_that_the_other_commands_read(tmp_path, capsys):
    out = tmp_path / "service"
    assert run(["data", "simulate", "--size", "tiny", "--out", str(out), "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["oracle_mpr"] < summary["popularity_mpr"]
    assert run(["data", "describe", str(out / "interactions"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["n_users"] == summary["n_users"]


def test_every_command_has_help_with_an_example(capsys):
    for command in (["demo"], ["fit"], ["evaluate"], ["compare"], ["sweep"], ["recommend"],
                    ["similar"], ["explain"], ["tune"], ["inspect"], ["export"], ["serve"],
                    ["data", "describe"], ["data", "simulate"],
                    ["scale", "prepare"], ["scale", "train"], ["scale", "score"]):  # fmt: skip
        assert run([*command, "--help"]) == 0
        examples = capsys.readouterr().out.partition("Example: ")[2]
        assert f"cfnade {' '.join(command)}" in examples


def test_the_version_is_that_of_the_package(capsys):
    from importlib.metadata import version

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"cfnade {version('cfnade')}\n"


def test_an_unwritable_place_is_told_not_traced(events, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "table.json"
    assert run(["compare", str(events), "--models", "popularity", "--json", str(target)]) == 2
    assert "cannot write" in last_error(capsys)


def test_an_interrupted_fit_says_how_to_go_on_and_goes_on(events, tmp_path):
    out = tmp_path / "model"
    settings = [
        "--set",
        "n_hidden=8",
        "--set",
        "item_l2=0.1",
        "--set",
        "max_epochs=100000",
        "--set",
        "patience=100000",
    ]
    command = [sys.executable, "-m", "cfnade", "fit", str(events), "--out", str(out)]
    process = subprocess.Popen(
        [*command, *settings], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    state = tmp_path / "model.checkpoint" / "search" / "state.json"
    deadline = time.monotonic() + 60
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert state.exists()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors and "Traceback" not in errors
    settings = [
        "--set",
        "n_hidden=8",
        "--set",
        "item_l2=0.1",
        "--set",
        "max_epochs=3",
        "--set",
        "patience=100000",
    ]
    done = subprocess.run([*command, *settings, "--resume"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (out / "model.json").exists()
