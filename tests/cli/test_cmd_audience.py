"""`cfnade recommend-users` as a user meets it."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from cfnade import ImplicitCFNADE
from cfnade.cli.main import run
from tests.cli.helpers import check_refused
from tests.networks import group_counts


def test_users_are_those_of_the_estimator(model, events, capsys):
    arguments = ["recommend-users", str(model), "i4", "i7", "--data", str(events), "-n", "5"]
    assert run([*arguments, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["items"]
    expected = ImplicitCFNADE.load(model).recommend_users(["i4", "i7"], events, 5)
    for own, audience in zip(found, expected, strict=True):
        assert set(own) == {"item", "name", "users"}
        assert [user["user"] for user in own["users"]] == audience.users.tolist()
        told = [user["probability"] for user in own["users"]]
        assert told == pytest.approx(audience.probabilities, abs=1e-6)
        assert set(own["users"][0]) == {"user", "score", "probability"}
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "i7" in shown and "probability" in shown and "score" not in shown


def test_users_who_have_the_item_are_left_out_unless_asked_for(model, events, capsys):
    base = ["recommend-users", str(model), "i4", "--data", str(events), "-n", "60", "--json", "-"]
    owners = set(group_counts()[:, [4]].nonzero()[0].tolist())
    assert run(base) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert {user["user"] for user in found["users"]} == set(range(60)) - owners
    assert run([*base, "--include-owners"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    nobody = {user["user"] for user in found["users"] if user["probability"] is None}
    assert len(found["users"]) == 60 and nobody == owners


def test_a_file_is_written_for_all_items(model, events, tmp_path, capsys):
    out = tmp_path / "deep" / "users.parquet"
    arguments = ["recommend-users", str(model), "i4", "i7", "--data", str(events), "-n", "3"]
    assert run([*arguments, "--out", str(out), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    table = pd.read_parquet(out)
    assert told == {"file": str(out), "n_items": 2, "n_rows": 6}
    assert list(table.columns) == ["item_id", "user_id", "rank", "score", "probability"]
    assert table["item_id"].tolist() == ["i4"] * 3 + ["i7"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommend-users", "MODEL", "x", "--data", "DATA"], "item 'x' is not in this model"),
        (["recommend-users", "MODEL", "i4"], "Missing option '--data'"),
        (["recommend-users", "MODEL", "--data", "DATA"], "Missing argument 'ITEM...'"),
        (["recommend-users", "nowhere", "i4", "--data", "DATA"], "there is no model in nowhere"),
        (
            ["recommend-users", "MODEL", "i4", "--data", "DATA", "--out", "u.csv"],
            "--out takes a .parquet file, got 'u.csv'",
        ),
    ],
)
def test_wrong_use_ends_in_one_line_and_exit_code_2(arguments, message, model, events, capsys):
    check_refused(capsys, arguments, message, MODEL=model, DATA=events)
