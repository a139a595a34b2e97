"""How the processes that train one network together add up their gradients; alone, nothing to do.

The collectives are in `cfnade.scale.process_group`; training itself knows this seam only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Part(NamedTuple):
    """Which users of an update's batch a process has: a run of them."""

    first: int
    """Place of the first one in the whole batch."""

    n_users: int
    """Of the whole batch, over all processes."""


class Exchange(Protocol):
    """Adds up what the processes found on their parts of a batch."""

    @property
    def is_first(self) -> bool:
        """Whether this process keeps the checkpoints: one of them does."""
        ...

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in place.

        Args:
            tensors: Contiguous, of the same shapes in the same order everywhere.
        """
        ...

    def add_up_rows(
        self, rows: Tensor, values: Sequence[Tensor], n_rows: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Sum arrays of which each process has some rows; only rows that anyone has travel.

        Args:
            rows: Which rows this process has, ascending, (n_here,).
            values: Those rows of each array, (n_here, n_columns) each.
            n_rows: Of the whole arrays.

        Returns:
            The rows that any process has, ascending, (n_any,), and their sums, (n_any, n_columns)
            each.
        """
        ...

    def check_same(self, numbers: Sequence[int], what: str) -> None:
        """Make sure that all processes have the same numbers.

        Args:
            numbers: As many everywhere.
            what: Where they are from, for the message.

        Raises:
            TrainingError: In all processes, if one of them has others than the first.
        """
        ...


class Alone:
    """One process, whose sums are what it has."""

    is_first = True

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Nothing to add."""

    def add_up_rows(
        self, rows: Tensor, values: Sequence[Tensor], n_rows: int
    ) -> tuple[Tensor, list[Tensor]]:
        """The rows as they are."""
        return rows, list(values)

    def check_same(self, numbers: Sequence[int], what: str) -> None:
        """There is nobody to differ from."""
