"""What every method of the estimator owes: any CSR, one or many, filters, nothing made up."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

from cfnade import ConfigError, DataError, ImplicitCFNADE
from cfnade import scorer as ranking
from tests.networks import random_counts, random_model

N_ITEMS = 20
IDS = [f"i{k}" for k in range(N_ITEMS)]
COUNTS = random_counts()
MODEL = random_model()
BY_NUMBER = random_model(item_ids=np.arange(N_ITEMS))

# One call of each method for one user or item and for many: (single, batch).
METHODS = {
    "recommend": (
        lambda model, counts, user, **more: model.recommend(user, counts[user], **more),
        lambda model, counts, users, **more: model.recommend(users, counts[users], **more),
    ),
    "similar_users": (
        lambda model, counts, user, **more: model.similar_users(counts[user], counts, **more),
        lambda model, counts, users, **more: model.similar_users(counts[users], counts, **more),
    ),
    "similar_items": (
        lambda model, counts, item, **more: model.similar_items(item, **more),
        lambda model, counts, items, **more: model.similar_items(items, **more),
    ),
}


def assert_same(one, other):
    """The same answer, up to the last digits."""
    np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-6)
    clear = np.ones(len(one[1]), dtype=bool)  # next to equal scores may change places
    if len(one[1]) > 1:
        is_close = np.abs(np.diff(one[1])) < 1e-5
        clear[1:] &= ~is_close
        clear[:-1] &= ~is_close
    assert np.asarray(one[0])[clear].tolist() == np.asarray(other[0])[clear].tolist()


@pytest.mark.parametrize("matrix", [csr_matrix, csr_array])
@pytest.mark.parametrize("method", METHODS)
def test_many_are_answered_as_each_alone_for_any_csr(method, matrix):
    single, batch = METHODS[method]
    counts = matrix(COUNTS)
    ids, scores = batch(BY_NUMBER, counts, [4, 0, 17], N=3)
    assert ids.shape == scores.shape == (3, 3)
    assert scores.dtype == np.float32 and np.isfinite(scores).all()
    assert (np.diff(scores, axis=1) <= 0).all()
    for place, asked in enumerate((4, 0, 17)):
        alone = single(BY_NUMBER, counts, asked, N=3)
        assert alone[0].shape == alone[1].shape == (3,)
        assert_same(alone, (ids[place], scores[place]))


@pytest.mark.parametrize("matrix", [csr_matrix, csr_array])
def test_one_history_is_answered_alike_however_it_is_given(matrix):
    row = COUNTS[[4]]
    by_id = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    history = matrix(COUNTS)[4]
    assert_same(BY_NUMBER.recommend_for(history, n=5), BY_NUMBER.recommend_for(by_id, n=5))
    given, named = (BY_NUMBER.explain(h, 0) for h in (history, by_id))
    assert given.score == pytest.approx(named.score, rel=1e-5)
    effects = [{e.item: e.score for e in told.effects} for told in (given, named)]
    assert effects[0] == pytest.approx(effects[1], rel=1e-4, abs=1e-6)
    assert effects[0].keys() == by_id.keys()


@pytest.mark.parametrize("matrix", [csr_matrix, csr_array])
def test_scores_of_many_are_those_of_each_alone(matrix):
    counts = matrix(COUNTS)
    scores = BY_NUMBER.scores(counts)
    assert scores.shape == COUNTS.shape
    for user in (0, 17):
        alone = BY_NUMBER.scores(counts[[user]])
        np.testing.assert_allclose(alone[0], scores[user], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("matrix", [csr_matrix, csr_array])
def test_more_data_is_taken_in_any_csr(matrix):
    def grown(counts):
        model = random_model(item_ids=np.arange(N_ITEMS))
        return model.partial_fit(counts, n_epochs=0).scores(COUNTS)

    np.testing.assert_array_equal(grown(matrix(COUNTS)), grown(COUNTS))


@pytest.mark.parametrize("method", METHODS)
def test_fewer_than_asked_for_are_given_as_they_are(method):
    single, _ = METHODS[method]
    ids, scores = single(BY_NUMBER, COUNTS, 3, N=1000)
    assert len(ids) == len(set(ids.tolist())) == len(scores) <= 30
    with pytest.raises(ConfigError, match="at least 1"):
        single(BY_NUMBER, COUNTS, 3, N=0)


@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_any_size_give_the_same(method, monkeypatch):
    _, batch = METHODS[method]
    users = np.arange(N_ITEMS)
    whole = batch(BY_NUMBER, COUNTS, users, N=4)
    monkeypatch.setattr(ranking, "BLOCK_BYTES", 4 * N_ITEMS * 3)
    parts = batch(BY_NUMBER, COUNTS, users, N=4)
    for row in range(len(users)):
        assert_same((whole[0][row], whole[1][row]), (parts[0][row], parts[1][row]))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_given_is_left_as_it_is(method):
    counts = COUNTS.copy()
    for call, asked in zip(METHODS[method], (2, [2, 3]), strict=True):
        call(BY_NUMBER, counts, asked, N=3)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(COUNTS, name))


@pytest.mark.filterwarnings("ignore:.*threadpool:RuntimeWarning")
def test_code_written_for_implicit_gets_the_same_shapes():
    pytest.importorskip("torch")
    als = pytest.importorskip("implicit.als").AlternatingLeastSquares(
        factors=4, iterations=1, num_threads=1
    )
    ours = ImplicitCFNADE(n_hidden=4, max_epochs=1, validation_share=0.0)
    shapes = []
    for model in (als, ours):  # their quick-start, and the calls in their documentation
        user_items = csr_matrix(COUNTS)
        model.fit(user_items, show_progress=False)
        userids = np.arange(10)
        answers = [
            model.recommend(5, user_items[5]),
            model.recommend(5, user_items[5], 3, False),
            model.recommend(5, user_items[5], N=3, filter_items=[1, 2]),
            model.recommend(5, user_items[5], N=3, recalculate_user=True),
            model.recommend(5, user_items[5], items=np.array([1, 2, 3, 4])),
            model.recommend(userids, user_items[userids], N=4),
            model.similar_items(7),
            model.similar_items([7, 2], N=3),
            model.similar_items(7, N=3, items=[7, 1, 2]),
            model.similar_items(7, 3, False, None, [1], None),
        ]
        shapes.append([(ids.shape, scores.shape) for ids, scores in answers[:4] + answers[5:]])
        assert model.similar_items(7)[0][0] == 7
        assert set(answers[4][0]) <= {-1, 1, 2, 3, 4}  # implicit pads where items are filtered
    assert shapes[0] == shapes[1]


def test_rows_of_a_csr_array_have_one_dimension_and_are_taken_so():
    assert COUNTS[5].shape == (20,)
    assert_same(BY_NUMBER.recommend(5, COUNTS[5]), BY_NUMBER.recommend(5, csr_matrix(COUNTS)[5]))


def test_no_users_give_no_answers():
    ids, scores = MODEL.recommend([], csr_array((0, N_ITEMS)), N=3)
    assert ids.shape == scores.shape == (0, 3)
    assert MODEL.similar_items([], N=3)[0].shape == (0, 3)


# Filters ---------------------------------------------------------------------------------------


def test_filters_may_differ_between_users():
    items = [["i1", "i2", "i3"], ["i4", "i5", "i6", "i7"]]
    ids, _ = MODEL.recommend(
        [0, 1], COUNTS[[0, 1]], items=items, filter_items=["i2", "i4"],
        filter_already_liked_items=False,
    )  # fmt: skip
    assert [set(row) for row in ids] == [{"i1", "i3"}, {"i5", "i6", "i7"}]
    mask = csr_array(np.isin(IDS, ["i1", "i3"])[None, :].repeat(2, axis=0))
    ids, _ = MODEL.recommend([0, 1], COUNTS[[0, 1]], filter_items=mask, N=20)
    assert not {"i1", "i3"} & {item for row in ids for item in row}
    ids, _ = MODEL.recommend_for(["i0"], items=np.isin(IDS, ["i1", "i3"]))
    assert set(ids) == {"i1", "i3"}


def test_similar_items_take_filters_too():
    ids, _ = MODEL.similar_items("i4", filter_items=["i4"], items=["i4", "i5", "i6"])
    assert set(ids) == {"i5", "i6"}
    ids, _ = MODEL.similar_items(["i4", "i9"], items=[["i4"], ["i1", "i2"]])
    assert [set(row) for row in ids] == [{"i4"}, {"i1", "i2"}]
    assert MODEL.similar_items(np.array(["i4", "i9"]), N=1)[0].tolist() == [["i4"], ["i9"]]


def test_unknown_items_in_filters_raise_warn_or_are_ignored_as_asked(caplog):
    calls = [
        lambda **more: MODEL.recommend(0, COUNTS[[0]], filter_items=["x"], **more),
        lambda **more: MODEL.recommend_for(["i0"], items=["i1", "x"], **more),
        lambda **more: MODEL.recommend_for(["i0"], disliked=["x"], **more),
        lambda **more: MODEL.similar_items("i0", filter_items=["x"], **more),
        lambda **more: MODEL.similar_users(["i0", "x"], COUNTS, **more),
        lambda **more: MODEL.explain(["i0", "x"], "i1", **more),
    ]
    for call in calls:
        with pytest.raises(DataError, match="item 'x' is not in this model"):
            call()
        call(unknown="ignore")
        assert not caplog.records
        with caplog.at_level(logging.WARNING):
            call(unknown="warn")
        assert "item 'x' is not in this model" in caplog.text
        caplog.clear()
    with pytest.raises(DataError, match="item 'x' is not in this model"):
        MODEL.similar_items(["i0", "x"], unknown="ignore")  # what is asked about must be known


# Negative evidence -----------------------------------------------------------------------------


def test_disliked_items_are_never_recommended_and_move_the_others():
    history = {"i0": 3, "i4": 1}
    ids, scores = MODEL.recommend_for(history, n=20, disliked={"i7": 12.0})
    assert "i7" not in ids
    plain = dict(zip(*MODEL.recommend_for(history, n=20), strict=True))
    moved = [abs(plain[item] - score) for item, score in zip(ids, scores, strict=True)]
    assert max(moved) > 1e-3
    ids, _ = MODEL.recommend_for(history, n=20, disliked=["i7"], filter_already_liked_items=False)
    assert set(ids) == set(IDS) - {"i7"}


@pytest.mark.parametrize(("input_scale", "weight"), [("none", 31.0), ("history", N_ITEMS)])
def test_ids_alone_are_disliked_as_strongly_as_the_surest_like(input_scale, weight):
    model = random_model(input_scale=input_scale)
    by_list = model.recommend_for(["i0"], disliked=["i7"])
    by_weight = model.recommend_for(["i0"], disliked={"i7": weight})
    assert by_list[0].tolist() == by_weight[0].tolist()
    np.testing.assert_array_equal(by_list[1], by_weight[1])


def test_an_item_cannot_be_liked_and_disliked():
    with pytest.raises(DataError, match="item 'i4' is both in the history and disliked"):
        MODEL.recommend_for({"i0": 1, "i4": 2}, disliked={"i4": 3.0})
    MODEL.recommend_for({"i0": 1, "i4": 0}, disliked={"i4": 3.0})  # a count of 0 is no like


# Alike -----------------------------------------------------------------------------------------


def test_a_user_is_most_like_themself():
    rows, scores = MODEL.similar_users(COUNTS, COUNTS, N=1)
    assert rows[:, 0].tolist() == list(range(30))
    np.testing.assert_allclose(scores, 1.0, rtol=1e-5)


def test_users_like_a_history_by_id_are_those_like_its_row():
    history = {"i0": 3, "i4": 1}
    by_id = MODEL.similar_users(history, COUNTS, N=5)
    by_row = MODEL.similar_users(MODEL.catalogue_.history(history), COUNTS, N=5)
    assert by_id[0].tolist() == by_row[0].tolist()


def test_a_count_below_zero_is_a_dislike_wherever_histories_are_given():
    signed = COUNTS.copy()
    signed.data[::3] = -1.0
    assert (MODEL.scores(signed) != MODEL.scores(abs(signed))).any()
    for is_filtered in (True, False):
        found, _ = MODEL.recommend(range(30), signed, N=20, filter_already_liked_items=is_filtered)
        for user in range(30):
            own = signed[[user]]
            never = own.indices[own.data < 0] if not is_filtered else own.indices
            assert not set(found[user]) & set(MODEL.catalogue_.ids[never])
    rows, similarities = MODEL.similar_users(signed, signed, N=1)
    assert rows[:, 0].tolist() == list(range(30))
    np.testing.assert_allclose(similarities, 1.0, atol=1e-5)


def test_similar_users_of_other_items_are_refused():
    with pytest.raises(DataError, match="20"):
        MODEL.similar_users({"i0": 1}, csr_array((3, 7)))
    with pytest.raises(DataError, match="20"):
        MODEL.similar_users(csr_array((3, 7)), COUNTS)


def test_fitting_again_forgets_what_was_alike():
    pytest.importorskip("torch")
    model = ImplicitCFNADE(n_hidden=4, max_epochs=1, validation_share=0.0).fit(COUNTS)
    model.similar_items(0)
    similar = model.set_params(random_state=1).fit(COUNTS).similar_items(0, N=20)
    fresh = ImplicitCFNADE(n_hidden=4, max_epochs=1, validation_share=0.0, random_state=1)
    np.testing.assert_array_equal(fresh.fit(COUNTS).similar_items(0, N=20)[1], similar[1])


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.recommend(0, COUNTS[[0]]),
        lambda model: model.explain(["i0"], "i1"),
        lambda model: model.similar_items("i0"),
        lambda model: model.similar_users(["i0"], COUNTS),
        lambda model: model.scores(COUNTS),
        lambda model: model.save("nowhere"),
    ],
)
def test_what_is_not_fitted_says_so(call):
    with pytest.raises(ConfigError, match="not fitted yet"):
        call(ImplicitCFNADE())


# Properties ------------------------------------------------------------------------------------

some_ids = st.lists(st.sampled_from(IDS), max_size=12)
histories = st.dictionaries(st.sampled_from(IDS), st.integers(1, 50), max_size=N_ITEMS)
seeds = st.integers(0, 3)
configurations = st.sampled_from(
    [{}, {"n_neighbours": 0}, {"n_layers": 2, "input_scale": "alpha"}, {"input_scale": "none"}]
)
quick = settings(max_examples=40, deadline=None)


@quick
@given(histories, some_ids, st.none() | some_ids, st.booleans(), st.integers(1, 25), st.data())
def test_recommendations_never_contain_filtered_items(
    history, filtered, allowed, filter_seen, n, data
):
    disliked = data.draw(
        st.lists(st.sampled_from(IDS).filter(lambda i: i not in history), max_size=5)
    )
    ids, scores = MODEL.recommend_for(
        history, n, disliked=disliked, filter_already_liked_items=filter_seen,
        filter_items=filtered, items=allowed,
    )  # fmt: skip
    expected = set(IDS if allowed is None else allowed) - set(filtered) - set(disliked)
    expected -= set(history) if filter_seen else set()
    assert set(ids) <= expected
    assert len(ids) == len(scores) == len(set(ids)) == min(n, len(expected))
    assert (np.diff(scores) <= 0).all()


@quick
@given(st.lists(st.tuples(histories, some_ids), min_size=1, max_size=6), configurations, seeds)
def test_batch_equals_single(users, configuration, seed):
    model = random_model(seed=seed, **configuration)
    rows = csr_array(np.vstack([model.catalogue_.history(h).toarray() for h, _ in users]))
    filtered = [set(ids) for _, ids in users]
    ids, scores = model.recommend(range(len(users)), rows, N=5, filter_items=filtered)
    for row, (history, left_out) in enumerate(users):
        alone = model.recommend_for(history, 5, filter_items=left_out)
        assert_same(alone, (ids[row], scores[row]))


@quick
@given(st.lists(histories, min_size=2, max_size=6), configurations, st.randoms())
def test_the_order_of_rows_and_of_entries_does_not_matter(users, configuration, random):
    model = random_model(**configuration)
    rows = csr_array(np.vstack([model.catalogue_.history(h).toarray() for h in users]))
    order = list(range(len(users)))
    random.shuffle(order)
    ids, scores = model.recommend(order, rows, N=5)
    shuffled_ids, shuffled_scores = model.recommend(order, rows[order], N=5)
    for place, row in enumerate(order):
        assert_same((ids[row], scores[row]), (shuffled_ids[place], shuffled_scores[place]))
    entries = list(users[0].items())
    random.shuffle(entries)
    again = dict(entries)
    assert model.explain(users[0], "i3") == model.explain(again, "i3")
    for first, second in zip(
        model.recommend_for(users[0]), model.recommend_for(again), strict=True
    ):
        np.testing.assert_array_equal(first, second)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(histories, configurations, seeds)
def test_save_and_load_change_nothing(tmp_path, history, configuration, seed):
    model = random_model(seed=seed, **configuration)
    model.save(tmp_path / "model")
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    assert loaded.explain(history, "i3") == model.explain(history, "i3")
    for call in (
        lambda m: m.recommend_for(history),
        lambda m: m.similar_items("i3"),
        lambda m: m.similar_users(history, COUNTS),
    ):
        for before, after in zip(call(model), call(loaded), strict=True):
            np.testing.assert_array_equal(before, after)
