"""Items of a table with what is known about them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import append_ids, places_among
from cfnade.data.item_features import ItemFeatures


@dataclass(frozen=True, eq=False)
class DescribedItems:
    """What is known about items, and their names."""

    ids: NDArray[Any]
    """(n_items,)."""

    features: ItemFeatures
    """(n_items, n_features)."""

    names: Mapping[Hashable, str]
    """Readable names by id, where there are any."""

    def with_names(self, names: Mapping[Hashable, str]) -> DescribedItems:
        """The same with these names instead."""
        return replace(self, names=names)

    def followed_by(self, more: DescribedItems) -> DescribedItems:
        """Both tables in one; ids of different types are compared as text."""
        index = {item: place for place, item in enumerate(self.ids.tolist())}
        places = places_among(more.ids, self.ids, index)
        is_new = places < 0
        places[is_new] = len(self.ids) + np.arange(np.count_nonzero(is_new))
        ids = append_ids(self.ids, more.ids[is_new]) if is_new.any() else self.ids
        parts = [(np.arange(len(self.ids)), self.features), (places, more.features)]
        listed = ids.tolist()
        theirs = {
            listed[place]: more.names[item]
            for item, place in zip(more.ids.tolist(), places.tolist(), strict=True)
            if item in more.names
        }
        features = ItemFeatures.joined(len(ids), parts)
        return DescribedItems(ids, features, {**theirs, **self.names})
