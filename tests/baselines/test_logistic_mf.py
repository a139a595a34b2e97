from __future__ import annotations

import numpy as np
from implicit.lmf import LogisticMatrixFactorization
from scipy.optimize import minimize
from scipy.sparse import csr_array, csr_matrix

from cfnade.baselines import LogisticMF
from cfnade.data.ratings import RelativeRating


def test_logistic_mf_scores_known_users_as_implicit_does(counts) -> None:
    model = LogisticMF(factors=4, alpha=2.0, regularization=0.7, iterations=9).fit(counts)
    library = LogisticMatrixFactorization(
        factors=4, regularization=0.7, iterations=9, num_threads=1, random_state=0
    )
    ratings = RelativeRating().fit(counts).transform(counts)
    library.fit(csr_matrix((2.0 * ratings).astype(np.float32)), show_progress=False)
    expected = library.user_factors @ library.item_factors.T
    np.testing.assert_allclose(model.scores(counts), expected, rtol=1e-5)


def test_a_new_user_of_logistic_mf_minimises_its_loss(counts) -> None:
    model = LogisticMF(factors=4, alpha=5.0, regularization=0.3, negatives=2).fit(counts)
    history = csr_array(([4.0, 1.0], [2, 6], [0, 2]), shape=(1, 20))
    Y = model.item_factors_.astype(float)
    weight = 5.0 * RelativeRating().fit(counts).transform(history).toarray()[0]
    share = (counts.toarray() > 0).sum(axis=0) / counts.nnz

    def loss(free: np.ndarray) -> float:
        x, bias = free[:4], free[4]
        logit = Y[:, :4] @ x + Y[:, 4] + bias
        seen = (weight * np.log1p(np.exp(-logit))).sum()
        sampled = 4 * (share * np.log1p(np.exp(logit))).sum()  # 2 items, 2 negatives each
        return seen + sampled + 0.3 / 2 * (free @ free)

    best = minimize(loss, np.zeros(5), tol=1e-12)
    expected = Y[:, :4] @ best.x[:4] + Y[:, 4] + best.x[4]
    np.testing.assert_allclose(model.scores(history)[0], expected, atol=1e-3)
