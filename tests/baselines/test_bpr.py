from __future__ import annotations

import numpy as np
from implicit.cpu.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_array, csr_matrix

from cfnade.baselines import BPR


def test_bpr_scores_known_users_as_implicit_does(counts) -> None:
    model = BPR(factors=4, learning_rate=0.1, iterations=9).fit(counts)
    library = BayesianPersonalizedRanking(
        factors=4, learning_rate=0.1, iterations=9, num_threads=1, random_state=0
    )
    library.fit(csr_matrix((counts.toarray() > 0).astype(np.float32)), show_progress=False)
    expected = library.user_factors @ library.item_factors.T
    np.testing.assert_allclose(model.scores(counts), expected, rtol=1e-5)


def test_a_new_user_of_bpr_puts_what_is_like_their_history_first(counts) -> None:
    model = BPR(factors=4, learning_rate=0.1, iterations=200).fit(counts)
    history = csr_array(([1.0, 1.0], [1, 7], [0, 2]), shape=(1, 20))
    scores = model.scores(history)[0]
    assert scores[1::2].mean() > scores[::2].mean() + 0.5
