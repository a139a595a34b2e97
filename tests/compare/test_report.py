from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from scipy.sparse import csr_array

from cfnade.compare.contender import Edge
from cfnade.compare.plots import count_histograms, training_plot
from cfnade.compare.report import Known, Recommended, Suggestions, render
from cfnade.data.interactions import Interactions
from cfnade.metrics.lists import ListQuality
from cfnade.model.training import Epoch
from tests.compare.outcomes import calibration, comparison, sweep

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
            self.text += re.sub(r"\s*\n\s*", " ", data) + " "

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture
def report() -> dict[str, Any]:
    """All that a report is made of."""
    epochs = [Epoch(n, 5.0 - n, 14.0 - n, 1.0) for n in (1, 2, 3)]
    outcome = comparison()
    shares = {"cfnade": 0.25, "imf": 0.21, "popularity": 0.15}
    judged = []
    for r in outcome.results:
        metrics = {**r.metrics, "recall@20": shares[r.model]}
        behind = (0.0, 0.0) if r.model == "cfnade" else (-0.1, -0.01)
        judged.append(replace(r, metrics=metrics, to_best={**r.to_best, "recall@20": behind}))
    outcome = replace(outcome, results=judged)
    first, *others = judged
    counts = Interactions.from_matrix(csr_array([[1.0, 2.0], [5.0, 1.0]]))
    return {
        "lead": "Events became counts.",
        "facts": {"Versions": "cfnade 0.1.0"},
        "histograms": count_histograms(counts, [0, 1]),
        "comparison": replace(
            outcome, results=[replace(first, calibration=calibration()), *others]
        ),
        "sweep": sweep(),
        "suggestions": [
            Suggestions(
                "Household 7", "Likes milk.", [Known("Milk", 12)],
                [Recommended("Cereal", 0.625, 0.5)],
            )
        ],
        "training": training_plot(epochs, best_epoch=3),
    }  # fmt: skip


def test_the_report_has_its_sections_in_order(report: dict[str, Any]) -> None:
    headings = Page(render(**report)).headings
    answer = "In a list of 20, CF-NADE finds 25 of 100 hidden purchases; IMF 21, Popularity 15."
    assert headings[0] == ("h1", answer)
    assert [text for level, text in headings if level == "h2"] == [
        "What it recommends",
        "Figures",
        "Method",
    ]
    assert [text for level, text in headings if level == "h3"] == [
        "Household 7",
        "Comparison",
        "How well the probabilities hold",
        "Figure 1: one count, two meanings",
        "Figure 2: MPR against alpha",
        "Training of CF-NADE",
    ]


def test_the_answer_says_what_is_found_and_whether_chance_decides(report: dict[str, Any]) -> None:
    html = render(**report)
    text = Page(html).text
    for shown in ("25.0", "20.0 to 30.0", "The lead of CF-NADE is significant.", "by chance find"):
        assert shown in text
    assert 0 < text.index("is significant") < text.index("Household 7") < text.index("MPR")
    assert re.findall(r'<i style="width:([\d.]+)%"></i>', html)[:3] == ["100.0", "84.0", "60.0"]


def test_the_report_prints_on_white_without_breaking_figures(report: dict[str, Any]) -> None:
    printed = render(**report).split("@media print", 1)[1]
    assert "color-scheme: light" in printed and "break-inside: avoid" in printed


def test_every_figure_of_the_table_is_there(report: dict[str, Any]) -> None:
    text = Page(render(**report)).text
    for shown in ("12.73", "12.53 to 13.03", "0.250", "0.200 to 0.300", "33.5", "alpha 30"):
        assert shown in text


def test_lists_are_described_if_they_were_judged(report: dict[str, Any]) -> None:
    assert "Coverage" not in Page(render(**report)).text
    outcome = report["comparison"]
    first, *others = outcome.results
    judged = replace(first, beyond_accuracy=ListQuality(20, 0.523, 0.861, 2.69, 0.649))
    shown = replace(outcome, results=[judged, *others])
    text = Page(render(**{**report, "comparison": shown})).text
    assert "The first 20 items for each tested user" in text
    for figure in ("Coverage, %", "52.3", "0.861", "2.69", "0.649"):
        assert figure in text


def test_what_is_level_with_the_best_is_marked(report: dict[str, Any]) -> None:
    text = Page(render(**report)).text
    assert "≈\N{NO-BREAK SPACE}12.73" in text
    assert "≈\N{NO-BREAK SPACE}12.40" not in text and "≈\N{NO-BREAK SPACE}15.50" not in text


def test_the_mean_place_is_one_among_the_items_that_are_ranked(report: dict[str, Any]) -> None:
    outcome = replace(report["comparison"], n_users=10, n_items=300, n_pairs=1500)
    judged = replace(outcome, protocol={**outcome.protocol, "n_test_pairs": 500})
    text = Page(render(**{**report, "comparison": judged})).text
    assert "with 200 product types" in text and f"place {round(0.124 * 200)} " in text


def test_the_best_is_in_bold(report: dict[str, Any]) -> None:
    html = render(**report)
    assert "<strong>12.40</strong>" in html
    assert "12.73</strong>" not in html and "15.50</strong>" not in html


def test_the_report_says_what_was_chosen_on_what(report: dict[str, Any]) -> None:
    text = Page(render(**report)).text
    assert "chosen on the validation pairs alone" in text
    assert "judged on the test pairs once" in text
    assert "no setting was chosen by it" in text
    assert "train 8,100, validation 900, test 1,000" in text


def test_the_page_makes_no_request(report: dict[str, Any]) -> None:
    page = Page(render(**report))
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "a"}
    addresses = [
        value
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in ("href", "src", "xlink:href", "action", "data")
    ]
    assert addresses and all(value and value.startswith("#") for value in addresses)
    assert not re.search(r"@import|url\((?!#)", render(**report))
    policy = [a["content"] for a in page.of("meta") if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_all_text_is_escaped(report: dict[str, Any]) -> None:
    outcome = report["comparison"]
    first, *_, popularity = outcome.results
    nasty = replace(first, model=NASTY, settings={NASTY: NASTY})
    report["training"].set_label(NASTY)
    html = render(
        **{
            **report,
            "lead": NASTY,
            "facts": {NASTY: NASTY},
            "comparison": replace(outcome, dataset=NASTY, results=[nasty, popularity]),
            "suggestions": [
                Suggestions(NASTY, NASTY, [Known(NASTY, 1)], [Recommended(NASTY, 1, 1)])
            ],
        }
    )
    assert "<script" not in html
    page = Page(html)
    assert ("h3", NASTY) in page.headings
    assert page.text.count(NASTY) > 10
    assert NASTY in [svg["aria-label"] for svg in page.of("svg")]


def test_figures_have_words_for_those_who_do_not_see_them(report: dict[str, Any]) -> None:
    svgs = Page(render(**report)).of("svg")
    assert len(svgs) == 6
    assert all(svg["role"] == "img" for svg in svgs)
    alts = [svg["aria-label"] or "" for svg in svgs]
    assert "CF-NADE: 12.90 at 1, 12.40 at 30. IMF: 13.50 at 1, 12.80 at 30." in alts[4]


def test_ids_are_unique_on_the_page(report: dict[str, Any]) -> None:
    ids = [attrs["id"] for _, attrs in Page(render(**report)).tags if "id" in attrs]
    assert len(ids) == len(set(ids)) > 0


def test_the_page_suits_phones_and_the_dark(report: dict[str, Any]) -> None:
    html = render(**report)
    assert "color-scheme: light dark" in html and "light-dark(" in html
    assert any(a.get("name") == "viewport" for a in Page(html).of("meta"))


def test_recommendations_are_shown_by_name(report: dict[str, Any]) -> None:
    text = Page(render(**report)).text
    times = "\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}12"
    for shown in ("Household 7", "Milk", times, "Cereal", "62.5%", "50%"):
        assert shown in text


def test_mpr_is_explained_before_it_is_shown(report: dict[str, Any]) -> None:
    text = Page(render(**report)).text
    assert 0 < text.index("mean percentage ranking") < text.index("12.40")


def test_the_same_report_gives_the_same_page(report: dict[str, Any]) -> None:
    assert render(**report) == render(**report)


def test_how_well_probabilities_hold_is_shown(report: dict[str, Any]) -> None:
    text = Page(render(**report)).text
    for shown in (
        "40,000 pairs of a tested household",
        "0.210%",
        "Weighting undone",
        "0.410000",
        "-120.0000",
    ):
        assert shown in text, shown


def test_the_settings_say_what_ended_a_search_and_which_values_are_at_an_end(report):
    first, *others = report["comparison"].results
    cut = replace(first, stopped_by="time", at_edge=(Edge("factors", 2048, "largest"),))
    report["comparison"] = replace(report["comparison"], results=[cut, *others])
    page = Page(render(**report))
    assert "Ended by" in page.text and "time" in page.text
    assert "alpha 30; factors=2048 is the largest value tried" in page.text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_needs_no_sideways_scrolling_with_long_names(
    report: dict[str, Any], browser: Any, width: int
) -> None:
    long = "Every day " * 20 + "or" * 80
    known, recommended = Known(long, 12), Recommended(long, 0.625, 0.5)
    shown = [Suggestions("Household 7", "Likes it.", [known], [recommended])]
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.set_content(render(**{**report, "suggestions": shown}))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
