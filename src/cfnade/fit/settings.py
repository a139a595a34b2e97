"""Settings: recipes, and how keywords, nested names and settings files are merged."""

from __future__ import annotations

import json
import logging
import math
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from cfnade.beyond.readout import NO_READOUT, Readout
from cfnade.checks import check_bytes, check_choice, check_share, check_whole
from cfnade.data.splitting import HoldOutBy
from cfnade.errors import ConfigError, DataError
from cfnade.metrics.formulas import metric_function
from cfnade.model.config import (
    Activation,
    BiasStart,
    InputScale,
    Optimizer,
    Precision,
    Schedule,
)

logger = logging.getLogger(__name__)

Start: TypeAlias = Literal["factors", "random"]

ValidationBy: TypeAlias = HoldOutBy | Literal["time", "last"]
"""How validation is held out: random pairs, events or sessions; all events after one point in time;
or the last events of each user."""

VALIDATION_BY = ("pairs", "events", "sessions", "time", "last")


def readout_of(value: Readout | Mapping[str, Any]) -> Readout:
    """Return a readout, given as such or as JSON.

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
    """How the network is built and trained. The plan of a fit decides fields that are None.

    `cfnade.model.config` describes the fields that are not described here.
    """

    n_hidden: int = 256
    alpha: float = 30.0
    item_l2: float | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    max_epochs: int | None = None
    patience: int | None = None
    n_layers: int = 1
    activation: Activation = "tanh"
    input_scale: InputScale = "history"
    optimizer: Optimizer = "adam"
    schedule: Schedule | None = None
    weight_decay: float = 0.0
    item_mean: bool = True
    context_share: float | None = 0.5
    bias_start: BiasStart = "share"
    validate_every: int | None = None
    precision: Precision | None = None
    start: Start | None = None
    """Start most hidden units from a matrix factorisation (`factors`), or all at random. None takes
    factors, and without a direct path neighbours of items as well."""

    trials: int = 1
    """Maximum number of trainings in the search for `max_epochs`, `alpha` and `item_l2`; 1 uses the
    values of the plan."""

    readout: Readout = field(default_factory=Readout)
    """What is added after training."""

    def __post_init__(self) -> None:
        if self.start is not None:
            check_choice("start", self.start, get_args(Start))
        check_whole("trials", self.trials, 1)
        readout_of(self.readout)  # refuses anything else


RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    "thorough": Recipe(trials=8),
    "paper": Recipe(
        alpha=300.0,
        item_l2=0.0,
        learning_rate=0.01,
        batch_size=200,
        max_epochs=5_000,  # early stopping ends it
        patience=40,
        input_scale="alpha",
        optimizer="sgd",
        schedule="constant",
        weight_decay=0.01,
        item_mean=False,
        context_share=None,
        validate_every=2,
        precision="float32",
        start="random",
        readout=NO_READOUT,
    ),
}
"""Recipes by name. `thorough` searches for the number of epochs, alpha and regularisation. `paper`
has the paper's settings, and what it takes to make them train (decision 3)."""

OVERRIDES = (
    "n_hidden",
    "alpha",
    "item_l2",
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
    validation_by: ValidationBy | None = None
    choose_by: str | None = None
    seed: int = 0
    n_threads: int | None = None
    memory_limit: str | None = None

    def __post_init__(self) -> None:
        check_share(validation_share=self.validation_share)
        if self.validation_by is not None:
            check_choice("validation_by", self.validation_by, VALIDATION_BY)
        if self.choose_by is not None:
            metric_function(self.choose_by)  # refuses unknown names
        check_whole("random_state", self.seed, 0)
        if self.n_threads is not None:
            check_whole("n_threads", self.n_threads, 1)
        if self.memory_limit is not None:
            check_bytes("memory_limit", self.memory_limit)

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
    """Return a recipe, given by name, as such or as JSON.

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
"""Settings with settings of their own, named like `recipe__n_layers`."""

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
            raise ConfigError(no_setting(name, [*params, *NESTED]))
    for name in changes.keys() - changed.keys():
        group, inner = name.split("__", 1)
        both = {**params, **changed}
        if name not in NESTED:
            raise ConfigError(no_setting(name, [*params, *NESTED]))
        if group == "recipe":
            changed["recipe"] = replace(recipe_of(both["recipe"]), **{inner: changes[name]})
            continue
        readout = both["readout"]
        readout = recipe_of(both["recipe"]).readout if readout is None else readout_of(readout)
        changed["readout"] = replace(readout, **{inner: changes[name]})
    return changed


_ELSEWHERE = {
    "factors": "n_hidden",
    "iterations": "max_epochs",
    "lr": "learning_rate",
    "regularization": "item_l2",
    "seed": "random_state",
}
"""Settings by the name that other libraries give them."""


def no_setting(name: str, names: Iterable[str]) -> str:
    """A message that there is no such setting, with the nearest ones."""
    names = list(names)
    near = [each for each in names if each.endswith(f"_{name}") or _ELSEWHERE.get(name) == each]
    near = list(dict.fromkeys([*near, *get_close_matches(name, names, 3)]))
    near = [each for each in near if each.removeprefix("recipe__") not in near or "__" not in each]
    hint = f"did you mean {' or '.join(near[:3])}?" if near else f"choose from {', '.join(names)}"
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
    names = {*keywords} - {"relative_rating"}  # which is not saved as a setting
    params = {name: value for name, value in saved.items() if name in names}
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


NOTHING = "None"
"""How None is written: TOML has no word for it, and no setting has a value of that name."""

_PARTS = ("recipe", "settings", "search")


@dataclass(frozen=True)
class SettingsFile:
    """The content of a settings file."""

    settings: Mapping[str, Any]
    """Settings of `ImplicitCFNADE`, by keyword or nested name, that differ from the recipe's."""

    recipe: str = "default"
    """Name of the recipe."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """How they were found, if by a search: see `cfnade.compare.tune.tune`."""

    @property
    def all_settings(self) -> dict[str, Any]:
        """The recipe's name and the settings that differ from it."""
        return {"recipe": self.recipe, **self.settings}

    def check_test_is_unseen(
        self, sha256: str, *, seed: int, test_share: float, split: str = "random"
    ) -> None:
        """Refuse to judge settings on pairs that they were chosen with.

        Args:
            sha256: Of the fingerprint of the data to be split.
            seed: Of the split.
            test_share: Of each user's items, or of the events, to be held out.
            split: How they are held out: "random", "time" or "last".

        Raises:
            ConfigError: If the search saw this data with another part of it held out.
        """
        if "data_sha256" not in self.search:
            return
        if self.search["data_sha256"] != sha256:
            logger.warning(
                "these settings were chosen on other data; if it contains any of the test pairs, "
                "the results are too optimistic"
            )
            return
        used = {name: self.search.get(name) for name in ("seed", "test_share")}
        used["split"] = self.search.get("split", "random")
        if used != {"seed": seed, "test_share": test_share, "split": split}:
            raise ConfigError(
                f"these settings were chosen on this data with seed {used['seed']}, a test share "
                f"of {used['test_share']} and split {used['split']!r}: with seed {seed}, "
                f"{test_share} and {split!r} some test pairs have been seen; use the same, or tune "
                "again"
            )


def read_settings(path: str | Path) -> SettingsFile:
    """Read a settings file.

    Raises:
        ConfigError: If it cannot be read, or holds anything but `recipe`, `[settings]` and
            `[search]`.
    """
    path = Path(path)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from error
    except ValueError as error:  # of TOML, and of UTF-8
        raise ConfigError(f"{path} is not a valid TOML file: {error}") from error
    strange = sorted(set(found) - set(_PARTS))
    if strange:
        raise ConfigError(
            f'{path} holds {strange[0]!r}; a settings file has recipe = "..." and the tables '
            "[settings] and [search]; settings go below [settings]"
        )
    recipe, settings = found.get("recipe", "default"), found.get("settings", {})
    search = found.get("search", {})
    if not isinstance(settings, dict) or not isinstance(search, dict):
        raise ConfigError(f"settings and search must be tables in {path}: [settings], [search]")
    if not isinstance(recipe, str) or recipe not in RECIPES:
        raise ConfigError(
            f"there is no recipe {recipe!r}, which {path} names; choose from {', '.join(RECIPES)}"
        )
    if "relative_rating" in settings:
        raise ConfigError(f"relative_rating cannot be set in a file, as in {path}")
    plain = {name: None if value == NOTHING else value for name, value in settings.items()}
    return SettingsFile(plain, recipe, search)


def write_settings(path: str | Path, file: SettingsFile, *, remarks: str = "") -> None:
    """Write a settings file; a crash leaves the old one or the new one.

    Args:
        path: File to write.
        file: Its content.
        remarks: Comments at the top, one per line.

    Raises:
        ConfigError: If a value cannot be written to TOML.
        DataError: If it cannot be written.
    """
    path = Path(path)
    lines = [f"# {line}".rstrip() for line in remarks.splitlines()]
    lines.append(f"recipe = {_toml(file.recipe)}")
    for title, table in (("settings", file.settings), ("search", file.search)):
        if table:
            lines += ["", f"[{title}]", *(f"{n} = {_toml(v)}" for n, v in table.items())]
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise DataError(f"cannot write {path}: {error.strerror}; choose another place") from error


def _toml(value: Any) -> str:
    """A plain value as TOML has it."""
    if value is None:
        return _toml(NOTHING)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    raise ConfigError(f"a settings file holds numbers, texts, true, false and lists; got {value!r}")
