"""The check that every baseline makes on the histories it is asked to score."""

from __future__ import annotations

from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.errors import DataError


def checked_histories(histories: CountMatrix, n_items: int) -> CountMatrix:
    """Bring histories into the package's form and see that their items fit the model.

    Raises:
        DataError: If the histories cover another number of items than the model was fitted on.
    """
    histories = as_count_matrix(histories)
    if histories.shape[1] != n_items:
        raise DataError(
            f"the model was fitted on {n_items} items, the histories have {histories.shape[1]}; "
            "columns must be the same items in the same order"
        )
    return histories
