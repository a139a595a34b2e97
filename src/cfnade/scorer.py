"""The seam between models and evaluation: whoever can score histories can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfnade.data.interactions import CountMatrix


class Scorer(Protocol):
    """Ranks all items for any histories, of known or new users alike."""

    def scores(self, histories: CountMatrix) -> NDArray[np.float32]:
        """Score every item for every history; higher means recommended earlier.

        Args:
            histories: Counts, sparse, (n_users, n_items). An empty row is a user
                of whom nothing is known.

        Returns:
            Finite scores, comparable within a row, (n_users, n_items).
        """
        ...
