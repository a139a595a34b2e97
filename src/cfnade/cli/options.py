"""Options shared by several commands, and how their values are parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cfnade.data.ingest import read_interactions, read_item_names
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError
from cfnade.fit import settings as settings_file

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="CSV or Parquet file, a folder or a glob of them.")
]
UserCol = Annotated[str | None, typer.Option(help="Column of user ids; by default recognised.")]
ItemCol = Annotated[str | None, typer.Option(help="Column of item ids; by default recognised.")]
CountCol = Annotated[
    str | None, typer.Option(help="Column of counts; without one, each row is one event.")
]
Events = Annotated[
    bool | None,
    typer.Option(
        "--events/--counts",
        help="Count rows, or add up the count column.",
        show_default="by the columns",
    ),
]
MinUserItems = Annotated[int, typer.Option(help="Drop users with fewer items.")]
MinItemUsers = Annotated[int, typer.Option(help="Drop items with fewer users.")]
Names = Annotated[
    str | None, typer.Option(help="CSV or Parquet table of item ids and readable names.")
]
Test = Annotated[
    str | None,
    typer.Option(help="A fixed test part; all of DATA is then for training."),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON to this file; - is standard output."),
]
TestShare = Annotated[float, typer.Option(help="Share of each user's items held out for the test.")]
CandidatesOption = Annotated[
    str, typer.Option("--candidates", help="Rank unseen items or all items.", metavar="unseen|all")
]
RatingsFromOption = Annotated[
    str,
    typer.Option(
        "--ratings-from",
        metavar="train|all",
        help="Fit relative ratings on the training pairs, or on all pairs as the paper does.",
    ),
]
ValidationBy = Annotated[
    str | None,
    typer.Option(
        "--validation-by",
        metavar="pairs|events|sessions",
        help="Split off the validation part by pairs, events or sessions.",
        show_default="as the test part",
    ),
]
Trials = Annotated[int, typer.Option(help="Settings to try per model, on validation.", min=1)]
RecipeOption = Annotated[
    str, typer.Option("--recipe", help="Settings to start from.", metavar="default|paper")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the model; repeatable."),
]

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="Start from the settings in a file of `tune`."),
]


@dataclass(frozen=True)
class Reading:
    """Options for reading a table."""

    user_col: str | None = None
    item_col: str | None = None
    count_col: str | None = None
    events: bool | None = None
    min_user_items: int = 0
    min_item_users: int = 0
    names: str | None = None

    def read(self, source: str, *, floors: bool = True) -> Interactions:
        """Read interactions; a fixed test part is read without floors."""
        data = read_interactions(
            source,
            user_col=self.user_col,
            item_col=self.item_col,
            count_col=self.count_col,
            events=self.events,
            min_user_items=self.min_user_items if floors else 0,
            min_item_users=self.min_item_users if floors else 0,
        )
        return data if self.names is None else data.with_item_names(read_item_names(self.names))

    def read_test(self, source: str | None) -> Interactions | None:
        """Read a fixed test part, if there is one."""
        return None if source is None else self.read(source, floors=False)


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Parse settings written as NAME=VALUE.

    Raises:
        ConfigError: If one has another form.
    """
    settings = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set takes NAME=VALUE, got {pair!r}; for example --set alpha=100")
        key = name.strip().replace("-", "_")
        if key == "relative_rating":
            raise ConfigError("relative_rating cannot be set on the command line")
        settings[key] = _value(text.strip())
    return settings


def starting_from(recipe: str, path: Path | None) -> settings_file.SettingsFile:
    """The settings to start from: those of a file, or a recipe.

    Raises:
        ConfigError: If both are given, or the file cannot be read.
    """
    if path is None:
        return settings_file.SettingsFile({}, recipe)
    if recipe != "default":
        raise ConfigError(f"--recipe does not go with --settings: {path} names its own")
    return settings_file.read_settings(path)


def parse_numbers(text: str, option: str) -> list[float]:
    """Parse numbers separated by commas.

    Raises:
        ConfigError: If one is not a number.
    """
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(f"{option} takes numbers separated by commas, got {text!r}") from None


def parse_weights(
    entries: list[str], ids: Mapping[str, Any], missing: float, what: str
) -> dict[Any, float]:
    """Parse ITEM or ITEM=NUMBER; unknown items stay as written.

    Args:
        entries: To parse; numbers of repeated items add up.
        ids: Item ids by their text.
        missing: Number of an item without one.
        what: The expected form, for messages.

    Raises:
        ConfigError: If a number is not one.
    """
    numbers: dict[Any, float] = {}
    for entry in entries:
        item, equals, text = entry.rpartition("=")
        if not equals or entry in ids:  # an id may contain an equals sign
            item, text = entry, str(missing)
        try:
            number = float(text)
        except ValueError:
            raise ConfigError(f"expected {what}, got {entry!r}") from None
        key = ids.get(item, item)
        numbers[key] = numbers.get(key, 0.0) + number
    return numbers


def only_user(data: Interactions, user: str) -> Interactions:
    """The counts of one user of a table, by the text of the id.

    Raises:
        DataError: If there is no such user.
    """
    rows = [row for row, known in enumerate(data.user_ids.tolist()) if str(known) == user][:1]
    if not rows:
        raise DataError(f"user {user!r} is not in the table ({data.n_users:,} users)")
    return Interactions(data.counts[rows], data.user_ids[rows], data.item_ids)


def dataset_name(source: str) -> str:
    """A short name of a data set, for tables."""
    return Path(source).name.removesuffix(".parquet").removesuffix(".csv") or source


def _value(text: str) -> Any:
    """A number, true, false or null; anything else is text."""
    try:
        return json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
    except ValueError:
        return text
