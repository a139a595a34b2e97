"""How the figures of a report look, and how they become SVG text or a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind people can tell apart.
INK, GRID, BAR = "#24292f", "#d0d7de", "#56b4e9"
BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#767676"
CSS_NAMES = {INK: "ink", GRID: "grid", BAR: "bar", BLUE: "blue", ORANGE: "orange"} | {
    GREEN: "green", PINK: "pink", GREY: "grey"
}  # fmt: skip
"""A page may set `--plot-ink` and so on, to suit a dark background."""

MODEL_LOOKS = {
    "cfnade": ("CF-NADE", BLUE, "o"),
    "cfnade-paper": ("CF-NADE (paper)", PINK, "D"),
    "imf": ("IMF", ORANGE, "s"),
    "imf-spark": ("IMF (Spark)", ORANGE, "D"),
    "ease": ("EASE", GREEN, "^"),
    "popularity": ("Popularity", GREY, "v"),
    "random": ("Random", GREY, "x"),
}
"""Label, colour and marker of each model."""

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
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",  # text stays text
}

WIDTH = 4.8
"""Inches. On a phone the text is then about as large as that of the page."""


def model_label(model: str) -> str:
    """A model's name as people write it."""
    return model_looks(model)[0]


def model_looks(model: str) -> tuple[str, str, str]:
    """Label, colour and marker of a model, of an unknown one as well."""
    return MODEL_LOOKS.get(model, (model, GREY, "o"))


@contextmanager
def canvas(*, rows: int = 1, height: float = 3.0) -> Iterator[tuple[Figure, list[Axes]]]:
    """An empty figure with its axes one below the other, and the style to fill them in.

    It is made without pyplot, so nothing global is left changed.

    Raises:
        MissingExtraError: If matplotlib is not installed.
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
        figure.set_layout_engine("none")  # laid out once: saving it again must not move anything


def to_svg(figure: Figure, name: str) -> str:
    """The figure as SVG text to put into a page; the same figure gives the same text.

    It takes the width it is given, has no background, and its colours can be set by the page.

    Args:
        figure: What to write.
        name: Unique on the page: ids within the text are made from it.
    """
    import matplotlib as mpl

    buffer = StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()  # without the XML declaration
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # these ids are the same in every figure
    for color, css_name in CSS_NAMES.items():
        body = body.replace(color, f"var(--plot-{css_name}, {color})")
    return f"{head}>{body}"


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png or .svg file.

    Raises:
        ConfigError: If the file's name ends in something else.
    """
    import matplotlib as mpl

    kind = Path(path).suffix.lower()
    if kind not in (".png", ".svg"):
        raise ConfigError(f"a figure is written as .png or .svg, got {str(path)!r}; rename it")
    metadata = {"Date": None} if kind == ".svg" else {"Software": None}
    with mpl.rc_context({**STYLE, "svg.hashsalt": "cfnade"}):
        figure.savefig(path, dpi=200, metadata=metadata)
