"""CF-NADE as a contender: its grid, and a search that also finds epochs and readout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cfnade.beyond.factors import FactorPlan
from cfnade.compare.contender import Contender
from cfnade.data.interactions import CountMatrix
from cfnade.errors import TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.networks import NetworksConfig
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search
from cfnade.model.config import ModelConfig, usual_item_l2

GRID: Mapping[str, Sequence[Any]] = {
    "item_l2": (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0, 5.0),
    "alpha": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3),
    "dropout": (0.0, 0.25, 0.5, 0.7),
}


def cfnade(
    seed: int = 0,
    preset: str = "default",
    grid: Mapping[str, Sequence[Any]] = GRID,
    start: Mapping[str, Any] | None = None,
) -> Contender:
    """CF-NADE as a contender.

    Args:
        seed: Of the fits.
        preset: Settings to start from.
        grid: Values to search; the preset's must be among them.
        start: Settings that differ from the preset.
    """
    return Contender(
        partial(ImplicitCFNADE.from_preset, preset),
        start or {},
        grid,
        fixed={"random_state": seed},
        uses_ratings=True,
        final={"validation_share": 0.0},  # for the number of epochs found in the search
        search_by=partial(_search, preset),
    )


def _search(
    preset: str,
    contender: Contender,
    validation: Validation,
    max_trials: int,
    on_trial: OnTrial | None,
) -> Search:
    """Search the grid; each fit finds its epochs and readout.

    If the model is an ensemble, trials train one network and the last trial all of them.
    """
    usual = ImplicitCFNADE.from_preset(preset, **contender.start).get_params()
    start = {name: usual[name] for name in contender.grid}
    if start.get("item_l2", 0.0) is None:
        start["item_l2"] = usual_item_l2(validation.train.nnz, *validation.train.shape)
    n_networks = NetworksConfig(usual["n_networks"]).n_for(validation.train)
    found: dict[str, Any] = {}  # by the first trial, for the others

    def attempt(searched: dict[str, Any], n_networks: int) -> Trial:
        settings = {**contender.start, **found, **searched, "n_networks": n_networks}
        # The final fit, on more pairs, has to start as the one that its epochs are found with.
        settings["start_from_factors"] = _starts_from_factors(
            {**usual, **searched}, validation.train
        )
        model = contender.model(settings, validation.relative_rating)
        model.fit(validation.train, validation=validation.held_out)
        if model.validation_mpr_ is None:
            raise TrainingError("CF-NADE was not validated; is there a validation part?")
        chosen = {
            **settings,
            "item_l2": model.item_l2_,
            "max_epochs": model.best_epoch_,
            **model.readout_,
        }
        if "factor_alpha" in model.readout_:  # each value needs a factorisation of its own
            found.setdefault("factor_alpha", model.readout_["factor_alpha"])
        metrics = validation.metrics(model)
        return Trial(chosen, metrics["mpr"], metrics, extra=model.calibrator_)

    if n_networks == 1 or max_trials == 1 or not contender.grid:
        return coordinate_search(
            lambda settings: attempt(settings, n_networks),
            start,
            contender.grid,
            max_trials=max_trials,
            on_trial=on_trial,
        )
    notify = on_trial or (lambda n_done, n_most, trial: None)
    search = coordinate_search(
        lambda settings: attempt(settings, 1),
        start,
        contender.grid,
        max_trials=max_trials - 1,
        on_trial=lambda n_done, n_most, trial: notify(n_done, max_trials, trial),
    )
    best = {name: search.best.settings[name] for name in start}
    last = coordinate_search(lambda settings: attempt(best, n_networks), {}, {}, max_trials=1)
    trials = [*search.trials, *last.trials]
    notify(len(trials), max_trials, trials[-1])
    return Search(trials, search.seconds + last.seconds)


def _starts_from_factors(settings: dict[str, Any], train: CountMatrix) -> bool:
    network = ModelConfig(
        train.shape[1], n_layers=settings["n_layers"], activation=settings["activation"]
    )
    return NetworksConfig(start_from_factors=settings["start_from_factors"]).starts_from_factors(
        FactorPlan.of(train.nnz, *train.shape), network
    )
