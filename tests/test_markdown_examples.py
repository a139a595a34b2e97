"""What the tests of the pages compare: a wrong figure or word is found, noise is not."""

from __future__ import annotations

import pytest

from tests.markdown_examples import FIGURE, blocks, same_output


@pytest.mark.parametrize(
    ("said", "now"),
    [
        ("MPR 18.1 %", "MPR 18.9 %"),
        ("chance 0.005", "chance 0.006"),
        ("space-9 12.0%\nspace-7 11.9%", "space-3 11.9%\nspace-12 11.8%"),
        ("│ 1 │ space-9 │ 1,299.5 │", "│ 1 │ space-12 │  1,250.1 │"),
        ("space-8 +1.25\nnature-1 -0.59", "nature-1 -0.58\nspace-8 +1.26"),
    ],
)
def test_noise_of_a_processor_is_allowed(said, now):
    assert same_output(said, now)


@pytest.mark.parametrize(
    ("said", "now"),
    [
        ("MPR 18.1 %", "MPR 22.1 %"),
        ("4,730 pairs", "4,731 pairs"),
        ("(3, 3)", "(3, 2)"),
        ("space-9 12.0%\nspace-7 11.9%", "space-9 12.0%"),
        ("space-8 +1.25", "space-8 -1.25"),
        ("12.0% of all", "12.0% of some"),
        ("[0.29 0.29 0.26]", "[0.29 0.29 0.16]"),
        ("1.5e-3", "1.5e-2"),
    ],
)
def test_another_figure_or_word_is_found(said, now):
    assert not same_output(said, now)


def test_names_dates_and_figures_are_told_apart():
    assert FIGURE.findall("p0 space-11 4,730 -0.59 .25, 3e-4 (12)") == [
        *("4,730", "-0.59", ".25", "3e-4", "12")
    ]


def test_a_reason_not_to_run_belongs_to_the_next_block_only():
    page = "<!-- not run: a cluster -->\n```sh\ntrue\n```\n\ntext\n\n```python\nx\n```\n"
    assert [block.not_run for block in blocks(page)] == ["a cluster", None]
