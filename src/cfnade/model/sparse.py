"""Products of a sparse matrix with a dense one in torch: its embedding bags are quick forwards."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F


def product(matrix: csr_array, dense: Tensor) -> Tensor:
    """`matrix @ dense`.

    Args:
        matrix: (n_rows, n_columns).
        dense: (n_columns, n_hidden).

    Returns:
        (n_rows, n_hidden).
    """
    return _sum_rows(matrix.indices, matrix.indptr[:-1], matrix.data, dense)


def product_by_column(matrix: csr_array, dense: Tensor) -> tuple[Tensor, Tensor]:
    """`matrix.T @ dense`, without the rows that are zero.

    Args:
        matrix: (n_rows, n_columns).
        dense: (n_rows, n_hidden).

    Returns:
        The columns of the matrix that have any value, (n_used,), and their rows of the product,
        (n_used, n_hidden).
    """
    by_column = matrix.tocsc()
    used = np.flatnonzero(np.diff(by_column.indptr))
    rows = _sum_rows(by_column.indices, by_column.indptr[used], by_column.data, dense)
    return torch.from_numpy(used), rows


def _sum_rows(
    rows: NDArray[np.integer],
    starts: NDArray[np.integer],
    weights: NDArray[np.floating],
    dense: Tensor,
) -> Tensor:
    """Weighted sums of rows; each sum goes from its start to that of the next one."""
    return F.embedding_bag(
        torch.from_numpy(rows.astype(np.int64)),
        dense,
        torch.from_numpy(starts.astype(np.int64)),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights).to(dense.dtype),
    )
