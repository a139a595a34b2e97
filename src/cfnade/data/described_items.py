"""Items of a table with what is known about them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.addresses import KINDS
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

    addresses: Mapping[str, Mapping[Hashable, str]] = field(default_factory=dict)
    """Safe addresses by what they lead to (`addresses.KINDS`) and by id."""

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

        def merged(own: Mapping[Hashable, str], theirs: Mapping[Hashable, str]) -> Any:
            """Own texts, and theirs for other items."""
            pairs = zip(more.ids.tolist(), places.tolist(), strict=True)
            return {listed[place]: theirs[item] for item, place in pairs if item in theirs} | dict(
                own
            )

        addresses = {
            kind: merged(self.addresses.get(kind, {}), more.addresses.get(kind, {}))
            for kind in KINDS
        }
        features = ItemFeatures.joined(len(ids), parts)
        names = merged(self.names, more.names)
        return DescribedItems(ids, features, names, addresses)
