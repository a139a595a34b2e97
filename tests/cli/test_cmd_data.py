"""`cfnade data describe` and `data simulate` as a user meets them."""

from __future__ import annotations

import json

import pytest

from cfnade.cli.main import run
from tests.cli.helpers import last_error
from tests.networks import group_counts


def test_describe_tells_how_a_table_is_read(events, capsys):
    assert run(["data", "describe", str(events), "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["n_users"], facts["n_items"]) == (60, 20)
    assert facts["count_max"] == group_counts().data.max()


def test_a_missing_column_names_those_there_are(events, capsys):
    assert run(["data", "describe", str(events), "--user-col", "viewer"]) == 2
    line = last_error(capsys)
    assert "viewer" in line and "user_id" in line and "item_id" in line


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


def test_simulate_writes_a_service_that_the_other_commands_read(tmp_path, capsys):
    out = tmp_path / "service"
    assert run(["data", "simulate", "--size", "tiny", "--out", str(out), "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["oracle_mpr"] < summary["popularity_mpr"]
    assert run(["data", "describe", str(out / "interactions"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["n_users"] == summary["n_users"]
