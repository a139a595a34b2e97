from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from cfnade import scorer as ranking
from cfnade.answer.similar import ItemSimilarity, similar_histories


def cosine(x, y):
    return x @ y / np.sqrt((x @ x) * (y @ y))


def test_item_similarity_is_the_cosine_of_centred_weights(rng):
    V = (rng.normal(size=(9, 4)) + 3.0).astype(np.float32)
    found = ItemSimilarity(V).of(np.array([2, 7]))
    centred = (V - V.mean(axis=0)).astype(np.float64)
    for row, item in enumerate((2, 7)):
        expected = [cosine(centred[item], other) for other in centred]
        np.testing.assert_allclose(found[row], expected, atol=1e-5)
        assert found[row, item] == 1.0


def test_what_changes_no_ranking_changes_no_similarity(rng):
    V = rng.normal(size=(9, 4)).astype(np.float32)
    moved = V + np.array([5.0, -2.0, 0.0, 1.0], dtype=np.float32)
    np.testing.assert_allclose(
        ItemSimilarity(moved).of(np.arange(9)), ItemSimilarity(V).of(np.arange(9)), atol=1e-4
    )


def test_an_item_is_more_like_itself_than_like_a_copy(rng):
    V = np.repeat(rng.normal(size=(3, 4)), 2, axis=0).astype(np.float32)
    found = ItemSimilarity(V).of(np.arange(6))
    assert (found.argmax(axis=1) == np.arange(6)).all()
    assert (found <= 1.0).all()


def test_a_single_item_and_weights_of_zero_are_fine():
    for V in (np.ones((1, 3), dtype=np.float32), np.zeros((4, 3), dtype=np.float32)):
        found = ItemSimilarity(V).of(np.array([0]))
        assert found[0, 0] == 1.0 and np.isfinite(found).all()


def test_similar_histories_equal_plain_cosines_in_blocks_of_any_size(rng, monkeypatch):
    counts = csr_array(rng.integers(0, 3, (23, 5)).astype(float))
    weight = rng.normal(size=(5, 4)).astype(np.float32)

    def hidden(histories):
        return np.tanh(histories @ weight).astype(np.float32)

    vectors = hidden(counts).astype(np.float64)
    whole = similar_histories(hidden, counts[:3], counts, 6)
    monkeypatch.setattr(ranking, "BLOCK_BYTES", 4 * 7 * 5)
    parts = similar_histories(hidden, counts[:3], counts, 6)
    for user in range(3):
        expected = np.array([cosine(vectors[user], other) for other in vectors])
        for rows, scores in (whole[user], parts[user]):
            np.testing.assert_allclose(scores, np.sort(expected)[::-1][:6], atol=1e-5)
            np.testing.assert_allclose(expected[rows], scores, atol=1e-5)
    assert similar_histories(hidden, counts[:1], counts[:0], 6)[0][0].size == 0


def test_a_hidden_layer_of_zeros_is_like_nobody():
    counts = csr_array(np.eye(3))
    (found,) = similar_histories(lambda c: np.maximum(c.toarray() - 0.5, 0).astype(np.float32) * [
        [1.0, 1.0, 0.0]
    ], counts[[2]], counts, 3)  # fmt: skip
    assert found[1].tolist() == [0.0, 0.0, 0.0]


def test_similarity_between_items_is_the_mean_of_the_cosines_of_weights_and_features(rng):
    V = rng.normal(size=(9, 4)).astype(np.float32)
    features = rng.random((9, 6)) * (rng.random((9, 6)) < 0.5)
    features[3] = 0.0  # nothing is known of this one
    columns, others = np.array([1, 3, 8]), np.array([8, 0])
    plain = ItemSimilarity(V).between(columns, others)
    both = ItemSimilarity(V, csr_array(features)).between(columns, others)
    centred = (V - V.mean(axis=0)).astype(np.float64)
    for i, column in enumerate(columns):
        for j, other in enumerate(others):
            weights = cosine(centred[column], centred[other])
            known = 0.0 if column == 3 else cosine(features[column], features[other])
            assert abs(plain[i, j] - weights) < 1e-5
            assert abs(both[i, j] - (weights + known) / 2) < 1e-5
    assert ItemSimilarity(V, csr_array(features)).between(columns, others[:0]).shape == (3, 0)
