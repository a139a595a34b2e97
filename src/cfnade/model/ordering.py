"""One random ordering's split of the items into context and targets, shared by a batch.

Items stand in a circle in an order that is drawn anew for every epoch; the targets of an update
are the items from a random place onwards. They are neighbours in memory then, so that the update
reads and writes their weights where they are: nothing is gathered or copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


@dataclass(frozen=True)
class Window:
    """The targets: `n_targets` items in a row from `start`, around the circle."""

    n_items: int
    """In the circle (M)."""

    start: int
    """Place of the first target."""

    n_targets: int
    """At least 1; the other items are the context."""

    def target_number(self, places: NDArray[np.integer]) -> NDArray[np.integer]:
        """Which target stands at a place, from 0; `n_targets` and above are in the context."""
        return (places - self.start) % self.n_items

    def blocks(self, n_targets: int | None = None) -> list[tuple[slice, slice]]:
        """Where the targets stand: their numbers and their places, in at most two pieces.

        Args:
            n_targets: The first so many of them; all by default.
        """
        n_targets = self.n_targets if n_targets is None else n_targets
        n_before_end = min(n_targets, self.n_items - self.start)
        pieces = [(slice(0, n_before_end), slice(self.start, self.start + n_before_end))]
        if n_before_end < n_targets:
            pieces.append((slice(n_before_end, n_targets), slice(0, n_targets - n_before_end)))
        return pieces

    @property
    def target_places(self) -> list[slice]:
        """Where the targets stand."""
        return [places for _, places in self.blocks()]

    @property
    def context_places(self) -> list[slice]:
        """Where the other items stand."""
        if self.n_targets == self.n_items:
            return []
        end = (self.start + self.n_targets) % self.n_items
        return Window(self.n_items, end, self.n_items - self.n_targets).target_places

    @property
    def in_context(self) -> NDArray[np.bool_]:
        """True for the places of the context, (n_items,)."""
        in_context = np.ones(self.n_items, dtype=np.bool_)
        for places in self.target_places:
            in_context[places] = False
        return in_context


def draw_window(n_items: int, share: float | None, rng: np.random.Generator) -> Window:
    """Draw the targets of one update (Eq. 14).

    Only the set of items before i matters, not its order. With i uniform on 1..M there are i - 1
    items in the context, so at least one target is always left.

    Args:
        n_items: M.
        share: Of the items in the context; None draws their number uniformly, as the paper does.
        rng: Source of randomness.

    Returns:
        The targets.
    """
    if share is None:
        n_context = int(rng.integers(n_items))
    else:
        n_context = min(round(share * n_items), n_items - 1)
    return Window(n_items, int(rng.integers(n_items)), n_items - n_context)


def split_batch(batch: csr_array, window: Window) -> tuple[csr_array, csr_array]:
    """Part a batch's likes into those in the context and those to predict.

    Args:
        batch: Confidence of the likes by place, sparse, (n_users, n_items).
        window: The targets.

    Returns:
        The context's likes by place, (n_users, n_items), and the targets' likes by number,
        (n_users, n_targets).
    """
    n_users, n_items = batch.shape
    number = window.target_number(batch.indices)  # (n_pairs,)
    is_target = number < window.n_targets

    def part(columns: NDArray[np.integer], keep: NDArray[np.bool_], n_columns: int) -> csr_array:
        ends = np.concatenate([[0], np.cumsum(keep)])[batch.indptr]
        return csr_array((batch.data[keep], columns[keep], ends), shape=(n_users, n_columns))

    context = part(batch.indices, ~is_target, n_items)
    return context, part(number, is_target, window.n_targets)
