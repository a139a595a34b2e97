"""The models that can be compared, by name, with the grids in which their settings are searched.

Grids are wide enough that the best value is seldom at an end; searches start at values from
the methods' own papers, or that suit ml-1m and lastfm-2k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import cfnade.baselines as models
from cfnade.baselines.ease import shared_gram
from cfnade.baselines.support import library
from cfnade.baselines.without_network import neighbour_weights
from cfnade.beyond.features import FeatureStrengths
from cfnade.beyond.shared_work import shared_work
from cfnade.compare.contender import Contender
from cfnade.compare.described import DescribedCFNADE
from cfnade.data.described_items import DescribedItems
from cfnade.data.interactions import CountMatrix
from cfnade.errors import ConfigError, TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.metrics.formulas import cost_by
from cfnade.metrics.search import OnTrial, Search, Trial, Validation, coordinate_search

Registry = Mapping[str, Callable[[int], Contender]]
"""Functions that make a contender from a seed, by model name."""

# Regularisation of IMF, see `imf_regularization`.
STRENGTHS = (
    *(1.0, 1.4, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 60.0, 90.0, 130.0, 200.0, 300.0),
    *(450.0, 700.0),
)
# IMF and the collective model are searched alike.
IMF_START = {"factors": 128, "alpha": 30.0, "strength": 20.0}
IMF_GRID: Mapping[str, Sequence[Any]] = {
    "strength": STRENGTHS,
    "alpha": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4),
    "factors": (8, 16, 32, 64, 128, 256, 512, 1024, 2048),
}
IMF_STOPS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200)
# A second start of IMF and iALS, for few users: the usual strength would make them all alike.
WEAK_START = {"strength": 3.0}

SCHEMES = ("uniform", "user", "item")  # of weights and of negatives, Pan et al. (2008)

# Of a source of the collective model, where the kind to predict has 1.
SOURCE_WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
_WEIGHT = "weight of "

CFNADE_GRID: Mapping[str, Sequence[Any]] = {
    "item_l2": (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0, 5.0, 12.0, 30.0),
    "alpha": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3),
}


def cfnade(
    seed: int = 0,
    recipe: str = "default",
    grid: Mapping[str, Sequence[Any]] = CFNADE_GRID,
    start: Mapping[str, Any] | None = None,
    *,
    uses_times: bool = True,
    only_targets: bool = False,
) -> Contender:
    """CF-NADE as a contender.

    `start` are settings that differ from the recipe; the values at the start must be in the grid.
    """
    return Contender(
        _make_cfnade,
        {"recipe": recipe, **(start or {})},
        grid,
        fixed={"random_state": seed},
        uses_ratings=True,
        uses_ids=True,
        uses_times=uses_times,
        only_targets=only_targets,
        uses_items=True,
        gets_recency=False,  # its readout has it
        is_slow=True,
        final={"validation_share": 0.0},  # for the number of epochs found in the search
        search_by=_search_cfnade,
    )


def _make_cfnade(
    *,
    items: DescribedItems | None = None,
    feature_strengths: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ImplicitCFNADE | DescribedCFNADE:
    """An unfitted model, with the strengths of features that a search found, if any."""
    model = ImplicitCFNADE().set_params(**settings)
    if items is None or feature_strengths is None:
        return model
    return DescribedCFNADE(model, items, FeatureStrengths.of(feature_strengths))


def _search_cfnade(
    contender: Contender,
    validation: Validation,
    max_trials: int,
    seconds: float,
    on_trial: OnTrial | None,
) -> Search:
    """Search the grid; each fit finds its epochs and readout."""
    data = validation.train_data
    train: Any = validation.train if data is None else contender.training_data(data)
    plan = contender.model(contender.start, None).plan(train)
    usual = {**vars(plan.model), **vars(plan.training)}

    def attempt(searched: dict[str, Any]) -> Trial:
        # The final fit, on more pairs, has to start like the one that finds the epochs.
        start: str | None = "random" if plan.factors is None else "factors"
        if plan.start_neighbours is not None:
            start = None  # the plan says the same of more pairs
        by = {"choose_by": validation.choose_by, "recipe__start": start}
        settings = {**by, **contender.start, **searched}
        model = contender.model(settings, validation.relative_rating)
        model.fit(train, validation=validation.held_out, items=contender.fixed.get("items"))
        if model.validation_mpr_ is None:
            raise TrainingError("CF-NADE was not validated; is there a validation part?")
        carried_out = model.plan(train).training
        chosen = {
            **settings,
            "alpha": model.scorer_.network.config.alpha,
            "item_l2": model.item_l2_,
            "learning_rate": carried_out.learning_rate,
            "max_epochs": model.best_epoch_,
            **{f"readout__{name}": value for name, value in asdict(model.readout_).items()},
        }
        if model.feature_strengths_ is not None:
            chosen["feature_strengths"] = asdict(model.feature_strengths_)
        metrics = validation.metrics(model)
        n_looks = model.n_looks_ + 1
        cost = cost_by(metrics, validation.choose_by)
        return Trial(chosen, cost, metrics, n_looks=n_looks, extra=model.calibrator_)

    with shared_work():  # the factorisation and the neighbours
        return coordinate_search(
            attempt,
            {name: usual[name] for name in contender.grid},
            contender.grid,
            max_trials=max_trials,
            seconds=seconds,
            on_trial=on_trial,
        )


def imf_regularization(settings: dict[str, Any], counts: CountMatrix) -> dict[str, Any]:
    """IMF's settings, with the regularisation `strength * sqrt(1 + alpha)`.

    The best one grows about like that root, so the strength can be searched apart from alpha.
    """
    root = math.sqrt(1.0 + settings["alpha"])
    return _in_place_of_strength(settings, round(settings["strength"] * root, 1))


def ials_regularization(settings: dict[str, Any], counts: CountMatrix) -> dict[str, Any]:
    """IALS's settings, with a mean penalty of `strength * sqrt(alpha0)` whatever nu is.

    With `nu=0` and `alpha0 = 1 / alpha` that is IMF's, divided by alpha as the whole loss is.
    """
    alpha0, nu = settings["alpha0"], settings["nu"]
    n_users, n_items = counts.shape
    of_users = np.diff(counts.indptr) + alpha0 * n_items
    of_items = np.bincount(counts.indices, minlength=n_items) + alpha0 * n_users
    mean = float(np.mean(np.concatenate([of_users, of_items]) ** nu))
    penalty = settings["strength"] * math.sqrt(alpha0) / mean
    return _in_place_of_strength(settings, float(f"{penalty:.4g}"))


def lrec_regularization(settings: dict[str, Any], counts: CountMatrix) -> dict[str, Any]:
    """LRec's settings, with the strength as regularisation of the squared loss.

    With the logistic loss, curvature and best penalty are smaller, about by the share of likes.
    """
    strength = settings["strength"]
    if settings["loss"] == "logistic":
        strength *= counts.nnz / (counts.shape[0] * counts.shape[1])
    return _in_place_of_strength(settings, float(f"{strength:.4g}"))


def _in_place_of_strength(settings: dict[str, Any], regularization: float) -> dict[str, Any]:
    others = {name: value for name, value in settings.items() if name != "strength"}
    return {**others, "regularization": regularization}


def _search_collective(
    contender: Contender,
    validation: Validation,
    max_trials: int,
    seconds: float,
    on_trial: OnTrial | None,
) -> Search:
    """The usual search, with a weight for each kind of event that is not to be predicted."""
    data = validation.train_data
    kinds = () if data is None or data.log is None else data.log.kinds
    target = None if data is None else data.target_event
    names = [f"{_WEIGHT}{kind}" for kind in kinds if kind != target]
    with_weights = replace(
        contender,
        start={**contender.start, **dict.fromkeys(names, 0.3)},
        grid={**dict.fromkeys(names, SOURCE_WEIGHTS), **contender.grid},
        bounded=names,
        search_by=None,
    )
    return with_weights.search(
        validation, max_trials=max_trials, seconds=seconds, on_trial=on_trial
    )


def _collective_settings(settings: dict[str, Any], counts: CountMatrix) -> dict[str, Any]:
    """Those of IMF, and the weights of all kinds of events in one."""
    weights = {n.removeprefix(_WEIGHT): w for n, w in settings.items() if n.startswith(_WEIGHT)}
    others = {name: value for name, value in settings.items() if not name.startswith(_WEIGHT)}
    return {**imf_regularization(others, counts), "event_weights": weights}


CONTENDERS: Registry = {
    "random": lambda seed: Contender(models.RandomScorer, fixed={"rng": seed}),
    "popularity": lambda seed: Contender(models.Popularity),
    "ease": lambda seed: Contender(
        models.EASE,
        {"regularization": 1e3},
        {"regularization": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5)},
        shared={"gram": shared_gram},
    ),
    "imf": lambda seed: Contender(
        models.IMF,
        IMF_START,
        IMF_GRID,
        stops=IMF_STOPS,
        fixed={"random_state": seed},
        uses_ratings=True,
        other_starts=(WEAK_START,),
        translate=imf_regularization,
    ),
    "collective": lambda seed: Contender(
        models.CollectiveIMF,
        IMF_START,
        IMF_GRID,
        stops=IMF_STOPS,
        fixed={"random_state": seed},
        uses_ids=True,
        uses_times=True,
        gets_recency=False,  # its histories are not counts
        other_starts=(WEAK_START,),
        translate=_collective_settings,
        search_by=_search_collective,
    ),
    "ials": lambda seed: Contender(
        models.IALS,
        {"factors": 128, "alpha0": 0.03, "strength": 14.0, "nu": 1.0, "weigh_counts": True},
        {
            "strength": STRENGTHS,
            "alpha0": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
            # Not first: each doubling takes four times as long, and the time may be over.
            "factors": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
            "nu": (0.0, 0.5, 1.0),
            "weigh_counts": (False, True),
        },
        stops=(1, 2, 4, 8, 12, 20, 30, 50, 80, 120),
        fixed={"random_state": seed},
        uses_ratings=True,
        bounded=("nu",),
        other_starts=(WEAK_START, {"alpha0": 0.1}),  # the second for dense data
        translate=ials_regularization,
    ),
    "wals": lambda seed: Contender(
        models.WeightedALS,
        {"factors": 64, "weight": 0.03, "scheme": "uniform", "regularization": 0.03},
        {
            "regularization": (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0),
            "weight": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 0.9),
            "scheme": SCHEMES,
            "factors": (8, 16, 32, 64, 128, 256, 512),
        },
        stops=(3, 6, 10, 20, 40),
        fixed={"random_state": seed},
    ),
    "sals-ens": lambda seed: Contender(
        models.SampledALS,
        {"factors": 32, "negatives": 3.0, "scheme": "user", "regularization": 0.03},
        {
            "regularization": (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0),
            "negatives": (0.3, 1.0, 3.0, 10.0, 30.0),
            "scheme": SCHEMES,
            "factors": (4, 8, 16, 32, 64, 128, 256),
        },
        stops=(2, 4, 8, 16, 32),
        fixed={"random_state": seed},
    ),
    "imputed-mf": lambda seed: Contender(
        models.ImputedALS,
        {"factors": 64, "weight": 0.03, "imputed": 0.01, "regularization": 3.0},
        {
            "regularization": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
            "imputed": (0.0, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.4),
            "weight": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 0.9),
            "factors": (8, 16, 32, 64, 128, 256, 512),
        },
        stops=(3, 6, 10, 20, 40),
        fixed={"random_state": seed},
    ),
    "edlae": lambda seed: Contender(
        models.EDLAE,
        {"regularization": 300.0, "dropout": 0.5},
        {
            "regularization": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5),
            "dropout": (0.0, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998),
        },
        shared={"gram": shared_gram},
    ),
    "slim": lambda seed: Contender(
        models.SLIM,
        {"l1": 1.0, "l2": 100.0},
        {
            "l2": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4),
            "l1": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        },
    ),
    "lrec": lambda seed: Contender(
        models.LRec,
        {"strength": 300.0, "loss": "squared"},
        {
            "strength": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4),
            "loss": ("squared", "logistic"),
        },
        translate=lrec_regularization,
    ),
    "knn": lambda seed: Contender(
        models.ItemKNN,
        {"neighbours": 200, "similarity": "cosine", "weigh_counts": False},
        {
            "similarity": ("bm25", "cosine", "tfidf"),
            "neighbours": (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
            "weigh_counts": (False, True),
        },
        uses_ratings=True,
    ),
    "logistic-mf": lambda seed: Contender(
        models.LogisticMF,
        {"factors": 64, "alpha": 3.0, "regularization": 3.0},
        {
            "regularization": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
            "alpha": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
            "factors": (4, 8, 16, 32, 64, 128, 256, 512),
        },
        stops=(5, 10, 20, 40, 80, 160),
        fixed={"random_state": seed},
        uses_ratings=True,
    ),
    "bpr": lambda seed: Contender(
        models.BPR,
        {"factors": 64, "learning_rate": 0.05, "regularization": 0.01},
        {
            "regularization": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3),
            "learning_rate": (2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
            "factors": (8, 16, 32, 64, 128, 256, 512),
        },
        stops=(5, 10, 20, 40, 80, 160, 320),
        fixed={"random_state": seed},
    ),
    "mult-dae": lambda seed: Contender(
        models.MultinomialDAE,
        {"n_hidden": 200, "dropout": 0.5, "weight_decay": 0.0},
        {
            "dropout": (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9),
            "n_hidden": (25, 50, 100, 200, 400, 800, 1600),
            "weight_decay": (0.0, 1e-5, 1e-4, 1e-3, 1e-2),
        },
        stops=(5, 10, 15, 20, 30, 40, 60, 80, 120),
        fixed={"random_state": seed},
    ),
    "cfnade": cfnade,
    "cfnade-network": lambda seed: cfnade(seed, start={"readout__direct": False}),
    "cfnade-no-network": lambda seed: Contender(
        models.WithoutNetwork,
        {**IMF_START, "direct_gain": 8.0},
        {"direct_gain": (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0), **IMF_GRID},
        stops=IMF_STOPS,
        fixed={"random_state": seed},
        uses_ratings=True,
        shared={"neighbours": neighbour_weights},
        other_starts=(WEAK_START,),
        translate=imf_regularization,
    ),
    "cfnade-undated": lambda seed: cfnade(seed, uses_times=False),
    "cfnade-target": lambda seed: cfnade(seed, only_targets=True),
    "cfnade-paper": lambda seed: cfnade(
        seed,
        "paper",
        # The paper does not say what its loss is divided by, so its step of 0.01 has no scale.
        {
            "learning_rate": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03),
            "alpha": (10.0, 30.0, 100.0, 300.0, 1e3),
        },
    ),
}


_NOT_ALL = ("random", "collective", "cfnade-target")


def contender(name: str, seed: int = 0, registry: Registry = CONTENDERS) -> Contender:
    """Look up a contender by name; refuses unknown names."""
    if name not in registry:
        raise ConfigError(f"there is no model {name!r}; choose from {', '.join(registry)}")
    return registry[name](seed)


def named_contenders(
    text: str, seed: int = 0, registry: Registry = CONTENDERS
) -> dict[str, Contender]:
    """The contenders of a comma-separated list.

    `all` is all of `CONTENDERS` but `random` and those that need kinds of events.
    """
    names: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        names += [each for each in CONTENDERS if each not in _NOT_ALL] if name == "all" else [name]
    for name in [name for name in names if name in ("ials", "slim")]:
        library("irspack.recommenders", f"the model {name!r}")  # fails before minutes of search
    return {name: contender(name, seed, registry) for name in names}
