from __future__ import annotations

import pytest

from cfnade.compare.html_parts import Cell, Picture, definitions, paragraph, picture, section, table

NASTY = '<b>&"x"</b>'
ESCAPED = "&lt;b&gt;&amp;&quot;x&quot;&lt;/b&gt;"


def test_text_is_escaped_everywhere() -> None:
    for html in (
        paragraph(NASTY),
        paragraph("x", NASTY),
        section(NASTY),
        definitions({NASTY: NASTY}),
        table(NASTY, [NASTY], [[NASTY]]),
        table("x", ["y"], [["z", Cell(NASTY, below=NASTY, is_strong=True)]]),
    ):
        assert ESCAPED in html and "<b>" not in html


def test_names_without_a_value_are_left_out() -> None:
    assert definitions({"Seed": "0", "Ranked": ""}) == "<dl><dt>Seed</dt><dd>0</dd></dl>"


def test_the_first_cell_of_a_row_is_its_heading() -> None:
    html = table("Caption", ["Model", "MPR"], [["IMF", Cell("7.2", "7.0 to 7.4")]])
    assert '<th scope="col">Model</th><th scope="col">MPR</th>' in html
    assert '<tr><th scope="row">IMF</th><td>7.2<small>7.0 to 7.4</small></td></tr>' in html


def test_a_picture_has_its_description_as_label() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    html = picture(Picture(figure, NASTY), "one", caption="Below", css="single")
    assert html.startswith('<figure class="single"><svg role="img" aria-label="' + ESCAPED)
    assert html.endswith("<figcaption>Below</figcaption></figure>")
