"""A random split of the items into context and targets, shared by a batch (the o of Eq. 14).

Every epoch puts the items in a new random order, around a circle. The targets of an update are a
run of items from a random place on. They are neighbours in memory then, so an update reads and
writes their weights in place, without gathering or copying.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

N_STARTS = 32
"""Places on the circle where targets may start, if their number is fixed. Products of a few sizes
are three times as fast in bfloat16 as products of any size."""


@dataclass(frozen=True)
class Window:
    """The targets: a run of items on the circle."""

    n_items: int
    """On the circle (M)."""

    start: int
    """Place of the first target."""

    n_targets: int
    """At least 1; the other items are the context."""

    def target_number(self, places: NDArray[np.integer]) -> NDArray[np.integer]:
        """Number of the target at each place, from 0; `n_targets` and above are in the context."""
        return (places - self.start) % self.n_items

    def blocks(self) -> list[tuple[slice, slice]]:
        """Numbers and places of the targets, in one piece, or two if they cross the end."""
        n_before_end = min(self.n_targets, self.n_items - self.start)
        pieces = [(slice(0, n_before_end), slice(self.start, self.start + n_before_end))]
        if n_before_end < self.n_targets:
            rest = self.n_targets - n_before_end
            pieces.append((slice(n_before_end, self.n_targets), slice(0, rest)))
        return pieces

    @property
    def target_places(self) -> list[slice]:
        """Places of the targets."""
        return [places for _, places in self.blocks()]

    @property
    def context_places(self) -> list[slice]:
        """Places of the context."""
        if self.n_targets == self.n_items:
            return []
        end = (self.start + self.n_targets) % self.n_items
        return Window(self.n_items, end, self.n_items - self.n_targets).target_places


def draw_window(n_items: int, share: float | None, rng: np.random.Generator) -> Window:
    """Draw the targets of one update (Eq. 14).

    Only the set of items before i matters, not its order. With i uniform on 1..M there are i - 1
    items in the context, so there is always a target.

    Args:
        n_items: M.
        share: Of the items in the context; None draws their number uniformly, as the paper does.
        rng: Source of randomness.

    Returns:
        The targets.
    """
    if share is None:
        return Window(n_items, int(rng.integers(n_items)), n_items - int(rng.integers(n_items)))
    n_context = min(round(share * n_items), n_items - 1)
    start = int(rng.integers(N_STARTS)) * n_items // N_STARTS
    return Window(n_items, start, n_items - n_context)


def split_batch(batch: csr_array, window: Window) -> tuple[csr_array, csr_array]:
    """Split the likes of a batch, and its dislikes if any are known, into context and targets.

    Args:
        batch: Confidence of the likes by place, -c of dislikes, sparse, (n_users, n_items).
        window: The targets.

    Returns:
        Those in the context by place, (n_users, n_items), and the targets among them by number,
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
