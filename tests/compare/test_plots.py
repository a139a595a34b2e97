from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from scipy.sparse import csr_array

from cfnade.compare.plots import (
    BLUE,
    INK,
    canvas,
    comparison_plot,
    count_histograms,
    headline,
    reliability_plot,
    save_figure,
    sweep_plot,
    to_svg,
    training_plot,
)
from cfnade.data.interactions import Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, DataError, MissingExtraError
from cfnade.model.training import Epoch
from tests.compare.outcomes import calibration, comparison, result, sweep


@pytest.fixture
def groceries() -> Interactions:
    """Milk is bought again and again, flour once; rare items are bought by few."""
    rng = np.random.default_rng(0)
    counts = np.zeros((200, 30))
    counts[:, 0] = rng.integers(1, 30, 200)
    counts[:, 1] = np.where(rng.random(200) < 0.8, 1, 2)
    counts[:180, 2] = rng.integers(1, 4, 180)
    counts[:3, 3:] = 50
    names = np.array(["Milk", "Flour", "Eggs", *(f"Rare {n}" for n in range(27))], dtype=object)
    return Interactions(csr_array(counts), np.arange(200), names)


def epochs(*, validated: bool = True) -> list[Epoch]:
    return [Epoch(n, 5.0 - n, 14.0 - n if validated else None, 1.0 * n) for n in (1, 2, 3)]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.text]


def test_bars_count_all_users_and_the_line_is_their_relative_rating(
    groceries: Interactions,
) -> None:
    figure, _ = count_histograms(groceries, [0, 1])
    bars, rating = figure.axes
    heights = [patch.get_height() for patch in bars.patches]
    milk = groceries.counts.toarray()[:, 0]
    assert heights[0] == np.sum(milk == 1)
    assert sum(heights) == 200
    x, y = rating.lines[0].get_data()
    expected = RelativeRating().fit(groceries.counts).of_pairs(np.zeros(x.size, int), np.asarray(x))
    np.testing.assert_allclose(y, expected)


def test_figures_are_described_in_words(groceries: Interactions) -> None:
    milk, _ = count_histograms(groceries, [0, 1], count_label="Baskets", user_label="Homes")
    assert "baskets with Milk by homes: of 200 homes" in milk.get_label()
    assert "IMF 12.73" in comparison_plot(comparison()).get_label()
    assert "IMF: 13.50 at 1, 12.80 at 30." in sweep_plot(sweep()).get_label()
    assert "Calibrated: 0.12% at 0.10%, 4.80% at 5.00%." in (
        reliability_plot(calibration()).get_label()
    )


def test_histograms_share_their_x_axis(groceries: Interactions) -> None:
    first, second = count_histograms(groceries, [0, 1])
    assert first.axes[0].get_xlim() == second.axes[0].get_xlim()


def test_large_counts_are_gathered_in_the_last_bar() -> None:
    counts = csr_array(np.array([[1.0]] * 99 + [[5000.0]]))
    (figure,) = count_histograms(Interactions.from_matrix(counts), [0])
    assert [patch.get_height() for patch in figure.axes[0].patches] == [100]
    wide = csr_array(np.arange(1.0, 2001.0)[:, None])
    (figure,) = count_histograms(Interactions.from_matrix(wide), [0])
    assert len(figure.axes[0].patches) <= 60
    assert sum(patch.get_height() for patch in figure.axes[0].patches) == 2000


def test_a_dollar_in_a_name_is_no_formula(groceries: Interactions) -> None:
    priced = Interactions(
        groceries.counts, groceries.user_ids, np.array(["$1 & $2 <deals>"] * 30, dtype=object)
    )
    (figure,) = count_histograms(priced, [0])
    assert "$1 & $2 <deals>" in texts(to_svg(figure, "priced"))


def test_figure_2_shows_every_point_and_its_interval() -> None:
    axes = sweep_plot(sweep()).axes[0]
    nade, imf = axes.lines
    np.testing.assert_allclose(nade.get_data(), [[1, 30], [12.9, 12.4]])
    np.testing.assert_allclose(imf.get_data(), [[1, 30], [13.5, 12.8]])
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((12.2, 13.1))
    assert axes.get_xscale() == "log"


def test_the_best_model_stands_on_top() -> None:
    axes = comparison_plot(comparison()).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["CF-NADE", "IMF", "Popularity"]
    assert axes.yaxis_inverted()


def test_the_headline_names_whoever_is_best() -> None:
    lost = replace(comparison(), results=[result("imf", 12.0), result("cfnade", 12.4)])
    text = headline(lost).replace("\N{NO-BREAK SPACE}", " ")
    assert text == "Lowest test MPR: IMF 12.00 %, then CF-NADE 12.40 %."


def test_models_differ_in_marker_as_well_as_colour() -> None:
    lines = comparison_plot(comparison()).axes[0].lines
    points = [line for line in lines if len(np.atleast_1d(line.get_xdata())) == 1]
    assert len({line.get_color() for line in points}) == 3
    assert len({line.get_marker() for line in points}) == 3


def test_the_reliability_plot_shows_all_three_and_where_they_would_hold() -> None:
    (axes,) = reliability_plot(calibration()).axes
    *kinds, line = axes.lines
    assert [kind.get_label() for kind in kinds] == ["calibrated", "weighting undone", "sigmoid"]
    assert list(zip(*kinds[0].get_data(), strict=True)) == calibration().calibrated.points
    assert list(line.get_xdata()) == list(line.get_ydata()) == [0.001, 1.0]
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_the_training_plot_marks_the_best_epoch() -> None:
    mpr, loss = training_plot(epochs(), best_epoch=2).axes
    assert list(mpr.lines[0].get_ydata()) == [13, 12, 11]
    assert list(loss.lines[0].get_ydata()) == [4, 3, 2]
    assert set(mpr.lines[1].get_xdata()) == {2}


def test_the_training_plot_has_the_epochs_that_were_looked_at() -> None:
    every_other = [replace(e, validation_mpr=None) if e.number == 2 else e for e in epochs()]
    mpr, loss = training_plot(every_other).axes
    assert mpr.lines[0].get_xydata().tolist() == [[1.0, 13.0], [3.0, 11.0]]
    assert loss.lines[0].get_xdata().tolist() == [1, 2, 3]


def test_without_several_looks_the_training_plot_has_the_loss_alone() -> None:
    assert len(training_plot(epochs(validated=False)).axes) == 1
    once = [replace(e, validation_mpr=None) if e.number < 3 else e for e in epochs()]
    assert len(training_plot(once).axes) == 1
    with pytest.raises(DataError, match="no epochs"):
        training_plot([])


def test_the_same_figure_gives_the_same_svg() -> None:
    assert to_svg(sweep_plot(sweep()), "a") == to_svg(sweep_plot(sweep()), "a")


def test_ids_of_two_figures_on_a_page_differ() -> None:
    def ids(name: str) -> set[str]:
        root = ElementTree.fromstring(to_svg(sweep_plot(sweep()), name))
        return {element.get("id", "") for element in root.iter()} - {""}

    assert ids("a")
    assert not ids("a") & ids("b")


def test_the_svg_takes_width_and_colours_from_the_page() -> None:
    svg = to_svg(sweep_plot(sweep()), "a")
    root = ElementTree.fromstring(svg)
    assert root.get("viewBox")
    assert root.get("width") is None
    assert f"var(--plot-blue, {BLUE})" in svg
    assert f"var(--plot-ink, {INK})" in svg
    assert "Test MPR, % (lower is better)" in texts(svg)  # text stays text


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_figures_are_saved_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        save_figure(sweep_plot(sweep()), tmp_path / f"{name}.{suffix}")
    first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("a", "b"))
    assert first == second


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.png or \.svg"):
        save_figure(sweep_plot(sweep()), tmp_path / "figure.doc")


def test_drawing_changes_nothing_global() -> None:
    before = dict(rcParams)
    to_svg(sweep_plot(sweep()), "a")
    assert dict(rcParams) == before


def test_without_matplotlib_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"cfnade\[plots\]"), canvas():
        pass


def test_every_plot_is_a_figure_of_one_width() -> None:
    plots = [sweep_plot(sweep()), comparison_plot(comparison()), training_plot(epochs())]
    assert all(isinstance(plot, Figure) for plot in plots)
    assert len({plot.get_figwidth() for plot in plots}) == 1
