"""`cfnade recommend`, `similar` and `explain` as a user meets them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from cfnade import Dials, ImplicitCFNADE
from cfnade.cli.main import run
from tests.cli.helpers import QUICK, check_refused, recommended, set_options
from tests.networks import group_counts
from tests.planted import window_shopping


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


def test_recommend_takes_dislikes_and_a_list_to_choose_from(model, capsys):
    found = recommended(
        capsys, str(model), "i0", "--dislike", "i4", "--only", "i4", "--only", "i6", "--only", "i8"
    )
    assert {entry["item"] for entry in found} == {"i6", "i8"}
    plain = recommended(capsys, str(model), "i0", "--only", "i6")
    strong = recommended(capsys, str(model), "i0", "--only", "i6", "--dislike", "i4=5000")
    assert plain[0]["probability"] != strong[0]["probability"]


def test_recommend_follows_dials_for_one_and_for_all(model, events, tmp_path, capsys):
    dials = ["--popularity", "-0.5", "--diversity", "0.4", "--pin", "i13=2", "--boost", "i9=3"]
    found = recommended(capsys, str(model), "i0=5", "i2", "-n", "4", *dials)
    asked = Dials(popularity=-0.5, diversity=0.4, pin={"i13": 2}, boost={"i9": 3.0})
    trained = ImplicitCFNADE.load(model)
    ids, scores = trained.recommend_for({"i0": 5, "i2": 1}, 4, dials=asked)
    assert [entry["item"] for entry in found] == ids.tolist() and ids[1] == "i13"
    assert [entry["score"] for entry in found] == pytest.approx(scores, abs=1e-5)
    chances = trained.probability({"i0": 5, "i2": 1}, ids)
    assert [entry["probability"] for entry in found] == pytest.approx(chances, abs=1e-6)
    out = tmp_path / "all.parquet"
    everybody = ["recommend", str(model), "--data", str(events), "-n", "4", "--out", str(out)]
    assert run([*everybody, *dials]) == 0
    capsys.readouterr()
    table = pd.read_parquet(out)
    alone = recommended(capsys, str(model), "--data", str(events), "--user", "3", "-n", "4", *dials)
    of_user = table[table["user_id"] == 3]
    assert of_user["item_id"].tolist() == [entry["item"] for entry in alone]


def test_recommend_tells_because_of_what(model, capsys):
    arguments = ["recommend", str(model), "i0=5", "i2", "i3", "-n", "3", "--explain"]
    found = recommended(capsys, *arguments[1:])
    for entry in found:
        assert all(e["liked"] and e["score"] > 0 for e in entry["because"])
        assert {e["item"] for e in entry["because"]} <= {"i0", "i2", "i3"}
    assert any(entry["because"] for entry in found)
    assert run(arguments) == 0
    assert "because of" in capsys.readouterr().out


def test_an_empty_recommendation_says_why(model, capsys):
    assert run(["recommend", str(model), "i0=5", "--only", "i0"]) == 0
    assert "(see --include-seen)" in capsys.readouterr().err
    assert run(["recommend", str(model), "i0=5", "--only", "i0", "--include-seen"]) == 0
    assert capsys.readouterr().err == ""


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


def test_explain_says_what_the_score_of_an_item_of_the_history_is(model, tmp_path, capsys):
    arguments = ["explain", str(model), "i0", "i0=5", "i3"]
    assert run(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "this model does not score repeats: its score means nothing" in shown
    log = write_repeats(tmp_path / "log.csv")
    folder = str(tmp_path / "repeating")
    assert run(["fit", str(log), "--out", folder, *QUICK]) == 0
    capsys.readouterr()
    arguments = ["explain", folder, "i0", "i0=5", "i3"]
    assert run([*arguments, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["in_history"] and found["probability"] is None
    repeat = found["repeat"]
    assert repeat["count"] == 5 and 0 <= repeat["above"] <= 1
    assert found["score"] == pytest.approx(repeat["from_count"] + repeat["from_item"], abs=1e-5)
    (same,) = [
        e
        for e in recommended(capsys, folder, *arguments[3:], "--include-seen", "-n", "30")
        if e["item"] == "i0"
    ]
    assert same["score"] == pytest.approx(found["score"], abs=1e-5)
    assert run(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "for its count of 5" in shown and "There is no probability for a repeat." in shown
    assert run(["recommend", folder, "i0=5", "i3", "--include-seen", "-n", "30"]) == 0
    assert "items of the history have no probability" in " ".join(capsys.readouterr().out.split())


def write_repeats(path):
    """A log of thirty days in which everybody comes back to some of twenty items."""
    rng = np.random.default_rng(0)
    lines = ["user,item,date\n"]
    for user in range(80):
        own = rng.choice(20, 8, replace=False)
        lines += [f"{user},i{rng.choice(own)},2024-05-{day:02d}\n" for day in range(1, 31)]
    path.write_text("".join(lines))
    return path


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
        (["recommend", "nowhere", "i0"], "there is no model in nowhere"),
        (["recommend", "MODEL", "i0", "--data", "DATA", "--user", "3"], "give a history by"),
        (["recommend", "MODEL", "i0", "--dislike", "i2=0.5"], "weights of disliked items must be"),
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
        (
            ["recommend", "MODEL", "i0", "--diversity", "1"],
            "diversity must be at least 0 and below",
        ),
        (["recommend", "MODEL", "i0", "--pin", "i3=11"], "pinned to place 11 of a list of 10"),
        (["recommend", "MODEL", "i0", "--pin", "x"], "item 'x' is not in this model"),
        (
            ["recommend", "MODEL", "i0", "--at-most", "genre=2"],
            "leave out --at-most and --boost-category",
        ),
        (["recommend", "MODEL", "i0", "--at-most", "genre=0"], "--at-most of 'genre' must be a"),
        (["similar", "MODEL", "x"], "item 'x' is not in this model"),
        (["similar", "nowhere", "i0"], "there is no model in nowhere"),
        (["explain", "MODEL", "x", "i0"], "item 'x' is not in this model"),
        (["explain", "MODEL", "i0"], "give a history by ITEM=COUNT"),
    ],
)
def test_wrong_use_ends_in_one_line_and_exit_code_2(arguments, message, model, events, capsys):
    check_refused(capsys, arguments, message, MODEL=model, DATA=events)


# Times -------------------------------------------------------------------------------------------

HALF_LIFE = set_options(
    readout__history_half_life=86_400, readout__trend_gain=0, readout__popularity_gain=0
)


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """A table with times, and a model whose histories decay with a half-life of a day."""
    folder = tmp_path_factory.mktemp("dated")
    lines = ["user,item,time\n"]
    for user, item, count in zip(*group_counts().nonzero(), group_counts().data, strict=True):
        days = [(3 * item + 7 * user + k) % 28 for k in range(int(count))]
        lines += [f"{user},i{item},2024-05-{1 + day:02d}T12:00:00Z\n" for day in days]
    (folder / "log.csv").write_text("".join(lines))
    arguments = ["fit", str(folder / "log.csv"), "--out", str(folder / "model"), *QUICK, *HALF_LIFE]
    assert run(arguments) == 0
    return folder


def test_times_on_the_command_line_are_those_of_a_table(dated, capsys):
    model, log = str(dated / "model"), str(dated / "log.csv")
    table = pd.read_csv(dated / "log.csv")
    own = table[table["user"] == 3]
    entries = [f"{item}=1@{time}" for item, time in zip(own["item"], own["time"], strict=True)]
    by_table = recommended(capsys, model, "--data", log, "--user", "3")
    assert recommended(capsys, model, *entries) == by_table
    undated = [entry.partition("@")[0] for entry in entries]
    assert recommended(capsys, model, *undated) != by_table
    assert run(["explain", model, by_table[0]["item"], *entries, "--json", "-"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["score"] == pytest.approx(by_table[0]["score"], abs=1e-5)


def test_recommendations_for_all_users_weigh_recent_events(dated, capsys):
    out = dated / "all.parquet"
    arguments = ["recommend", str(dated / "model"), "--data", str(dated / "log.csv")]
    assert run([*arguments, "--out", str(out)]) == 0
    own = pd.read_parquet(out).query("user_id == 3")
    capsys.readouterr()
    single = recommended(capsys, *arguments[1:], "--user", "3")
    assert own["item_id"].tolist() == [entry["item"] for entry in single]
    assert own["score"].tolist() == pytest.approx([entry["score"] for entry in single], abs=1e-5)


def test_a_table_without_times_is_reported(dated, events, capsys):
    assert run(["recommend", str(dated / "model"), "--data", str(events), "--user", "3"]) == 0
    assert "data have no times: all events of a history weigh the same" in capsys.readouterr().err


@pytest.mark.parametrize("when", ["soon", "2024", "31.5.2024", ""])
def test_a_time_that_cannot_be_read_ends_in_one_line(dated, capsys, when):
    arguments = ["recommend", "MODEL", f"i0=2@{when}"]
    message = "a time must be a date or time such as 2024-05-31 or 2024-05-31T18:30:00Z"
    check_refused(capsys, arguments, message, MODEL=dated / "model")


def test_times_with_and_without_a_zone_end_in_one_line(dated, capsys):
    arguments = ["recommend", "MODEL", "i0=2@2024-05-01T10:00:00Z", "i1=1@2024-05-02T10:00:00"]
    message = "some times of the history have a time zone and others have none"
    check_refused(capsys, arguments, message, MODEL=dated / "model")


# Kinds of events ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A log of views, carts and purchases, and a model that predicts purchases."""
    folder = tmp_path_factory.mktemp("shop")
    log = window_shopping().log
    frame = pd.DataFrame({"user": log.user, "item": [f"i{item}" for item in log.item]})
    frame["event"] = [log.kinds[kind] for kind in log.kind]
    frame.to_csv(folder / "log.csv", index=False)
    arguments = ["fit", str(folder / "log.csv"), "--out", str(folder / "model"), *QUICK]
    assert run([*arguments, "--target-event", "buy"]) == 0
    return folder


def test_events_on_the_command_line_are_those_of_a_table(shop, capsys):
    model, log = str(shop / "model"), str(shop / "log.csv")
    table = pd.read_csv(shop / "log.csv")
    own = table[table["user"] == 3]
    entries = [f"{item}={kind}:1" for item, kind in zip(own["item"], own["event"], strict=True)]
    by_table = recommended(capsys, model, "--data", log, "--user", "3", "-n", "40")
    assert recommended(capsys, model, *entries, "-n", "40") == by_table
    listed = {entry["item"] for entry in by_table}
    assert not listed & set(own["item"][own["event"] == "buy"])
    assert listed >= set(own["item"][own["event"] == "cart"]) - set(
        own["item"][own["event"] == "buy"]
    )
    out = shop / "all.parquet"
    assert run(["recommend", model, "--data", log, "--out", str(out), "-n", "40"]) == 0
    written = pd.read_parquet(out).query("user_id == 3")
    assert written["item_id"].tolist() == [entry["item"] for entry in by_table]


def test_weights_of_events_are_those_given(shop, capsys):
    weights = "view=1,cart=3,buy=10,skip=-1"
    out = str(shop / "weighed")
    arguments = ["fit", str(shop / "log.csv"), "--out", out, *QUICK, "--event-weights", weights]
    assert run(arguments) == 0
    expected = {"view": 1.0, "cart": 3.0, "buy": 10.0, "skip": -1.0}
    assert ImplicitCFNADE.load(out).event_weights_ == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--event-weights", "view=1"], "event 'buy' has no weight; name one for each of"),
        (["--event-weights", "wish=1"], "there is no event 'wish' to weigh; the events are 'buy'"),
        (["--event-weights", "view"], "--event-weights takes NAME=VALUE, got 'view'"),
        (["--event-weights", "view=much"], "expected a number for each event"),
        (["--event-weights", "view=1, view=2,buy=1"], "event 'view' has two weights"),
        (["--target-event", "wish"], "there is no event 'wish' to predict; the events are 'buy'"),
    ],
)
def test_wrong_events_end_in_one_line(shop, capsys, options, message):
    arguments = ["fit", "LOG", "--out", "OUT", *options]
    check_refused(capsys, arguments, message, LOG=shop / "log.csv", OUT=shop / "none")


def test_an_event_that_the_model_lacks_ends_in_one_line(shop, capsys):
    check_refused(
        capsys, ["recommend", "MODEL", "i1=wish:1"], "knows no event 'wish'", MODEL=shop / "model"
    )


def test_categories_choose_and_exclude_items(described_model, capsys):
    base = [str(described_model), "i0", "-n", "30"]

    def items(*filters):
        return {entry["item"] for entry in recommended(capsys, *base, *filters)}

    films = {f"i{k}" for k in range(2, 22, 2)}
    assert items("--only", "category=film") == films  # i20, which nobody has, among them
    assert items("--only", "category=film", "--only", "genres=drama") == {"i2", "i4", "i6"}
    assert items("--only", "category=film", "--only", "category=series") == {
        f"i{k}" for k in range(1, 22)
    }
    assert items("--exclude", "category=series", "--exclude", "i2") == films - {"i2"}
    assert items("--exclude", "category=series", "--exclude", "genres=Drama") == {
        f"i{k}" for k in range(8, 22, 2)
    }


def test_similar_items_can_be_chosen_by_category(described_model, capsys):
    arguments = ["similar", str(described_model), "i20", "--only", "category=film", "--json", "-"]
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)["similar"]
    assert {entry["item"] for entry in found} <= {f"i{k}" for k in range(0, 20, 2)}


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (["--only", "category=flm"], "no item has category=flm; did you mean film?"),
        (["--exclude", "kind=film"], "nothing is known about the items' kind"),
        (["--only", "category=film", "--only", "i3"], "--only takes items or categories, not both"),
    ],
)
def test_a_wrong_category_ends_in_one_line(described_model, capsys, filters, message):
    check_refused(capsys, ["recommend", str(described_model), "i0", *filters], message)


def test_a_model_without_an_items_table_knows_no_categories(model, capsys):
    arguments = ["recommend", str(model), "i0", "--only", "category=film"]
    check_refused(capsys, arguments, "the model was fitted without an items table")


def test_explanations_name_what_items_have_in_common(described_model, capsys):
    assert run(["explain", str(described_model), "i20", "i0", "i9", "--json", "-"]) == 0
    effects = json.loads(capsys.readouterr().out)["effects"]
    shared = {effect["item"]: effect["shared"] for effect in effects}
    assert shared == {
        "i0": {"category": ["film"], "genres": ["War"]},
        "i9": {"genres": ["War"]},
    }
    assert run(["explain", str(described_model), "i20", "i0", "i9"]) == 0
    assert "category=film; genres=War" in capsys.readouterr().out
    assert run(["recommend", str(described_model), "i0", "--explain"]) == 0
    assert "category=film" in capsys.readouterr().out


def test_a_trained_model_keeps_its_weights_of_events(shop, capsys):
    arguments = ["fit", "LOG", "--start-from", "MODEL", "--out", "OUT", "--target-event", "buy"]
    places = {"LOG": shop / "log.csv", "MODEL": shop / "model", "OUT": shop / "more"}
    check_refused(capsys, arguments, "do not go with --start-from", **places)


# Names -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named_model(events, tmp_path_factory):
    """Items 0 to 17 have a name of their own, the last two share one."""
    folder = tmp_path_factory.mktemp("named")
    rows = [f"i{k},Band {'ABCDEFGHIJKLMNOPQR'[k]}\n" for k in range(18)]
    names = folder / "names.csv"
    names.write_text("item,name\n" + "".join(rows) + "i18,Twins\ni19,Twins\n")
    out = folder / "model"
    arguments = ["fit", str(events), "--out", str(out), "--names", str(names), *QUICK]
    assert run(arguments) == 0
    return out


def test_items_are_found_by_name(named_model, capsys):
    by_id = recommended(capsys, str(named_model), "i0=5", "i2", "--exclude", "i4", "--pin", "i6")
    by_name = recommended(
        capsys, str(named_model), "band a=5", "Band C", "--exclude", "Band E", "--pin", "BAND G"
    )
    assert by_name == by_id and by_id[0]["name"] == "Band G"
    assert run(["similar", str(named_model), "Band E", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["item"] == "i4"
    assert run(["explain", str(named_model), "Band E", "Band A=5", "--json", "-"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert (explained["item"], explained["effects"][0]["item"]) == ("i4", "i0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommend", "MODEL", "Bend A"], "(20 items); did you mean Band A (i0)"),
        (["similar", "MODEL", "Twin"], "did you mean Twins (i18) or Twins (i19)?"),
        (["explain", "MODEL", "twins", "i0"], "2 items are called 'twins': "),
    ],
)
def test_an_unclear_name_is_refused_with_what_may_be_meant(arguments, message, named_model, capsys):
    check_refused(capsys, arguments, message, MODEL=named_model)
