"""Settings in a TOML file: what `cfnade tune` writes, and `fit` and `evaluate` read."""

from __future__ import annotations

import json
import logging
import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfnade.errors import ConfigError, DataError
from cfnade.fit.settings import RECIPES

logger = logging.getLogger(__name__)

NOTHING = "None"
"""How None is written: TOML has no word for it, and no setting has a value of that name."""

_PARTS = ("recipe", "settings", "search")


@dataclass(frozen=True)
class SettingsFile:
    """What such a file holds."""

    settings: Mapping[str, Any]
    """Settings of `ImplicitCFNADE`, by keyword or nested name, that differ from the recipe's."""

    recipe: str = "default"
    """Name of the recipe."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """How they were found, if they were: see `cfnade.compare.tune.tune`."""

    @property
    def all_settings(self) -> dict[str, Any]:
        """The recipe's name and the settings that differ from it."""
        return {"recipe": self.recipe, **self.settings}

    def check_test_is_unseen(self, sha256: str, *, seed: int, test_share: float) -> None:
        """Refuse to judge settings on pairs that they were chosen with.

        Args:
            sha256: Of the fingerprint of the data to be split.
            seed: Of the split.
            test_share: Of each user's items to be held out.

        Raises:
            ConfigError: If the search saw this data with another part of it held out.
        """
        if "data_sha256" not in self.search:
            return
        if self.search["data_sha256"] != sha256:
            logger.warning(
                "these settings were chosen on other data; if that held any of the pairs that "
                "are held out now, the figures are too good"
            )
            return
        used = {name: self.search.get(name) for name in ("seed", "test_share")}
        if used != {"seed": seed, "test_share": test_share}:
            raise ConfigError(
                f"these settings were chosen on this data with seed {used['seed']} and a test "
                f"share of {used['test_share']}: with seed {seed} and {test_share} some test pairs "
                "have been seen; use the same, or tune again"
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
        raise ConfigError(f"{path} is no TOML file: {error}") from error
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
        path: Where it goes.
        file: What it holds.
        remarks: Comments to begin with, one a line.

    Raises:
        ConfigError: If a value is none that such a file can hold.
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
    raise ConfigError(f"a settings file holds numbers, texts, true and false; got {value!r}")
