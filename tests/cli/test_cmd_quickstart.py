"""`cfnade quickstart` as a new user meets it, with columns that may be called anything."""

from __future__ import annotations

import json
import shlex

import pytest

from cfnade import ImplicitCFNADE
from cfnade.cli.cmd_quickstart import _as_written
from cfnade.cli.main import run
from cfnade.cli.options import TableOptions
from tests.cli.helpers import check_refused
from tests.networks import group_counts

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Semicolons, and German names of columns."""
    path = tmp_path_factory.mktemp("odd") / "odd.csv"
    pairs = group_counts().tocoo()
    rows = zip(pairs.row, pairs.col, pairs.data, strict=True)
    lines = [f"K{user};A-{item};Band {item};{n:g}\n" for user, item, n in rows]
    path.write_text("Kundennr;Artikel Code;Bezeichnung;Stk\n" + "".join(lines))
    return path


COLUMNS = ["--user-col", "kundennr", "--item-col", "Artikel Code", "--count-col", "Stk"]


def test_from_an_odd_table_to_recommendations_by_name(odd, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["quickstart", str(odd), *COLUMNS, "--name-col", "Bezeichnung"]) == 0
    printed = capsys.readouterr()
    assert "unused" not in printed.err
    shown, steps = printed.out.split("next:\n")
    assert shown.count("The percentage is the probability") == 1
    assert "60 users, 20 items" in shown and "held-out pairs" in shown
    assert shown.count("because of") == 3 and "Band 1" in shown
    assert "report: quickstart/report.html" in shown
    assert (tmp_path / "quickstart" / "report.html").exists()
    recommend, similar, *_ = [shlex.split(line, comments=True)[1:] for line in steps.splitlines()]
    assert recommend[0] == "recommend" and run(recommend) == 0
    assert similar[0] == "similar" and run(similar) == 0
    assert ImplicitCFNADE.load("quickstart/model").catalogue_.label("A-3") == "Band 3"


def test_names_in_the_data_are_used_and_what_is_found_is_json(odd, tmp_path, capsys):
    known = tmp_path / "plays.csv"
    text = odd.read_text().replace("Artikel Code;Bezeichnung", "product_id;product_name")
    known.write_text(text.replace("Kundennr", "customer").replace("Stk", "plays"))
    out = tmp_path / "found"
    assert run(["quickstart", str(known), "--out", str(out), "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("product_name") == 1  # it is not called unused
    assert "names of items from column 'product_name'" in printed.err
    found = json.loads(printed.out)
    assert list(found) == [
        "data", "headline", "fit", "samples", "about_samples", "next_steps", "model", "report",
    ]  # fmt: skip
    assert found["model"] == str(out / "model") and found["report"] == str(out / "report.html")
    sample = found["samples"][0]
    assert list(sample) == ["user", "n_items", "history", "recommendations"]
    assert sample["history"][0]["name"].startswith("Band ")
    assert [step["command"].split()[1] for step in found["next_steps"]] == [
        "recommend", "similar", "compare", "serve",
    ]  # fmt: skip


def test_without_names_it_says_how_to_give_them(odd, tmp_path, capsys):
    assert run(["quickstart", str(odd), *COLUMNS, "--out", str(tmp_path)]) == 0
    assert "--name-col takes a column of names in DATA" in capsys.readouterr().err


def test_all_columns_that_are_missing_are_named_at_once(odd, capsys):
    message = (
        "found no user and no item column; the columns are 'Kundennr', 'Artikel Code', "
        "'Bezeichnung', 'Stk'; name two of these as --user-col and --item-col"
    )
    check_refused(capsys, ["quickstart", "DATA", "--out", "unused"], message, DATA=odd)


def test_options_are_written_as_they_were_given():
    table = TableOptions(user_col="who is it", events=True, min_item_users=5)
    assert _as_written(table) == " --user-col 'who is it' --events --min-item-users 5"
    assert _as_written(TableOptions(events=False)) == " --counts"
    assert _as_written(TableOptions(drop_missing_ids=True)) == " --drop-missing-ids"
    assert _as_written(TableOptions()) == ""
