"""Who can enter a comparison: how each model is tuned on validation, and fitted at last."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from cfnade.baselines import EASE, IMF, Popularity, RandomScorer
from cfnade.beyond.factors import FactorPlan
from cfnade.compare.baseline_contenders import BASELINES, WEAK_START, best_stop
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.networks import NetworksConfig
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search
from cfnade.model.config import ModelConfig, usual_item_l2
from cfnade.scorer import Scorer

STRENGTHS = (2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 60.0, 90.0, 130.0, 200.0, 300.0)
"""Regularisation of IMF over the root of 1 + alpha."""


@runtime_checkable
class HasAlpha(Protocol):
    """A contender that a sweep can hold at one alpha."""

    def at_alpha(self, alpha: float) -> Contender:
        """The same with alpha held fixed."""
        ...


class Contender(Protocol):
    """A model with what is needed to treat it fairly."""

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """Choose settings on validation."""
        ...

    def fit(
        self, known: CountMatrix, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> Scorer:
        """Fit with chosen settings on everything that may be known."""
        ...


@dataclass(frozen=True)
class Untuned:
    """A model without settings."""

    make: Callable[[], Popularity | RandomScorer]

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """One trial, as there is nothing to choose."""
        scorer = self.make().fit(validation.train)
        return Search([Trial({}, validation.mpr(scorer))], 0.0)

    def fit(
        self, known: CountMatrix, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> Scorer:
        """Fit on everything that may be known."""
        return self.make().fit(known)


@dataclass(frozen=True)
class EASEContender:
    """EASE: its one setting decides all."""

    grid: dict[str, Any] = field(
        default_factory=lambda: {
            "regularization": (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
        }
    )
    start: dict[str, Any] = field(default_factory=lambda: {"regularization": 1e3})

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """Choose the regularisation."""

        def attempt(settings: dict[str, Any]) -> Trial:
            return validation.trial(settings, EASE(**settings).fit(validation.train))

        return coordinate_search(
            attempt, self.start, self.grid, max_trials=max_trials, on_trial=on_trial
        )

    def fit(
        self, known: CountMatrix, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> Scorer:
        """Fit on everything that may be known."""
        return EASE(**settings).fit(known)


@dataclass(frozen=True)
class IMFContender:
    """IMF: all of its settings matter, and the best regularisation grows with alpha.

    It grows about as the root of 1 + alpha, so what is searched is `strength`, the
    regularisation divided by that root: then the two can be walked along one after the other.
    """

    seed: int = 0
    grid: dict[str, Any] = field(
        default_factory=lambda: {
            "strength": STRENGTHS,
            "alpha": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3),
            "factors": (32, 64, 128, 256, 512),
        }
    )
    start: dict[str, Any] = field(
        default_factory=lambda: {"factors": 128, "alpha": 30.0, "strength": 20.0}
    )
    iterations: tuple[int, ...] = (2, 3, 5, 8, 12, 20, 30)
    """Where each fit is judged on its way."""

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """Choose regularisation, alpha, factors and, along each fit, the iterations."""

        def attempt(tried: dict[str, Any]) -> Trial:
            settings = _with_regularization(tried)
            imf = IMF(
                **settings, relative_rating=validation.relative_rating, random_state=self.seed
            )
            return best_stop(imf.fits(validation.train, self.iterations), settings, validation)

        return coordinate_search(
            attempt,
            self.start,
            self.grid,
            max_trials=max_trials,
            on_trial=on_trial,
            other_starts=[WEAK_START] if "strength" in self.grid else [],
        )

    def fit(
        self, known: CountMatrix, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> Scorer:
        """Fit on everything that may be known."""
        return IMF(**settings, relative_rating=relative_rating, random_state=self.seed).fit(known)


def _with_regularization(settings: dict[str, Any]) -> dict[str, Any]:
    """What IMF takes, in place of the strength."""
    if "strength" not in settings:
        return settings
    others = {name: value for name, value in settings.items() if name != "strength"}
    root = math.sqrt(1.0 + settings["alpha"])
    return {**others, "regularization": round(settings["strength"] * root, 1)}


@dataclass(frozen=True)
class CFNADEContender:
    """CF-NADE with one of its presets."""

    seed: int = 0
    preset: str = "default"
    grid: dict[str, Any] = field(
        default_factory=lambda: {
            "item_l2": (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0, 5.0),
            "alpha": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3),
            "dropout": (0.0, 0.25, 0.5, 0.7),
        }
    )
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset's and are not searched."""

    def search(
        self, validation: Validation, *, max_trials: int, on_trial: OnTrial | None = None
    ) -> Search:
        """Choose the settings in the grid and, by early stopping, the number of epochs.

        Where a fit takes the mean of several networks, one is trained for each trial, and several
        for the last.
        """
        preset = ImplicitCFNADE.from_preset(self.preset, **self.changes).get_params()
        start = {name: preset[name] for name in self.grid}
        if start.get("item_l2", 0.0) is None:
            start["item_l2"] = usual_item_l2(validation.train.nnz, *validation.train.shape)

        n_networks = NetworksConfig(preset["n_networks"]).n_for(validation.train)
        found: dict[str, Any] = {}  # by the first trial, for the others

        def attempt(searched: dict[str, Any], n_networks: int) -> Trial:
            settings = {**found, **searched, "n_networks": n_networks}
            # The last fit, on more pairs, has to start as the one that its epochs are found with.
            starts_from_factors = _starts_from_factors({**preset, **searched}, validation.train)
            settings["start_from_factors"] = starts_from_factors
            model = self._model(settings, validation.relative_rating)
            model.fit(validation.train, validation=validation.held_out)
            if model.validation_mpr_ is None:
                raise TrainingError("CF-NADE was not validated; is there a validation part?")
            chosen = {
                **self.changes,
                **settings,
                "item_l2": model.item_l2_,
                "max_epochs": model.best_epoch_,
                **model.readout_,
            }
            if "factor_alpha" in model.readout_:  # each is a factorisation of its own
                found.setdefault("factor_alpha", model.readout_["factor_alpha"])
            metrics = validation.metrics(model)
            return Trial(chosen, metrics["mpr"], metrics, calibrator=model.calibrator_)

        if n_networks == 1 or max_trials == 1 or not self.grid:
            return coordinate_search(
                lambda settings: attempt(settings, n_networks),
                start,
                self.grid,
                max_trials=max_trials,
                on_trial=on_trial,
            )
        tell = on_trial or (lambda n_done, n_most, trial: None)
        search = coordinate_search(
            lambda settings: attempt(settings, 1),
            start,
            self.grid,
            max_trials=max_trials - 1,
            on_trial=lambda n_done, n_most, trial: tell(n_done, max_trials, trial),
        )
        best = {name: search.best.settings[name] for name in start}
        last = coordinate_search(lambda settings: attempt(best, n_networks), {}, {}, max_trials=1)
        trials = [*search.trials, *last.trials]
        tell(len(trials), max_trials, trials[-1])
        return Search(trials, search.seconds + last.seconds)

    def fit(
        self, known: CountMatrix, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> ImplicitCFNADE:
        """Fit on everything that may be known, for the number of epochs found."""
        return self._model({**settings, "validation_share": 0.0}, relative_rating).fit(known)

    def _model(
        self, settings: dict[str, Any], relative_rating: RelativeRating | None
    ) -> ImplicitCFNADE:
        changes = {**self.changes, **settings, "random_state": self.seed}
        return ImplicitCFNADE.from_preset(self.preset, **changes, relative_rating=relative_rating)


def _starts_from_factors(settings: dict[str, Any], train: CountMatrix) -> bool:
    """Whether a model with all these settings starts from factors of this data."""
    network = ModelConfig(
        train.shape[1], n_layers=settings["n_layers"], activation=settings["activation"]
    )
    return NetworksConfig(start_from_factors=settings["start_from_factors"]).starts_from_factors(
        FactorPlan.of(train.nnz, *train.shape), network
    )


CONTENDERS: dict[str, Callable[[int], Contender]] = {
    "random": lambda seed: Untuned(lambda: RandomScorer(rng=seed)),
    "popularity": lambda seed: Untuned(Popularity),
    "ease": lambda seed: EASEContender(),
    "imf": lambda seed: IMFContender(seed),
    **BASELINES,
    "cfnade": lambda seed: CFNADEContender(seed),
    "cfnade-paper": lambda seed: CFNADEContender(
        seed,
        "paper",
        # The paper does not say what its loss is divided by, so its step of 0.01 has no scale.
        {"learning_rate": (3e-4, 1e-3, 3e-3, 0.01), "alpha": (30.0, 100.0, 300.0)},
    ),
}
"""By the name used in commands; each takes a seed."""


def contender(name: str, seed: int = 0) -> Contender:
    """Look up a contender: one of `CONTENDERS`.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in CONTENDERS:
        raise ConfigError(f"there is no model {name!r}; choose from {', '.join(CONTENDERS)}")
    return CONTENDERS[name](seed)


ALL_MODELS = tuple(name for name in CONTENDERS if name != "random")
"""What `all` stands for: those of this machine; others may be added later."""


def model_names(text: str) -> list[str]:
    """Names with commas between; `all` stands for every model of this machine but chance.

    Raises:
        ConfigError: If there is none of such a name.
    """
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if name == "all":
            names += ALL_MODELS
        elif name:
            contender(name)
            names.append(name)
    return list(dict.fromkeys(names))
