from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cfnade.compare.html_parts import Picture
from cfnade.compare.plots import training_plot
from cfnade.compare.report import (
    Known,
    Recommended,
    Report,
    Suggestions,
    Words,
    headline,
    render,
    write_report,
)
from cfnade.model.training import Epoch
from tests.compare.outcomes import calibration, comparison, result, sweep

NASTY = "<script>alert(\"x\")</script> & 'co'"


class Page(HTMLParser):
    """Checks that tags nest, and gathers what a reader gets."""

    VOID = ("meta", "link", "img", "br", "hr", "input")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append((self.open[-1], data))
        if "style" not in self.open:
            self.text += data + " "

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture
def report() -> Report:
    epochs = [Epoch(n, 5.0 - n, 14.0 - n, 1.0) for n in (1, 2, 3)]
    return Report(
        "Groceries",
        "Events became counts.",
        comparison(),
        Words("households", "product types", "baskets"),
        {"Versions": "cfnade 0.1.0"},
        sweep=sweep(),
        training=Picture(training_plot(epochs, best_epoch=3), "Three epochs"),
        suggestions=[
            Suggestions(
                "Household 7", "Likes milk.", [Known("Milk", 12, 0.75)],
                [Recommended("Cereal", 0.625, 0.5)],
            )
        ],
    )  # fmt: skip


def test_the_report_has_its_sections_in_order(report: Report) -> None:
    headings = Page(render(report)).headings
    assert headings[0] == ("h1", "Groceries")
    assert [text for level, text in headings if level == "h2"] == [
        "What was run",
        "Comparison",
        "Figure 2: MPR against alpha",
        "Recommendations",
        "Training of CF-NADE",
        "How to read MPR",
    ]


def test_what_is_missing_is_left_out() -> None:
    headings = Page(render(Report("Short", "A lead.", comparison()))).headings
    assert [text for _, text in headings] == [
        "Short", "What was run", "Comparison", "How to read MPR",
    ]  # fmt: skip


def test_every_figure_of_the_table_is_there(report: Report) -> None:
    text = Page(render(report)).text
    for shown in ("12.73", "12.53 to 13.03", "0.250", "0.200 to 0.300", "33.5", "alpha 30"):
        assert shown in text


def test_what_is_level_with_the_best_is_marked(report: Report) -> None:
    text = Page(render(report)).text
    assert "≈\N{NO-BREAK SPACE}12.73" in text
    assert "≈\N{NO-BREAK SPACE}12.40" not in text and "≈\N{NO-BREAK SPACE}15.50" not in text


def test_the_mean_place_is_one_among_the_items_that_are_ranked(report: Report) -> None:
    outcome = replace(report.comparison, n_users=10, n_items=300, n_pairs=1500)
    facts = {"n_test_pairs": 500, "candidates": "unseen", "is_fixed_split": False}
    for more, n_ranked in [
        ({}, 200),
        ({"is_fixed_split": True}, 150),
        ({"candidates": "all"}, 300),
    ]:
        judged = replace(outcome, protocol={**outcome.protocol, **facts, **more})
        text = Page(render(replace(report, comparison=judged))).text
        assert f"With {n_ranked} " in text and f"place {round(0.124 * n_ranked)} " in text


def test_the_best_is_in_bold(report: Report) -> None:
    html = render(report)
    assert "<strong>12.40</strong>" in html
    assert "12.73</strong>" not in html and "15.50</strong>" not in html


def test_the_report_says_what_was_chosen_on_what(report: Report) -> None:
    text = Page(render(report)).text
    assert "chosen on the validation pairs alone" in text
    assert "judged on the test pairs once" in text
    assert "no setting was chosen by it" in text
    assert "train 8,100, validation 900, test 1,000" in text


def test_the_headline_names_whoever_is_best() -> None:
    lost = replace(comparison(), results=[result("imf", 12.0), result("cfnade", 12.4)])
    text = headline(lost).replace("\N{NO-BREAK SPACE}", " ")
    assert text == "Lowest test MPR: IMF 12.00 %, then CF-NADE 12.40 %."


def test_the_file_makes_no_request(report: Report, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", report)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "a"}
    addresses = [
        value
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in ("href", "src", "xlink:href", "action", "data")
    ]
    assert addresses and all(value and value.startswith("#") for value in addresses)
    assert not re.search(r"@import|url\((?!#)", render(report))
    policy = [a["content"] for a in page.of("meta") if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_all_text_is_escaped(report: Report) -> None:
    nasty = replace(
        report,
        title=NASTY,
        lead=NASTY,
        comparison=replace(comparison(), dataset=NASTY, results=[result(NASTY, 12.0)]),
        words=Words(NASTY, NASTY, NASTY),
        facts={NASTY: NASTY},
        training=replace(report.training, alt=NASTY) if report.training else None,
        suggestions=[Suggestions(NASTY, NASTY, [Known(NASTY, 1, 1)], [Recommended(NASTY, 1, 1)])],
    )
    html = render(nasty)
    assert "<script" not in html
    page = Page(html)
    assert page.headings[0] == ("h1", NASTY)
    assert page.text.count(NASTY) > 10


def test_figures_have_words_for_those_who_do_not_see_them(report: Report) -> None:
    svgs = Page(render(report)).of("svg")
    assert len(svgs) == 3
    assert all(svg["role"] == "img" for svg in svgs)
    alts = [svg["aria-label"] or "" for svg in svgs]
    assert "CF-NADE: 12.90 at 1, 12.40 at 30. IMF: 13.50 at 1, 12.80 at 30." in alts[1]


def test_ids_are_unique_on_the_page(report: Report) -> None:
    ids = [attrs["id"] for _, attrs in Page(render(report)).tags if "id" in attrs]
    assert len(ids) == len(set(ids)) > 0


def test_the_page_suits_phones_and_the_dark(report: Report) -> None:
    html = render(report)
    assert "prefers-color-scheme: dark" in html
    assert any(a.get("name") == "viewport" for a in Page(html).of("meta"))


def test_recommendations_are_shown_by_name(report: Report) -> None:
    text = Page(render(report)).text
    for shown in ("Household 7", "Milk", "0.75", "Cereal", "62.5%", "50%"):
        assert shown in text


def test_mpr_is_explained_before_it_is_shown(report: Report) -> None:
    text = Page(render(report)).text
    assert 0 < text.index("mean percentage ranking") < text.index("12.40")


def test_the_same_report_gives_the_same_page(report: Report) -> None:
    assert render(report) == render(report)


def test_how_well_probabilities_hold_is_shown_where_a_model_gives_any(report: Report) -> None:
    first, *others = report.comparison.results
    judged = replace(first, calibration=calibration())
    outcome = replace(report.comparison, results=[judged, *others])
    page = Page(render(replace(report, comparison=outcome)))
    headings = [text for level, text in page.headings if level == "h2"]
    assert headings[:3] == ["What was run", "Comparison", "How well the probabilities hold"]
    for shown in (
        "40,000 pairs of a tested user",
        "0.210%",
        "Weighting undone",
        "0.410000",
        "-120.0000",
    ):
        assert shown in page.text, shown
    assert "How well" not in Page(render(report)).text
