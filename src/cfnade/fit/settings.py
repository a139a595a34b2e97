"""What people set: recipes, and how keywords, nested names and saved settings become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from cfnade.beyond.readout import NO_READOUT, Readout
from cfnade.checks import check_bool, check_choice, check_share
from cfnade.data.splitting import HoldOutBy, check_hold_out_by
from cfnade.errors import ConfigError
from cfnade.metrics.formulas import metric_functions
from cfnade.model.config import Activation, BiasStart, InputScale, Optimizer, Schedule

Start: TypeAlias = Literal["factors", "random"]


def readout_of(value: Readout | Mapping[str, Any]) -> Readout:
    """A readout, as it is or as JSON.

    Raises:
        ConfigError: If it is neither.
    """
    if isinstance(value, Mapping):
        return Readout(**_known(Readout, value))
    if not isinstance(value, Readout):
        raise ConfigError(f"readout must be a Readout, got {value!r}")
    return value


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[f.name] for f in fields(kind) if f.name in values}


@dataclass(frozen=True)
class Recipe:
    """How the network is built and trained. The plan of a fit decides what is None.

    `cfnade.model.config` describes the fields that are not described here.
    """

    n_hidden: int = 256
    alpha: float = 30.0
    item_l2: float | None = None
    dropout: float = 0.25
    learning_rate: float = 5e-3
    batch_size: int | None = None
    max_epochs: int = 200
    patience: int | None = None
    n_layers: int = 1
    activation: Activation = "tanh"
    input_scale: InputScale = "history"
    optimizer: Optimizer = "adam"
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    item_mean: bool = True
    context_share: float | None = 0.5
    weight_average: float = 0.99
    bias_start: BiasStart = "share"
    validate_every: int | None = None
    start: Start | None = None
    """Start most hidden units from a matrix factorisation (`factors`), or all at random."""

    refit: bool | None = None
    """After early stopping, train again on all pairs, those held out included."""

    readout: Readout = field(default_factory=Readout)
    """What is added after training."""

    def __post_init__(self) -> None:
        if self.start is not None:
            check_choice("start", self.start, get_args(Start))
        if self.refit is not None:
            check_bool("refit", self.refit)
        readout_of(self.readout)  # refuses anything else


RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    "paper": Recipe(
        alpha=300.0,
        item_l2=0.0,
        dropout=0.0,
        learning_rate=0.01,
        batch_size=200,
        patience=20,
        input_scale="alpha",
        optimizer="sgd",
        weight_decay=0.01,
        item_mean=False,
        context_share=None,
        weight_average=0.0,
        validate_every=2,
        start="random",
        readout=NO_READOUT,
    ),
}
"""By name. `paper` has what the paper states, and what it takes to make that train (decision 3)."""

OVERRIDES = (
    "n_hidden",
    "alpha",
    "item_l2",
    "dropout",
    "learning_rate",
    "batch_size",
    "max_epochs",
    "patience",
)
"""Fields of a recipe that are keywords of the estimator too."""


@dataclass(frozen=True)
class FitSettings:
    """All settings of one fit, checked."""

    recipe: Recipe = field(default_factory=Recipe)
    validation_share: float = 0.1
    validation_by: HoldOutBy = "pairs"
    choose_by: str | None = None
    seed: int = 0
    n_threads: int | None = None
    memory_limit: str | None = None

    def __post_init__(self) -> None:
        check_share(validation_share=self.validation_share)
        check_hold_out_by("validation_by", self.validation_by)
        if self.choose_by is not None:
            metric_functions([self.choose_by])  # refuses unknown names

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> FitSettings:
        """From the keywords of the estimator.

        Raises:
            ConfigError: If a value has no meaning.
        """
        params = {n: v.item() if isinstance(v, np.generic) else v for n, v in params.items()}
        recipe = recipe_of(params["recipe"])
        given = {name: params[name] for name in OVERRIDES if params[name] is not None}
        recipe = replace(recipe, **given)
        if params["readout"] is not None:
            recipe = replace(recipe, readout=readout_of(params["readout"]))
        same = ("validation_share", "validation_by", "choose_by", "n_threads", "memory_limit")
        return cls(recipe, seed=params["random_state"], **{name: params[name] for name in same})


def recipe_of(value: str | Recipe | Mapping[str, Any]) -> Recipe:
    """A recipe, by its name, as it is, or as JSON.

    Raises:
        ConfigError: If there is none of that name.
    """
    if isinstance(value, Recipe):
        return value
    if isinstance(value, Mapping):
        given = _known(Recipe, value)
        return Recipe(**{**given, "readout": readout_of(given.get("readout", {}))})
    if not isinstance(value, str) or value not in RECIPES:
        raise ConfigError(f"there is no recipe {value!r}; choose from {', '.join(RECIPES)}")
    return RECIPES[value]


GROUPS = {"recipe": Recipe, "readout": Readout}
"""Settings with settings of their own, which are named `recipe__n_layers`."""

NESTED = [
    f"{group}__{f.name}"
    for group, kind in GROUPS.items()
    for f in fields(kind)
    if f.name != "readout"  # of a recipe: the keyword of that name sets it
]
"""Their names."""


def nested_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings inside `recipe` and `readout`, by their nested names."""
    recipe = recipe_of(params["recipe"])
    readout = recipe.readout if params["readout"] is None else readout_of(params["readout"])
    found = {f"recipe__{n}": v for n, v in vars(recipe).items() if n != "readout"}
    return found | {f"readout__{n}": v for n, v in vars(readout).items()}


def with_nested(params: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the estimator, changed by keyword or by nested name.

    Args:
        params: Keywords and their values.
        changes: Such as `alpha`, `recipe`, `readout__direct_gain`.

    Returns:
        The keywords that change.

    Raises:
        ConfigError: If there is no such setting.
    """
    changed = {name: value for name, value in changes.items() if "__" not in name}
    for name in changed:
        if name not in params:
            raise ConfigError(_no_setting(name, params))
    for name in changes.keys() - changed.keys():
        group, inner = name.split("__", 1)
        both = {**params, **changed}
        if name not in NESTED:
            raise ConfigError(_no_setting(name, params))
        if group == "recipe":
            changed["recipe"] = replace(recipe_of(both["recipe"]), **{inner: changes[name]})
            continue
        readout = both["readout"]
        readout = recipe_of(both["recipe"]).readout if readout is None else readout_of(readout)
        changed["readout"] = replace(readout, **{inner: changes[name]})
    return changed


def _no_setting(name: str, params: Mapping[str, Any]) -> str:
    names = [*params, *NESTED]
    near = [each for each in NESTED if each.endswith(f"__{name}")]
    near += [each for each in get_close_matches(name, names, 3) if each not in near]
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(names)}"
    return f"there is no setting {name!r}; {hint}"


def to_json(params: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the estimator as JSON, for the saved folder."""
    saved = {}
    for name, value in params.items():
        if name != "relative_rating":
            value = value.item() if isinstance(value, np.generic) else value
            saved[name] = asdict(value) if isinstance(value, Recipe | Readout) else value
    return saved


def from_json(saved: Mapping[str, Any], keywords: list[str]) -> dict[str, Any]:
    """Keywords of the estimator from a saved folder, those of earlier versions included."""
    params = {name: value for name, value in saved.items() if name in keywords}
    if "recipe" in saved:
        recipe = recipe_of(saved["recipe"])
        params["recipe"] = saved["recipe"] if isinstance(saved["recipe"], str) else recipe
        if saved.get("readout") is not None:
            params["readout"] = readout_of(saved["readout"])
        return params
    flat, readout = _known(Recipe, saved), _known(Readout, saved)  # of earlier versions
    flat.pop("readout", None)
    if saved.get("start_from_factors") is not None:
        flat["start"] = "factors" if saved["start_from_factors"] else "random"
    return {**params, "recipe": Recipe(**flat), "readout": Readout(**readout)}
