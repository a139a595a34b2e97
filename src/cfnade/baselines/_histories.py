"""What baselines do with histories before they score them: checks, and the form libraries take."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

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


def plain_csr(counts: CountMatrix, values: Any, dtype: type = np.float32) -> csr_matrix[Any]:
    """The pairs with other values, in the only sparse form that `implicit` and `irspack` take.

    Args:
        counts: Pairs, (n_users, n_items).
        values: One for each pair, or one for all.
        dtype: Of the values.
    """
    data = np.empty(counts.nnz, dtype=dtype)
    data[:] = values
    indices, indptr = counts.indices.astype(np.int32), counts.indptr.astype(np.int32)
    return csr_matrix((data, indices, indptr), shape=counts.shape)
