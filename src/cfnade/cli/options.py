"""How a command is declared, the options that several share, and how their values are parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cfnade.compare.protocol import ProtocolConfig
from cfnade.data.ingest import read_interactions, read_item_names
from cfnade.data.ingest.columns import Columns
from cfnade.data.interactions import Interactions
from cfnade.data.item_lookup import ItemLookup
from cfnade.errors import ConfigError, DataError
from cfnade.fit import settings as settings_file

Command = Callable[..., None]

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="CSV or Parquet file, a folder or a glob of them.")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `fit` saved.")]
Test = Annotated[str | None, typer.Option(help="A test file; DATA is then used for training only.")]
ItemsTables = Annotated[
    list[str] | None,
    typer.Option(
        "--items",
        help="CSV or Parquet table of what is known about items, for CF-NADE: categories, tags, "
        "text; repeatable.",
    ),
]
Names = Annotated[
    str | None, typer.Option(help="CSV or Parquet table of item ids and readable names.")
]
NameCol = Annotated[
    str | None,
    typer.Option(help="Column of names, in the table of names or else in DATA."),
]
DropMissingIds = Annotated[
    bool,
    typer.Option("--drop-missing-ids", help="Leave out rows without a user or an item."),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON to this file; - is standard output."),
]
TestShare = Annotated[
    float,
    typer.Option(help="Share of each user's items, or of the events, held out for the test."),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="random|time|last",
        help="Test on random items, on all events after a point in time, or on each user's last.",
        show_default="by time or order if the data have one",
    ),
]
Recipe = Annotated[
    str, typer.Option(help="Settings to start from.", metavar="default|thorough|paper")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the model; repeatable."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="Settings file written by `tune`."),
]


@dataclass(frozen=True)
class ColumnOptions(Columns):
    """Which columns of a table hold what, and whether rows without an id are dropped."""

    user_col: Annotated[
        str | None, typer.Option(help="Column of user ids; by default found by name.")
    ] = None
    item_col: Annotated[
        str | None, typer.Option(help="Column of item ids; by default found by name.")
    ] = None
    count_col: Annotated[
        str | None, typer.Option(help="Column of counts; without one, each row is one event.")
    ] = None
    events: Annotated[
        bool | None,
        typer.Option(
            "--events/--counts",
            help="Count rows, or add up the count column.",
            show_default="detected from the columns",
        ),
    ] = None
    time_col: Annotated[
        str | None,
        typer.Option(help="Column of times, by default found by name; `none` ignores times."),
    ] = None
    event_col: Annotated[
        str | None,
        typer.Option(help="Column of kinds of events, found by name; `none` ignores kinds."),
    ] = None
    drop_missing_ids: DropMissingIds = False

    def read(self, source: str) -> Interactions:
        """Read the interactions of a table."""
        return read_interactions(source, **vars(self))


@dataclass(frozen=True)
class TableOptions(ColumnOptions):
    """How to read a table."""

    event_weights: Annotated[
        str | None,
        typer.Option(
            metavar="EVENT=WEIGHT,...",
            help="What an event of each kind counts, such as view=1,purchase=10,skip=-1.",
        ),
    ] = None
    target_event: Annotated[
        str | None,
        typer.Option(help="Kind of event to predict, such as purchase; finds the weights."),
    ] = None
    min_user_items: Annotated[int, typer.Option(help="Drop users with fewer items.")] = 0
    min_item_users: Annotated[int, typer.Option(help="Drop items with fewer users.")] = 0

    def read_test(self, source: str | None) -> Interactions | None:
        """Read a fixed test part, if there is one; the floors do not apply to it."""
        if source is None:
            return None
        plain = ColumnOptions(
            **{field.name: getattr(self, field.name) for field in fields(Columns)}
        )
        return plain.read(source)

    def read(self, source: str, name_col: str | None = None) -> Interactions:
        """Read the interactions of a table, with the weights of events and perhaps names."""
        weights = parse_event_weights(self.event_weights)
        return read_interactions(
            source, **{**vars(self), "event_weights": weights, "name_col": name_col}
        )


@dataclass(frozen=True)
class ProtocolOptions:
    """How to split and rank."""

    test_share: TestShare = 0.1
    split: Split = None
    candidates: Annotated[
        str, typer.Option(help="Rank unseen items or all items.", metavar="unseen|all")
    ] = "unseen"
    ratings_from: Annotated[
        str,
        typer.Option(
            metavar="train|all",
            help="Fit relative ratings on the training pairs, or on all pairs as the paper does.",
        ),
    ] = "train"
    validation_by: Annotated[
        str | None,
        typer.Option(
            metavar="pairs|events|sessions",
            help="With a random split: hold out validation by pairs, events or sessions.",
            show_default="like the test part",
        ),
    ] = None
    recency: Annotated[
        bool,
        typer.Option(help="With times: give every model the search for recency that CF-NADE has."),
    ] = True
    choose_by: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Validation metric that all models are chosen by, such as mpr or ndcg@20.",
            show_default="mpr and ndcg@100 alike",
        ),
    ] = None

    def config(self, seed: int) -> ProtocolConfig:
        """As settings of a comparison."""
        return ProtocolConfig(seed=seed, **vars(self))


def command(commands: typer.Typer, name: str, *, example: str) -> Callable[[Command], Command]:
    """Register a function as a command, with an example in its help.

    A parameter whose type is one of the dataclasses above becomes one option per field.
    """

    def register(function: Command) -> Command:
        commands.command(name, epilog=f"Example: {example}")(_with_flat_options(function))
        return function

    return register


def _with_flat_options(function: Command) -> Command:
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for parameter in signature(function, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            parameters += signature(kind, eval_str=True).parameters.values()
        else:
            parameters.append(parameter)

    @wraps(function)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    by_keyword = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    flat.__signature__ = Signature(by_keyword)  # type: ignore[attr-defined]  # typer reads it
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def read_named(
    table: TableOptions, data: str, names: str | None, name_col: str | None
) -> Interactions:
    """Read the interactions of a table; names of items from another, or a column of it."""
    if names is None:
        return table.read(data, name_col)
    known = read_item_names(names, name_col=name_col, data_item_col=table.item_col)
    return table.read(data).with_item_names(known)


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Parse settings written as NAME=VALUE; a value is a number, true, false, null or text."""
    settings: dict[str, Any] = {}
    for name, text in parse_pairs(pairs, "--set", "alpha=100").items():
        key = name.strip().replace("-", "_")
        if key == "relative_rating":
            raise ConfigError("relative_rating cannot be set on the command line")
        value = text.strip()
        try:
            json_text = {"None": "null", "True": "true", "False": "false"}.get(value, value)
            settings[key] = json.loads(json_text)
        except ValueError:
            settings[key] = value
    return settings


def parse_event_weights(text: str | None) -> dict[str, float] | None:
    """Parse `view=1,purchase=10`; None stays None."""
    if text is None:
        return None
    example = "view=1,purchase=10"
    what = f"a number for each event, such as {example}"
    weights: dict[str, float] = {}
    for pair in text.split(","):
        for name, weight in parse_pairs([pair], "--event-weights", example).items():
            if name.strip() in weights:
                raise ConfigError(f"event {name.strip()!r} has two weights; expected {what}")
            weights[name.strip()] = _number(weight, text, what)
    return weights


def parse_seconds(text: str) -> float | None:
    """Parse a time such as `90s`, `2m` or `90`; None for `none`."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"--budget takes a time such as 90s, 2m or none, got {text!r}")
    return float(match[1]) * {"m": 60.0, "h": 3600.0}.get(match[2], 1.0)


def parse_pairs(pairs: list[str] | None, option: str, example: str) -> dict[str, str]:
    """Parse texts written as NAME=VALUE; raises `ConfigError` if one has another form."""
    texts = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(
                f"{option} takes NAME=VALUE, got {pair!r}; for example {option} {example}"
            )
        texts[name] = text
    return texts


def starting_from(recipe: str, path: Path | None) -> settings_file.SettingsFile:
    """The settings to start from: those of a file, or else a recipe."""
    if path is None:
        return settings_file.SettingsFile({}, recipe)
    if recipe != "default":
        raise ConfigError(f"--recipe does not go with --settings: {path} names its own")
    return settings_file.read_settings(path)


def parse_weights(
    entries: list[str], items: ItemLookup, missing: float, what: str
) -> dict[Any, float]:
    """Parse ITEM or ITEM=NUMBER.

    Args:
        entries: To parse; numbers of repeated items add up.
        items: How items are found.
        missing: Number of an item without one.
        what: The expected form, for messages.
    """
    numbers: dict[Any, float] = {}
    for entry in entries:
        key, text = _item_and_rest(entry, items)
        number = missing if text is None else _number(text, entry, what)
        numbers[key] = numbers.get(key, 0.0) + number
    return numbers


def parse_history(entries: list[str], items: ItemLookup) -> dict[Any, Any]:
    """Parse ITEM, ITEM=COUNT or ITEM=EVENT:COUNT@WHEN.

    Returns:
        Counts and times, None without one, of all entries of each item; by kind of event if any
        entry of the item names one.
    """
    history: dict[Any, dict[str | None, list[tuple[float, str | None]]]] = {}
    for entry in entries:
        key, text = _item_and_rest(entry, items)
        what, at, when = (text or "1").partition("@")
        kind, colon, count = what.rpartition(":")
        number = _number(count, entry, "ITEM, ITEM=COUNT or ITEM=EVENT:COUNT@WHEN")
        event = (number, when if at else None)
        history.setdefault(key, {}).setdefault(kind if colon else None, []).append(event)
    return {
        item: events[None] if set(events) == {None} else events for item, events in history.items()
    }


def _item_and_rest(entry: str, items: ItemLookup) -> tuple[Any, str | None]:
    """The item of an entry, and what follows its last equals sign."""
    item, equals, text = entry.rpartition("=")
    if not equals or entry in items:  # an id may contain an equals sign
        return items.item(entry), None
    return items.item(item), text


def _number(text: str, entry: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"expected {what}, got {entry!r}") from None


def only_user(data: Interactions, user: str) -> Interactions:
    """The counts of one user, by the text of the id; raises `DataError` without such a user."""
    rows = [row for row, known in enumerate(data.user_ids.tolist()) if str(known) == user][:1]
    if not rows:
        raise DataError(f"user {user!r} is not in the table ({data.n_users:,} users)")
    is_chosen = np.zeros(data.n_users, dtype=np.bool_)
    is_chosen[rows] = True
    items = np.ones(data.n_items, dtype=np.bool_)
    log = None if data.log is None else data.log.select(is_chosen, items)
    return replace(data, counts=data.counts[rows], user_ids=data.user_ids[rows], log=log)


def check_figure(figure: Path | None) -> None:
    """Refuse another ending before the hours of work, not after them."""
    if figure is not None and figure.suffix not in (".svg", ".png"):
        raise ConfigError(f"--figure must end in .svg or .png, got {figure.name!r}")


def dataset_name(source: str) -> str:
    """A short name of a data set, for tables."""
    return Path(source).name.removesuffix(".parquet").removesuffix(".csv") or source
