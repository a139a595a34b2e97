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
    ("header", "reported"),
    [
        ("user,item,qty", "each row counts as one event; unused columns: 'qty'"),
        ("user,item,title", "unused columns: 'title'"),
        ("user,item,timestamp", ""),
        ("user,item,plays", ""),
    ],
)
def test_columns_that_are_not_used_are_always_reported(tmp_path, capsys, header, reported):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n1,a,3\n2,b,4\n")
    assert run(["data", "describe", str(path)]) == 0
    first = capsys.readouterr().err
    assert first.startswith(reported)
    assert bool(first) == bool(reported)
    assert ("--count-col, or confirm with --events)" in first) == ("qty" in header)
    assert run(["data", "describe", str(path), "--events"]) == 0
    unused = set(header.split(",")) - {"user", "item", "timestamp"}
    expected = "".join(f"unused columns: {name!r}\n" for name in unused)
    assert capsys.readouterr().err == expected


def test_describe_shows_times_and_kinds_of_events(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text(
        "user,item,event,date\n1,a,view,2024-05-01\n1,a,buy,2024-05-02\n2,a,view,2024-06-01\n"
    )
    assert run(["data", "describe", str(path), "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_events"] == 3
    assert facts["clock"] == "seconds"
    assert (facts["first_time"], facts["last_time"]) == ("2024-05-01", "2024-06-01")
    assert facts["events_per_kind"] == {"buy": 1, "view": 2}
    assert run(["data", "describe", str(path)]) == 0
    assert "buy 1, view 2" in capsys.readouterr().out


def test_times_and_kinds_can_be_named_or_ignored(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("user,item,did,moment\n1,a,view,5\n2,a,buy,4\n")
    named = ["--time-col", "moment", "--event-col", "did", "--json", "-"]
    assert run(["data", "describe", str(path), *named]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["clock"], facts["last_time"]) == ("number", "5")
    path.write_text("user,item,event,date\n1,a,view,yesterday\n")
    assert run(["data", "describe", str(path)]) == 2
    assert "'yesterday' in data row 1 of" in (line := last_error(capsys))
    assert "ignore the column with --time-col 'none'" in line
    ignored = ["--time-col", "none", "--event-col", "none", "--json", "-"]
    assert run(["data", "describe", str(path), *ignored]) == 0
    assert "clock" not in json.loads(capsys.readouterr().out)


def test_the_error_about_a_missing_id_names_the_option_that_drops_such_rows(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("user,item\n1,a\n,b\n")
    assert run(["data", "describe", str(path)]) == 2
    assert last_error(capsys).endswith("or drop these rows with --drop-missing-ids")
    assert run(["data", "describe", str(path), "--drop-missing-ids"]) == 0
    assert "1 of 2 rows have no user or no item and are left out" in capsys.readouterr().err


def test_simulate_writes_a_service_that_the_other_commands_read(tmp_path, capsys):
    out = tmp_path / "service"
    assert run(["data", "simulate", "--size", "tiny", "--out", str(out), "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["oracle_mpr"] < summary["popularity_mpr"]
    assert run(["data", "describe", str(out / "interactions"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["n_users"] == summary["n_users"]
