"""What every Scorer owes to evaluation, whoever wrote it: one suite for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from cfnade import ImplicitCFNADE
from cfnade.baselines import (
    BPR,
    EASE,
    EDLAE,
    IALS,
    IMF,
    SLIM,
    ImputedALS,
    ItemKNN,
    LogisticMF,
    LRec,
    MultinomialDAE,
    Popularity,
    RandomScorer,
    SampledALS,
    WeightedALS,
)
from cfnade.errors import DataError
from cfnade.metrics.evaluate import evaluate

N_USERS, N_ITEMS = 48, 12


@dataclass(frozen=True)
class Entrant:
    make: Callable[[], Any]
    """An unfitted scorer."""

    learns_taste: bool = True
    """False for scorers that treat all histories alike."""


ENTRANTS = {
    "random": Entrant(RandomScorer, learns_taste=False),
    "popularity": Entrant(Popularity, learns_taste=False),
    "imf": Entrant(lambda: IMF(factors=2, alpha=10.0, regularization=1.0, n_threads=1)),
    "ials": Entrant(lambda: IALS(factors=2, regularization=0.001, n_threads=1)),
    "wals": Entrant(lambda: WeightedALS(factors=2, weight=0.1, n_threads=1)),
    "imputed-mf": Entrant(lambda: ImputedALS(factors=2, regularization=0.5, n_threads=1)),
    "sals-ens": Entrant(lambda: SampledALS(factors=2, negatives=1.0, n_threads=1)),
    "logistic-mf": Entrant(
        lambda: LogisticMF(factors=4, alpha=3.0, regularization=3.0, iterations=30)
    ),
    "bpr": Entrant(lambda: BPR(factors=4, learning_rate=0.1, iterations=200)),
    "knn": Entrant(lambda: ItemKNN(neighbours=10, n_threads=1)),
    "ease": Entrant(lambda: EASE(regularization=1.0)),
    "edlae": Entrant(lambda: EDLAE(regularization=1.0, dropout=0.3)),
    "slim": Entrant(lambda: SLIM(l1=0.1, l2=1.0, n_threads=1)),
    "lrec": Entrant(lambda: LRec(regularization=1.0)),
    "lrec-logistic": Entrant(lambda: LRec(regularization=1.0, loss="logistic")),
    "multinomial-dae": Entrant(
        lambda: MultinomialDAE(n_hidden=8, learning_rate=0.02, iterations=60, batch_size=16)
    ),
    "cfnade": Entrant(
        lambda: ImplicitCFNADE(
            n_hidden=8, learning_rate=0.05, max_epochs=60, validation_share=0.0, batch_size=10
        )
    ),
}
with_taste = [name for name, entrant in ENTRANTS.items() if entrant.learns_taste]


def checkerboard() -> tuple[csr_array, csr_array]:
    """Even users like even items, odd users odd ones; each has one such item withheld."""
    user, item = np.indices((N_USERS, N_ITEMS))
    in_group = (user + item) % 2 == 0
    withheld = item == user % N_ITEMS
    counts = 1.0 + (user + 3 * item) % 4
    return csr_array(counts * (in_group & ~withheld)), csr_array(counts * withheld)


@pytest.fixture(scope="module", params=ENTRANTS)
def scorer(request) -> Any:
    return ENTRANTS[request.param].make().fit(checkerboard()[0])


@pytest.fixture
def new_users() -> csr_array:
    """Histories that nobody in training had: one item, all items, large counts, nothing."""
    histories = np.zeros((4, N_ITEMS))
    histories[0, 3] = 1
    histories[1, :] = 2
    histories[2, [0, 5, 7]] = [1000, 1, 50]
    return csr_array(histories)


def test_fit_returns_the_scorer_itself() -> None:
    for name, entrant in ENTRANTS.items():
        scorer = entrant.make()
        assert scorer.fit(checkerboard()[0]) is scorer, name


@pytest.mark.parametrize("scorer", with_taste, indirect=True)
def test_a_withheld_item_of_the_own_group_comes_before_the_other_group(scorer) -> None:
    histories, held_out = checkerboard()
    scores = scorer.scores(histories)
    for user in range(N_USERS):
        other_group = scores[user, (user + 1) % 2 :: 2]
        assert scores[user, user % N_ITEMS] > other_group.max()
    assert evaluate(scorer, histories, held_out, held_out).metrics["mpr"] == 0


@pytest.mark.parametrize("scorer", with_taste, indirect=True)
def test_a_new_user_gets_items_of_the_group_their_history_is_in(scorer) -> None:
    history = csr_array(([1.0, 3.0], [1, 7], [0, 2]), shape=(1, N_ITEMS))
    scores = scorer.scores(history)[0]
    assert scores[[3, 5, 9, 11]].min() > scores[::2].max()


def test_scores_are_finite_float32_of_the_right_shape(scorer, new_users) -> None:
    for histories in (checkerboard()[0], new_users):
        scores = scorer.scores(histories)
        assert scores.shape == histories.shape
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()


def test_a_batch_scores_as_its_users_do_alone(scorer, new_users) -> None:
    together = scorer.scores(new_users)
    for user in range(new_users.shape[0]):
        np.testing.assert_allclose(
            scorer.scores(new_users[[user]])[0], together[user], rtol=1e-4, atol=1e-5
        )


def test_the_order_of_users_does_not_matter(scorer, new_users) -> None:
    backwards = scorer.scores(new_users[::-1])[::-1]
    np.testing.assert_allclose(backwards, scorer.scores(new_users), rtol=1e-4, atol=1e-5)


def test_an_empty_history_is_scored(scorer) -> None:
    scores = scorer.scores(csr_array((1, N_ITEMS)))
    assert scores.shape == (1, N_ITEMS)
    assert np.isfinite(scores).all()


def test_no_users_give_no_scores(scorer) -> None:
    assert scorer.scores(csr_array((0, N_ITEMS))).shape == (0, N_ITEMS)


def test_the_histories_are_left_as_they_are(scorer, new_users) -> None:
    before = new_users.copy()
    scorer.scores(new_users)
    np.testing.assert_array_equal(new_users.data, before.data)
    np.testing.assert_array_equal(new_users.indices, before.indices)
    np.testing.assert_array_equal(new_users.indptr, before.indptr)


def test_scores_belong_to_the_caller(scorer, new_users) -> None:
    first = scorer.scores(new_users)
    kept = first.copy()
    first[:] = -1.0
    np.testing.assert_array_equal(scorer.scores(new_users), kept)


def test_any_form_of_csr_gives_the_same_scores(scorer, new_users) -> None:
    expected = scorer.scores(new_users)
    whole_numbers = csr_matrix(new_users, dtype=np.int64)
    wide = new_users.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    for histories in (csr_matrix(new_users), whole_numbers, wide):
        np.testing.assert_array_equal(scorer.scores(histories), expected)


@pytest.mark.parametrize("name", ENTRANTS)
def test_fitting_twice_gives_the_same_scores(name, new_users) -> None:
    train, _ = checkerboard()
    first, second = (ENTRANTS[name].make().fit(train).scores(new_users) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ENTRANTS)
def test_fitting_leaves_the_counts_as_they_are(name) -> None:
    train, _ = checkerboard()
    ENTRANTS[name].make().fit(train)
    np.testing.assert_array_equal(train.toarray(), checkerboard()[0].toarray())


def test_blocks_of_any_size_evaluate_alike(scorer) -> None:
    histories, held_out = checkerboard()
    whole = evaluate(scorer, histories, held_out, held_out)
    blocks = evaluate(scorer, histories, held_out, held_out, block_size=7)
    assert blocks.metrics == whole.metrics


def test_histories_over_other_items_are_refused(scorer) -> None:
    with pytest.raises(DataError, match=str(N_ITEMS + 1)):
        scorer.scores(csr_array((2, N_ITEMS + 1)))
