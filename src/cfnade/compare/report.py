"""The end of a comparison: one HTML file that tells what was run and what came out.

The file holds all it needs: it has no script and makes no request to any host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from cfnade.compare.comparison import Comparison
from cfnade.compare.html_parts import Picture, paragraph
from cfnade.compare.report_sections import (
    Suggestions,
    Words,
    calibration_section,
    comparison_section,
    headline,
    histograms_section,
    how_to_read_section,
    recommendations_section,
    run_section,
    sweep_section,
    training_section,
)
from cfnade.compare.sweep import Sweep


@dataclass(frozen=True)
class Report:
    """All that a report tells; what is empty is left out."""

    title: str
    lead: str
    """What was done with which data, in a sentence or two."""

    comparison: Comparison
    words: Words = field(default_factory=Words)
    facts: Mapping[str, str] = field(default_factory=dict)
    """More of what was run: versions, seconds."""

    histograms: Sequence[Picture] = ()
    """Figure 1."""

    sweep: Sweep | None = None
    """Figure 2."""

    training: Picture | None = None
    """Loss and validation MPR of the model that recommends."""

    suggestions: Sequence[Suggestions] = ()


def write_report(path: str | Path, report: Report) -> None:
    """Write a report as one HTML file.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    Path(path).write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The page as text."""
    comparison, words = report.comparison, report.words
    sections = [
        run_section(comparison, words, report.facts),
        histograms_section(report.histograms, words),
        comparison_section(comparison),
        calibration_section(comparison),
        sweep_section(report.sweep, comparison),
        recommendations_section(report.suggestions, words),
        training_section(report.training),
        how_to_read_section(comparison, words),
    ]
    template = Template(files("cfnade.compare").joinpath("report.html").read_text("utf-8"))
    return template.substitute(
        title=escape(report.title),
        opening=paragraph(report.lead, "lead") + paragraph(headline(comparison), "headline"),
        sections="\n".join(filter(None, sections)),
    )
