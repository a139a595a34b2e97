"""What a notebook shows of an estimator: its settings, and what it was fitted on, how well."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from cfnade.data.rating_table import RatingTable
from cfnade.errors import n_of

_STYLE = (
    ".cfnade{display:inline-block;border:1px solid #8886;border-radius:6px;padding:.5em .8em;"
    "font:13px/1.5 system-ui,sans-serif;color:inherit}"
    ".cfnade code{background:none;color:inherit;white-space:pre-wrap}"
    ".cfnade dl{display:grid;grid-template-columns:max-content auto;gap:0 1em;margin:.4em 0 0}"
    ".cfnade dt{opacity:.7}.cfnade dd{margin:0}"
    ".cfnade-state{border-radius:6px;padding:0 .5em;margin-left:.6em;background:#8883}"
    ".cfnade-fitted{background:#2a92}"
)


def html_repr(call: str, facts: Mapping[str, str] | None) -> str:
    """An estimator for a notebook, on light and dark pages.

    Args:
        call: The plain representation.
        facts: About the fit; None if there was none.
    """
    state, kind = ("not fitted", "") if facts is None else ("fitted", " cfnade-fitted")
    rows = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in (facts or {}).items() if v)
    listed = f"<dl>{''.join(rows)}</dl>" if facts else ""
    return (
        f'<div class="cfnade"><style>{_STYLE}</style><code>{escape(call)}</code>'
        f'<span class="cfnade-state{kind}">{state}</span>{listed}</div>'
    )


def facts_of_fit(model: Any) -> dict[str, str] | None:
    """What a fitted `ImplicitCFNADE` was fitted on, how well and how long; None if it is not."""
    if not hasattr(model, "scorer_"):
        return None
    sizes, calibrator = model.data_fingerprint_, model.calibrator_
    names = ("user", "item", "pair")
    known = [n_of(n, noun) for noun in names if isinstance(n := sizes.get(f"n_{noun}s"), int)]
    n_items, n_fits = model.n_features_in_, len(model.partial_fits_)
    more = f"; the model has {n_of(n_items, 'item')}" if sizes.get("n_items") != n_items else ""
    mpr, target = model.validation_mpr_, model.target_event_
    return {
        "fitted on": f"{', '.join(known) or 'unknown data'}{more}",
        "predicts": "" if target is None else f"{target} events",
        "validation": _validation("MPR", mpr, " %", "0 is best, 50 is chance"),
        "probabilities": "none: nothing was held out, or it was trained further"
        if calibrator is None
        else f"calibrated on {n_of(calibrator.n_pairs, 'held-out pair')}",
        "training": _training(model.best_epoch_, model.fit_seconds_),
        "trained further": n_of(n_fits, "time") if n_fits else "",
    }


def facts_of_ratings(model: Any) -> dict[str, str] | None:
    """The same of a `CFNADE`."""
    if not hasattr(model, "network_"):
        return None
    table: RatingTable = model.ratings_
    sizes = {"user": len(table.user_ids), "item": len(table.item_ids), "rating": table.levels.nnz}
    scale = f"ratings from {table.scale[0]:g} to {table.scale[-1]:g}"
    return {
        "fitted on": ", ".join(n_of(n, noun) for noun, n in sizes.items()),
        "validation": _validation("RMSE", model.validation_rmse_, "", f"{scale}; 0 is best"),
        "training": _training(len(model.epochs_), model.fit_seconds_),
    }


def _validation(metric: str, value: Any, unit: str, meaning: str) -> str:
    if not isinstance(value, int | float):
        return "none"
    return f"{metric} {value:.{2 if unit else 4}f}{unit} on held-out items ({meaning})"


def _training(n_epochs: int, seconds: Any) -> str:
    known = [n_of(n_epochs, "epoch")] if n_epochs else []
    known += [f"{seconds:.1f} seconds"] if isinstance(seconds, int | float) else []
    return ", ".join(known)
