"""CF-NADE as a contender: its grid, and a search in which each fit finds epochs and readout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cfnade.compare.contender import Contender
from cfnade.errors import TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search

GRID: Mapping[str, Sequence[Any]] = {
    "item_l2": (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0, 5.0),
    "alpha": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3),
    "dropout": (0.0, 0.25, 0.5, 0.7),
}


def cfnade(
    seed: int = 0,
    recipe: str = "default",
    grid: Mapping[str, Sequence[Any]] = GRID,
    start: Mapping[str, Any] | None = None,
) -> Contender:
    """CF-NADE as a contender.

    Args:
        seed: Of the fits.
        recipe: Settings to start from.
        grid: Values to search; the recipe's must be among them.
        start: Settings that differ from the recipe.
    """
    return Contender(
        _make,
        {"recipe": recipe, **(start or {})},
        grid,
        fixed={"random_state": seed},
        uses_ratings=True,
        final={"validation_share": 0.0},  # for the number of epochs found in the search
        search_by=_search,
    )


def _make(**settings: Any) -> ImplicitCFNADE:
    return ImplicitCFNADE().set_params(**settings)


def _search(
    contender: Contender, validation: Validation, max_trials: int, on_trial: OnTrial | None
) -> Search:
    """Search the grid; each fit finds its epochs and readout."""
    plan = contender.model(contender.start, None).plan(validation.train)
    usual = {**vars(plan.model), **vars(plan.training)}

    def attempt(searched: dict[str, Any]) -> Trial:
        # The final fit, on more pairs, has to start like the one that finds the epochs.
        start = "random" if plan.factors is None else "factors"
        settings = {**contender.start, **searched, "recipe__start": start}
        model = contender.model(settings, validation.relative_rating)
        model.fit(validation.train, validation=validation.held_out)
        if model.validation_mpr_ is None:
            raise TrainingError("CF-NADE was not validated; is there a validation part?")
        chosen = {
            **settings,
            "item_l2": model.item_l2_,
            "max_epochs": model.best_epoch_,
            **{f"readout__{name}": value for name, value in asdict(model.readout_).items()},
        }
        metrics = validation.metrics(model)
        return Trial(chosen, metrics["mpr"], metrics, extra=model.calibrator_)

    return coordinate_search(
        attempt,
        {name: usual[name] for name in contender.grid},
        contender.grid,
        max_trials=max_trials,
        on_trial=on_trial,
    )
