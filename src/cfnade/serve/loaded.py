"""A saved model made ready to serve: loaded, its items written as JSON has them, and tried out."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.errors import ArtifactError
from cfnade.estimator import ImplicitCFNADE
from cfnade.model.inference import NumpyNetwork
from cfnade.serve.item_search import ItemSearch
from cfnade.storage.folder import FILES, MODEL

Stamp = tuple[tuple[int, int, int], ...]
"""What tells one state of a folder from another."""

_TRIES = 3


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that answers; never changed, only replaced."""

    model: ImplicitCFNADE
    """The model itself."""

    name: str
    """Of its folder."""

    stamp: Stamp
    """Of the folder as it was loaded."""

    version: str
    """The first figures of the checksum that `model.json` has of itself."""

    loaded_at: str
    """When, in UTC."""

    @property
    def network(self) -> NumpyNetwork:
        """The trained network."""
        return self.model.scorer_.network

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.model.catalogue_)

    @cached_property
    def ids(self) -> list[Any]:
        """Each item's id as the model has it."""
        found: list[Any] = self.model.catalogue_.ids.tolist()
        return found

    @cached_property
    def items(self) -> list[dict[str, Any]]:
        """Each item as JSON has it: id and name."""
        catalogue = self.model.catalogue_
        names = catalogue.ids.tolist() if catalogue.names is None else catalogue.names.tolist()
        return [
            {"item": _as_json(item), "name": str(name)}
            for item, name in zip(self.ids, names, strict=True)
        ]

    @cached_property
    def column_of(self) -> dict[str, int]:
        """Column of each id, written as text; where a text means two ids, that which is text."""
        columns = {str(item): column for column, item in enumerate(self.ids)}
        columns.update({item: c for c, item in enumerate(self.ids) if isinstance(item, str)})
        return columns

    @cached_property
    def search(self) -> ItemSearch:
        """Finds items by name or id."""
        return ItemSearch(
            [item["name"] for item in self.items],
            [str(item) for item in self.ids],
            self.model.scorer_.relative_rating.n_watchers,
        )

    @property
    def is_calibrated(self) -> bool:
        """Whether it turns scores into honest probabilities."""
        return self.model.calibrator_ is not None

    def columns(self, items: list[str]) -> tuple[list[int], list[str]]:
        """Columns of the items that are known, and the others."""
        known = [self.column_of[item] for item in items if item in self.column_of]
        return known, [item for item in items if item not in self.column_of]


def stamp_of(folder: Path) -> Stamp | None:
    """The state of a folder; None while a file of the model is missing."""
    try:
        states = [(folder / name).stat() for name in (MODEL, *FILES)]
    except OSError:
        return None
    return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def is_changed_in_place(before: Stamp, after: Stamp | None) -> bool:
    """Whether a file is the same as before and has other content: it was not replaced."""
    pairs = zip(before, after or (), strict=False)
    return any(old != new and old[0] == new[0] for old, new in pairs)


def load(folder: Path) -> LoadedModel:
    """Load a model, checksums compared.

    A folder that is being replaced may be refused in that very moment, or change in between; it
    is then looked at again.

    Raises:
        ArtifactError: If there is none or it cannot be used.
    """
    for tries_left in reversed(range(_TRIES)):
        before = stamp_of(folder)
        try:
            model = ImplicitCFNADE.load(folder)
            described = json.loads((folder / MODEL).read_bytes())
        except (ArtifactError, OSError, ValueError) as error:
            if tries_left and stamp_of(folder) != before:
                continue
            if isinstance(error, ArtifactError):
                raise
            raise ArtifactError(f"the model in {folder} cannot be read: {error}") from error
        if before is not None and stamp_of(folder) == before:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            version = str(described.get("sha256", ""))[:12]
            model.scorer_.network.keep_output_by_unit()
            return LoadedModel(model, folder.resolve().name, before, version, now)
    raise ArtifactError(f"the model in {folder} changed while it was read; leave it as it is")


def _as_json(item: Any) -> str | int | float | bool:
    """An id as JSON can hold it: numbers and texts as they are, anything else as text."""
    if isinstance(item, (bool, int, str)):
        return item
    if isinstance(item, (float, np.floating)) and math.isfinite(item):
        return float(item)
    return str(item)
