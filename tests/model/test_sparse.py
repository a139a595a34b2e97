from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array

from cfnade.model.sparse import product, product_by_column


def test_products_equal_the_dense_ones(rng):
    matrix = csr_array(rng.random((5, 7)) * (rng.random((5, 7)) < 0.4))
    matrix = csr_array(np.vstack([matrix.toarray(), np.zeros((1, 7))]))  # an empty row
    by_row, by_column = torch.from_numpy(rng.random((7, 3))), torch.from_numpy(rng.random((6, 3)))
    dense = torch.from_numpy(matrix.toarray())
    torch.testing.assert_close(product(matrix, by_row), dense @ by_row)
    used, rows = product_by_column(matrix, by_column)
    whole = torch.zeros(7, 3, dtype=torch.float64)
    whole[used] = rows
    torch.testing.assert_close(whole, dense.T @ by_column)
    assert (np.diff(matrix.tocsc().indptr)[used] > 0).all()


def test_nothing_at_all_is_a_product_too():
    empty = csr_array((2, 4))
    assert product(empty, torch.ones(4, 3)).abs().sum() == 0
    used, rows = product_by_column(empty, torch.ones(2, 3))
    assert len(used) == len(rows) == 0
