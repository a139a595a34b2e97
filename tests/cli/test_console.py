"""Tables fit the terminal, and JSON is alone on standard output."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from cfnade.cli import console
from cfnade.cli.main import run
from tests.cli.helpers import last_error


@pytest.mark.parametrize(("width", "has_all"), [(80, False), (160, True)])
def test_the_table_fits_the_terminal(events, capsys, monkeypatch, width, has_all):
    monkeypatch.setattr(console, "out", Console(width=width))
    assert run(["compare", str(events), "--models", "popularity,ease", "--trials", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (heads,) = [line for line in lines if "ndcg@100" in line]
    assert all(name in heads for name in ("MPR % (95 %)", "trials", "looks", "search s"))
    assert ("recall@50" in heads) == has_all
    assert sum("popularity" in line for line in lines) == 1  # no row is broken in two


def test_json_to_standard_output_has_nothing_else_on_it(events, capsys):
    assert run(["compare", str(events), "--models", "popularity", "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)


def test_an_unwritable_place_is_told_not_traced(events, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "table.json"
    assert run(["compare", str(events), "--models", "popularity", "--json", str(target)]) == 2
    assert "cannot write" in last_error(capsys)


def test_what_looks_like_markup_in_an_item_or_a_message_is_printed_as_it_is(capsys):
    console.say("[bold]loud[/bold]")
    found = [{"item": "[red]1", "name": "[red]1", "score": 0.5, "probability": None}]
    console.report(console.recommendation_table(found), {}, None)
    shown = capsys.readouterr()
    assert shown.err == "[bold]loud[/bold]\n" and "[red]1" in shown.out


HOSTILE = "\x1b]0;title\x07\x1b[2Jname\x9b31m\u202e\r"


def test_names_cannot_command_the_terminal(capsys, tmp_path):
    entry = {"item": HOSTILE, "name": HOSTILE + "!", "score": 1.0, "probability": 0.5}
    console.report(console.recommendation_table([entry]), {"found": [entry]}, None)
    console.report(console.similar_table(entry, []), {"found": [entry]}, "-")
    console.say(f"cfnade: {HOSTILE}")
    captured = capsys.readouterr()
    for text in captured:
        assert "name" in text
        assert not [sign for sign in text if sign != "\n" and not sign.isprintable()]
    assert json.loads(captured.out[captured.out.index("{") :])["found"] == [entry]


def test_names_in_any_script_stay_as_they_are():
    for name in ("Café", "東京\u3000物語", "👩\u200d🚀", "नमस्ते", "a\nb"):
        assert console.visible(name) == name
