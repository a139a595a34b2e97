"""The item that somebody wrote: by its id, or by its name, with suggestions if there is none."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.catalogue import Catalogue
from cfnade.data.item_search import ItemSearch, folded
from cfnade.errors import DataError

N_SUGGESTED = 3
"""Most items that are suggested for an unknown one."""

_N_LISTED = 5  # items of one name


class ItemLookup:
    """Finds items by id, or by name without regard to case and accents; an id comes first."""

    def __init__(self, catalogue: Catalogue, n_watchers: NDArray[np.integer] | None = None) -> None:
        self._catalogue = catalogue
        nobody = np.zeros(len(catalogue), dtype=np.int64)
        self._n_watchers: NDArray[np.integer] = nobody if n_watchers is None else n_watchers
        self._item_of = {str(item): item for item in catalogue.ids.tolist()}

    def __contains__(self, text: str) -> bool:
        return text in self._item_of or folded(text) in self._named

    def item(self, text: str) -> Any:
        """The id of the item with this id or name.

        Raises:
            DataError: If there is none, or several have this name.
        """
        if text in self._item_of:
            return self._item_of[text]
        items = self._named.get(folded(text), [])
        if len(items) == 1:
            return items[0]
        if not items:
            raise DataError(self._unknown(text))
        more = f" and {len(items) - _N_LISTED:,} more" if len(items) > _N_LISTED else ""
        listed = ", ".join(map(self._label, items[:_N_LISTED]))
        raise DataError(
            f"{len(items):,} items are called {text!r}: {listed}{more}; write the id of one"
        )

    def written(self, item: Hashable) -> str:
        """What to write for an item: its name if that is enough, else its id."""
        name = self._catalogue.label(item)
        is_clear = name not in self._item_of and len(self._named[folded(name)]) == 1
        return name if is_clear else str(item)

    def _unknown(self, text: str) -> str:
        """A message about an unknown item, with the items that may be meant."""
        near = self._catalogue.ids[self._search.near(text, N_SUGGESTED)].tolist()
        *others, last = map(self._label, near) if near else [""]
        meant = f"{', '.join(others)} or {last}" if others else last
        hint = (
            f"did you mean {meant}?"
            if near
            else ("leave out unknown items, or train the model again")
        )
        return f"item {text!r} is not in this model ({len(self._catalogue):,} items); {hint}"

    def _label(self, item: Hashable) -> str:
        """An item's name and id, or the id if that is the name."""
        name = self._catalogue.label(item)
        return name if name == str(item) else f"{name} ({item})"

    @cached_property
    def _named(self) -> dict[str, list[Any]]:
        """Items by their name as it is compared, those with the most watchers first."""
        found: dict[str, list[Any]] = {}
        ids = self._catalogue.ids.tolist()
        for column in np.argsort(-self._n_watchers, kind="stable").tolist():
            found.setdefault(folded(self._catalogue.label(ids[column])), []).append(ids[column])
        return found

    @cached_property
    def _search(self) -> ItemSearch:
        ids = self._catalogue.ids.tolist()
        names = [self._catalogue.label(item) for item in ids]
        return ItemSearch(names, [str(item) for item in ids], self._n_watchers)
