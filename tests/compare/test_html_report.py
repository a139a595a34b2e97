"""The parts that the HTML reports share."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from cfnade.compare.html_report import Row, card, facts_list, fill

NASTY = "<b onclick=alert(1)> & $co"


@pytest.mark.parametrize("template", ["report.html", "quickstart.html"])
def test_a_report_has_the_colours_and_type_of_the_page_of_the_service(template: str) -> None:
    folder = files("cfnade.compare")
    names = set(re.findall(r"\$(\w+)", folder.joinpath(template).read_text("utf-8")))
    html = fill(template, dict.fromkeys(names - {"style"}, "$5"))
    colours = files("cfnade.serve").joinpath("page/colours.css").read_text("utf-8")
    assert "--paper: light-dark(" in colours and "--type: 16px" in colours
    assert colours in html and "font: var(--type)" in html and "$5" in html
    for name in re.findall(r"var\(--(?!plot)([a-z-]+)\)", html.replace(colours, "")):
        assert f"--{name}:" in colours, name


def test_a_card_has_the_history_and_the_list_as_text() -> None:
    html = card(NASTY, NASTY, [(NASTY, 12.5)], [Row(NASTY, NASTY, "62.5%", 0.25)])
    assert "<b onclick" not in html and html.count("&lt;b onclick=alert(1)&gt; &amp; $co") == 5
    assert "&times;&nbsp;12.5" in html and "<b>62.5%</b>" in html and "width:25.0%" in html
    assert "width:" not in card("A", "", [], [Row("B", "", "1.234", None)])


def test_facts_are_text() -> None:
    assert facts_list({"<a>": "<b>"}) == "<dt>&lt;a&gt;</dt><dd>&lt;b&gt;</dd>"
