"""The figures of a report: the paper's Figures 1 and 2, comparison, reliability, training.

The label of each figure describes it in words, for those who do not see it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfnade.compare.outcome import Comparison, Result
from cfnade.compare.reliability import Calibration, reliabilities
from cfnade.compare.sweep import Sweep
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfnade.model.training import Epoch

# Okabe and Ito's colours, which colour-blind people can distinguish.
INK, GRID, BAR = "#24292f", "#d0d7de", "#56b4e9"
BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#767676"
CSS_NAMES = {INK: "ink", GRID: "grid", BAR: "bar", BLUE: "blue", ORANGE: "orange"} | {
    GREEN: "green", PINK: "pink", GREY: "grey"
}  # fmt: skip
"""A page may set `--plot-ink` and so on, to suit a dark background."""

MODEL_LOOKS = {
    "cfnade": ("CF-NADE", BLUE, "o"),
    "cfnade-network": ("CF-NADE, network alone", BAR, "o"),
    "cfnade-no-network": ("CF-NADE without the network", GREEN, "D"),
    "cfnade-paper": ("CF-NADE (paper)", PINK, "D"),
    "imf": ("IMF", ORANGE, "s"),
    "imf-spark": ("IMF (Spark)", ORANGE, "D"),
    "ease": ("EASE", GREEN, "^"),
    "popularity": ("Popularity", GREY, "v"),
    "random": ("Random", GREY, "x"),
}

STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick")},
    **{f"axes.{part}color": INK for part in ("label", "edge")},
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",  # text stays text
}

MPR_LABEL = "Test MPR, % (lower is better)"
MAX_BARS, MAX_TITLE = 60, 45
WIDTH = 4.8  # inches; on a phone the text is then about as large as that of the page


def model_looks(model: str) -> tuple[str, str, str]:
    """Label, colour and marker of a model, known or not."""
    return MODEL_LOOKS.get(model, (model, GREY, "o"))


def percent(result: Result) -> str:
    """The MPR of a model as text."""
    return f"{result.metrics['mpr']:.2f}\N{NO-BREAK SPACE}%"


def headline(comparison: Comparison) -> str:
    """Every model's MPR in a sentence, the best first."""
    best, *others = (f"{model_looks(r.model)[0]} {percent(r)}" for r in comparison.results)
    then = f", then {', '.join(others)}" if others else ""
    return f"Lowest test MPR: {best}{then}."


@contextmanager
def canvas(*, rows: int = 1, height: float = 3.0) -> Iterator[tuple[Figure, list[Axes]]]:
    """An empty figure with its axes one below the other, in the style of the report.

    It is made without pyplot, so nothing global changes.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a figure") from error
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)
        yield figure, list(axes[:, 0])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # saving it again must not move anything


def to_svg(figure: Figure, name: str) -> str:
    """The figure as SVG text for a page; the same figure gives the same text.

    It takes the width and colours of the page, has no background and is described by the figure's
    label. The name must be unique on the page: ids are made from it.
    """
    import matplotlib as mpl

    buffer = StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") + 4 :].strip()  # without the XML declaration
    head, body = svg.split(">", 1)
    head = re.sub(r' ?(width|height)="[^"]*"', "", head)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # these ids are the same in every figure
    for color, css_name in CSS_NAMES.items():
        body = body.replace(color, f"var(--plot-{css_name}, {color})")
    return f'<svg role="img" aria-label="{escape(str(figure.get_label()))}" {head}>{body}'


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png or .svg file."""
    import matplotlib as mpl

    kind = Path(path).suffix.lower()
    if kind not in (".png", ".svg"):
        raise ConfigError(f"a figure is saved as .png or .svg, got {str(path)!r}; rename it")
    metadata = {"Date": None} if kind == ".svg" else {"Software": None}
    with mpl.rc_context({**STYLE, "svg.hashsalt": "cfnade"}):
        figure.savefig(path, dpi=200, metadata=metadata)


def count_histograms(
    data: Interactions,
    items: Sequence[int],
    *,
    count_label: str = "Count",
    user_label: str = "Users",
) -> list[Figure]:
    """Draw the paper's Figure 1: how often users return to an item, one figure for each item.

    The line shows the relative rating of each count. The figures share their x-axis. Counts above
    the 95th percentile of the item with the largest ones share the last bar.
    """
    by_item = data.counts.tocsc()
    counts = [by_item.data[slice(*by_item.indptr[item : item + 2])] for item in items]
    largest = max(float(np.percentile(values, 95)) for values in counts)
    width = max(1, math.ceil(largest / MAX_BARS))
    edges = 0.5 + width * np.arange(math.ceil(largest / width) + 1)
    figures = []
    for item, values in zip(items, counts, strict=True):
        with canvas() as (figure, [axes]):
            _draw_histogram(axes, values, edges)
            axes.set_title(shorten(data.item_label(item), MAX_TITLE, placeholder="..."))
            axes.set_xlabel(f"{count_label} (last bar: {edges[-2] + 0.5:g} or more)")
            axes.set_ylabel(user_label)
        users = user_label.lower()
        figure.set_label(
            f"Histogram of {count_label.lower()} with {data.item_label(item)} by {users}: of "
            f"{values.size:,} {users} {np.mean(values == 1):.0%} have a count of 1, the median is "
            f"{np.median(values):g}, the most {values.max():g}."
        )
        figures.append(figure)
    return figures


def _draw_histogram(axes: Axes, values: NDArray[Any], edges: NDArray[Any]) -> None:
    n_users, _ = np.histogram(np.minimum(values, edges[-1] - 0.5), edges)
    n_up_to = np.searchsorted(np.sort(values), edges[1:], side="right")
    centres, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
    axes.bar(centres, n_users, 0.85 * width, color=BAR)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(edges[0] - 0.5 * width, edges[-1] + 0.5 * width)
    rating_axes = axes.twinx()
    rating_axes.plot(centres, n_up_to / values.size, color=ORANGE, drawstyle="steps-mid")
    rating_axes.set_ylim(0, 1.03)
    rating_axes.grid(visible=False)
    rating_axes.set_ylabel("Relative rating", color=ORANGE)
    rating_axes.tick_params(axis="y", colors=ORANGE)


def sweep_plot(sweep: Sweep) -> Figure:
    """Draw the paper's Figure 2: test MPR against alpha, with 95 % intervals."""
    alt = "Test MPR against alpha."
    with canvas() as (figure, [axes]):
        for model in dict.fromkeys(point.model for point in sweep.points):
            points = sorted((p for p in sweep.points if p.model == model), key=lambda p: p.alpha)
            alphas = [point.alpha for point in points]
            label, color, marker = model_looks(model)
            low, high = zip(*(point.interval for point in points), strict=True)
            axes.fill_between(alphas, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(alphas, [p.mpr for p in points], color=color, marker=marker, label=label)
            alt += f" {label}: {', '.join(f'{p.mpr:.2f} at {p.alpha:g}' for p in points)}."
        axes.set_xscale("log")
        axes.set_xticks(sweep.alphas, [f"{alpha:g}" for alpha in sweep.alphas])
        axes.minorticks_off()
        axes.set_xlabel("alpha (rate of confidence)")
        axes.set_ylabel(MPR_LABEL)
        figure.legend(loc="outside upper left", ncols=3)
    figure.set_label(alt)
    return figure


def comparison_plot(comparison: Comparison) -> Figure:
    """Draw each model's test MPR with its 95 % interval, the best on top."""
    results = comparison.results
    looks = [model_looks(result.model) for result in results]
    with canvas(height=1.0 + 0.45 * len(results)) as (figure, [axes]):
        for row, (result, (_, color, marker)) in enumerate(zip(results, looks, strict=True)):
            mpr, interval = result.metrics["mpr"], result.intervals["mpr"]
            axes.plot(interval, (row, row), color=color, linewidth=2.5, alpha=0.6)
            axes.plot(mpr, row, color=color, marker=marker, markersize=8)
            axes.annotate(f"{mpr:.2f}", (mpr, row), (0, 7), textcoords="offset points", ha="center")
        axes.set_yticks(range(len(results)), [label for label, _, _ in looks])
        axes.set_ylim(len(results) - 0.5, -0.8)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.1)
        axes.set_xlabel(MPR_LABEL)
    figure.set_label(f"Test MPR of each model with its interval. {headline(comparison)}")
    return figure


def reliability_plot(calibration: Calibration) -> Figure:
    """Draw the observed share against the predicted probability, on logarithmic axes.

    Every point stands for the same number of held-out items; points on the line are calibrated.
    """
    looks = zip((BLUE, ORANGE, GREY), "osx", strict=True)
    alt = "Observed share against the predicted probability."
    with canvas(height=3.6) as (figure, [axes]):
        drawn = []
        kinds = reliabilities(calibration).items()
        for (label, found), (color, marker) in zip(kinds, looks, strict=True):
            shares = ", ".join(f"{observed:.2%} at {p:.2%}" for p, observed in found.points)
            alt += f" {label.capitalize()}: {shares}."
            points = [point for point in found.points if min(point) > 0]
            if points:
                axes.plot(*zip(*points, strict=True), color=color, marker=marker, label=label)
                drawn += points
        ends = (min(map(min, drawn), default=0.1), 1.0)
        axes.plot(ends, ends, color=INK, linewidth=1, linestyle=":")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{100 * value:g}\N{NO-BREAK SPACE}%")
        axes.set_xlabel("Predicted")
        axes.set_ylabel("Observed")
        figure.legend(loc="outside upper left", ncols=3)
    figure.set_label(alt)
    return figure


def training_plot(epochs: Sequence[Epoch], *, best_epoch: int | None = None) -> Figure:
    """Draw the loss of every epoch, and validation MPR if several have it, the best one marked."""
    if not epochs:
        raise DataError("there are no epochs to draw; a loaded model has none")
    curves = [("Training loss", {epoch.number: epoch.loss for epoch in epochs}, ORANGE)]
    looks = {e.number: e.validation_mpr for e in epochs if e.validation_mpr is not None}
    if len(looks) > 1:
        curves.insert(0, ("Validation MPR, %", looks, BLUE))
    with canvas(rows=len(curves), height=1.0 + 1.6 * len(curves)) as (figure, panels):
        for axes, (label, values, color) in zip(panels, curves, strict=True):
            axes.plot(list(values), list(values.values()), color=color, marker=".")
            axes.set_ylabel(label)
            if best_epoch is not None:
                axes.axvline(best_epoch, color=GREY, linestyle="--", linewidth=1)
        panels[-1].set_xlabel("Epoch")
        panels[-1].locator_params(axis="x", integer=True)
    return figure
