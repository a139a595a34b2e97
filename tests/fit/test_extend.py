"""More data for a trained model: new rows, new items, the rest kept or trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix, vstack

from cfnade import ConfigError, DataError, ImplicitCFNADE, Interactions, RelativeRating
from cfnade.beyond.readout import Readout
from cfnade.beyond.recency import log_watchers, recent_counts, trend
from cfnade.beyond.repeats import Repeats, item_features
from cfnade.data.ratings import popularity_logit
from cfnade.fit import extend as module
from cfnade.fit.extend import with_new_items
from cfnade.fit.pipeline import Callbacks
from tests.compare.logs import log_of
from tests.networks import (
    SMALL,
    group_counts,
    random_counts,
    random_model,
    random_numpy_network,
)
from tests.planted import fashion, window_shopping

N_KNOWN = 16
"""Items of the first fit; the last four come later."""

IDS = np.array([f"i{k}" for k in range(20)], dtype=object)


def interactions(counts: csr_array, ids=IDS, names=None) -> Interactions:
    return Interactions(counts, np.arange(counts.shape[0]), ids, names)


@pytest.fixture(scope="module")
def first() -> ImplicitCFNADE:
    """Fitted on the first items of two taste groups."""
    known = interactions(group_counts()[:, :N_KNOWN], IDS[:N_KNOWN])
    settings = {**SMALL, "max_epochs": 60, "validation_share": 0}
    return ImplicitCFNADE(**settings).fit(known)


@pytest.fixture
def model(first, tmp_path) -> ImplicitCFNADE:
    """The same as a service has it: loaded, with weights that cannot be written to."""
    first.save(tmp_path / "first")
    return ImplicitCFNADE.load(tmp_path / "first")


@pytest.mark.parametrize("train", ["all", "new"])
def test_a_new_item_is_recommended_to_its_group(model, train):
    model.partial_fit(interactions(group_counts()), n_epochs=30, train=train)
    assert model.n_features_in_ == 20 and model.catalogue_.ids.tolist() == IDS.tolist()
    new = IDS[N_KNOWN:]
    ids, _ = model.recommend_for({"i0": 5, "i2": 1, "i4": 3}, n=4, items=new)
    assert set(ids[:2]) == {"i16", "i18"}
    # A history of new items raises the known items of their group.
    scores = model.scores(model.catalogue_.history(["i17", "i19"]))[0, :N_KNOWN]
    assert scores[1::2].mean() > scores[::2].mean() + 0.5


@pytest.mark.parametrize("input_scale", ["history", "alpha", "none"])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_adding_items_changes_no_score_of_known_ones(input_scale, n_layers):
    model = random_model(input_scale=input_scale, n_layers=n_layers, alpha=3.0)
    histories = random_counts(seed=5)
    before = model.scores(histories)
    more = random_counts(40, 26, seed=6)
    ids = np.array([f"i{k}" for k in range(26)], dtype=object)
    model.partial_fit(interactions(more, ids), n_epochs=0)
    wider = csr_array((histories.data, histories.indices, histories.indptr), (30, 26))
    np.testing.assert_allclose(model.scores(wider)[:, :20], before, rtol=1e-6, atol=1e-6)
    assert model.epochs_ == [] and len(model.partial_fits_) == 1


def test_training_new_items_alone_leaves_the_others_to_the_bit(model):
    before, distributions = model.scorer_.network.weights, model.scorer_.relative_rating
    histories = group_counts()[:, :N_KNOWN]
    scores = model.scores(histories)
    model.partial_fit(interactions(group_counts()), n_epochs=5, train="new")
    after = model.scorer_.network.weights
    assert after.keys() == before.keys()
    for name, weight in before.items():
        kept = after[name][:N_KNOWN] if after[name].shape[0] == 20 else after[name]
        if name == "dislike_weight":  # in units of the number of items
            weight = weight * np.float32(20 / N_KNOWN)
        np.testing.assert_array_equal(kept, weight, err_msg=name)
    for name in ("like_weight", "output_weight"):
        assert np.abs(after[name][N_KNOWN:]).min() > 0
    known = model.scorer_.relative_rating
    n_entries = distributions.distinct_counts_.size
    np.testing.assert_array_equal(
        known.distinct_counts_[:n_entries], distributions.distinct_counts_
    )
    wider = csr_array((histories.data, histories.indices, histories.indptr), (60, 20))
    np.testing.assert_allclose(model.scores(wider)[:, :N_KNOWN], scores, atol=1e-5)


def test_training_all_moves_known_items_too(model):
    before = {n: np.array(w) for n, w in model.scorer_.network.weights.items()}
    model.partial_fit(interactions(group_counts()), n_epochs=2)
    for name in ("like_weight", "output_weight", "dislike_weight", "output_bias"):
        assert (model.scorer_.network.weights[name][:N_KNOWN] != before[name]).any(), name


def test_more_rows_of_known_items_are_learnt_from(first, model):
    """Someone new: people who have i0 have i1 as well, across the groups."""
    rows = np.zeros((200, N_KNOWN))
    rows[:, [0, 1]] = 1.0
    rows[::2, 2] = rows[1::2, 3] = 1.0  # something else, so that not all are alike
    model.partial_fit(interactions(csr_array(rows), IDS[:N_KNOWN]), n_epochs=20)
    ids, _ = model.recommend_for(["i0", "i2"], n=1)
    assert ids.tolist() == ["i1"]
    assert first.recommend_for(["i0", "i2"], n=1)[0].tolist() != ["i1"]
    assert model.n_features_in_ == N_KNOWN


def test_counts_are_merged_into_the_distributions(model):
    more = group_counts()[:30] * 2
    model.partial_fit(interactions(more), n_epochs=1)
    known = group_counts()[:, :N_KNOWN]
    wider = csr_array((known.data, known.indices, known.indptr), (60, 20))
    expected = RelativeRating().fit(vstack([wider, more], format="csr"))
    merged = model.scorer_.relative_rating
    np.testing.assert_array_equal(merged.distinct_counts_, expected.distinct_counts_)
    np.testing.assert_array_equal(merged.n_watchers_up_to_, expected.n_watchers_up_to_)


def test_distributions_that_were_given_are_used_as_they_are():
    given = RelativeRating().fit(group_counts())
    known = RelativeRating().fit(group_counts()[:, :N_KNOWN])
    for relative_rating in (given, known):
        model = ImplicitCFNADE(**SMALL).fit(group_counts()[:, :N_KNOWN])
        model.set_params(relative_rating=relative_rating).partial_fit(group_counts(), n_epochs=1)
        used = model.scorer_.relative_rating
        np.testing.assert_array_equal(used.n_watchers_up_to_, given.n_watchers_up_to_)


def test_known_items_keep_their_neighbours_unless_the_data_is_no_smaller(model):
    before = np.array(model.scorer_.network.weights["neighbour_weight"])
    model.partial_fit(interactions(group_counts()[:20]), n_epochs=1)
    after = model.scorer_.network.weights["neighbour_weight"]
    np.testing.assert_array_equal(after[:N_KNOWN], before)
    assert (after[N_KNOWN:, 0] > 0).all()
    model.partial_fit(interactions(group_counts()), n_epochs=1)
    found = model.scorer_.network.weights
    assert (found["neighbour_weight"][:N_KNOWN] != before).any()
    assert (found["neighbours"][:N_KNOWN] >= N_KNOWN).any()  # new ones may speak for them now


def test_too_many_items_for_the_direct_path_have_no_neighbours(model, monkeypatch):
    monkeypatch.setattr("cfnade.fit.plan.DIRECT_MAX_ITEMS", 18)
    model.partial_fit(interactions(group_counts()), n_epochs=1, train="new")
    assert (model.scorer_.network.weights["neighbour_weight"][N_KNOWN:] == 0).all()
    assert np.isfinite(model.scores(group_counts())).all()


def test_too_many_items_for_the_direct_path_leave_known_neighbours(model, monkeypatch):
    before = np.array(model.scorer_.network.weights["neighbour_weight"])
    monkeypatch.setattr("cfnade.fit.plan.DIRECT_MAX_ITEMS", 18)
    model.partial_fit(interactions(group_counts()), n_epochs=1)
    after = model.scorer_.network.weights["neighbour_weight"]
    np.testing.assert_array_equal(after[:N_KNOWN], before)


def test_same_seed_same_model_and_other_orderings_each_time(first, tmp_path):
    first.save(tmp_path / "first")

    def again(n_times: int) -> ImplicitCFNADE:
        model = ImplicitCFNADE.load(tmp_path / "first")
        for _ in range(n_times):
            model.partial_fit(interactions(group_counts()), n_epochs=2)
        return model

    one, other = again(2), again(2)
    np.testing.assert_array_equal(one.scores(group_counts()), other.scores(group_counts()))
    assert one.epochs_[0].loss != again(1).epochs_[0].loss


def test_the_order_of_columns_makes_no_difference(first, tmp_path):
    first.save(tmp_path / "first")
    order = np.random.default_rng(0).permutation(20)
    scores = []
    for ids, counts in ((IDS, group_counts()), (IDS[order], group_counts()[:, order])):
        model = ImplicitCFNADE.load(tmp_path / "first").partial_fit(interactions(counts, ids))
        columns = [model.catalogue_.column_of[item] for item in IDS]
        histories = group_counts()[:, [IDS.tolist().index(i) for i in model.catalogue_.ids]]
        scores.append(model.scores(histories)[:, columns])
    # the orderings differ, the model is about the same
    assert np.corrcoef(scores[0].ravel(), scores[1].ravel())[0, 1] > 0.95


def test_save_and_load_keep_it_and_where_it_came_from(model, tmp_path):
    data = interactions(group_counts())
    n_epochs = model.best_epoch_
    model.partial_fit(data, n_epochs=3, train="new").save(tmp_path / "second")
    loaded = ImplicitCFNADE.load(tmp_path / "second")
    np.testing.assert_array_equal(loaded.scores(group_counts()), model.scores(group_counts()))
    assert loaded.data_fingerprint_ == model.data_fingerprint_ != data.fingerprint()
    assert loaded.partial_fits_ == [
        {
            "number": 1,
            "data_fingerprint": data.fingerprint(),
            "n_epochs": 3,
            "train": "new",
            "n_new_items": 4,
        }
    ]
    assert (loaded.best_epoch_, loaded.validation_mpr_) == (n_epochs + 3, None)
    loaded.partial_fit(data, n_epochs=1)
    assert len(loaded.partial_fits_) == 2 and len(model.partial_fits_) == 1
    assert loaded.fit(group_counts()).partial_fits_ == []


def test_a_model_keeps_few_records_and_that_of_the_most_pairs(model):
    everything, part = interactions(group_counts()), interactions(group_counts()[:20])
    model.partial_fit(everything, n_epochs=0)
    for _ in range(module.KEPT_RECORDS + 2):
        model.partial_fit(part, n_epochs=0)
    numbers = [record["number"] for record in model.partial_fits_]
    assert numbers == [1, *range(5, module.KEPT_RECORDS + 4)]
    assert model.partial_fits_[0]["data_fingerprint"] == everything.fingerprint()


def test_records_without_numbers_are_counted():
    records = [{"n_epochs": 1}, {"n_epochs": 2}]
    assert module.n_recorded(records) == 2
    assert module.recorded(records, {})[-1] == {"number": 3}
    assert module.n_recorded([]) == 0


def test_what_is_not_fitted_is_fitted():
    fitted = ImplicitCFNADE(**SMALL).fit(group_counts())
    model = ImplicitCFNADE(**SMALL)
    assert model.partial_fit(group_counts(), n_epochs=1) is model
    np.testing.assert_array_equal(model.scores(group_counts()), fitted.scores(group_counts()))
    assert model.partial_fits_ == []


@pytest.mark.parametrize("matrix", [csr_matrix, csr_array])
def test_a_matrix_may_have_more_columns_to_the_right(matrix):
    model = ImplicitCFNADE(**SMALL).fit(matrix(group_counts()[:, :N_KNOWN]))
    model.partial_fit(matrix(group_counts()), n_epochs=1)
    assert model.catalogue_.ids.tolist() == list(range(20))
    assert model.recommend(0, matrix(group_counts())[[0]], N=3)[0].shape == (3,)


def test_a_matrix_without_ids_can_do_no_more_than_that(model):
    with pytest.raises(DataError, match=r"the model's 16 items as its first columns, got 3"):
        model.partial_fit(csr_array(np.ones((2, 3))))
    with pytest.raises(DataError, match=r"20 columns has 4 items without an id.* like 'i0'"):
        model.partial_fit(group_counts())
    model.partial_fit(group_counts()[:, :N_KNOWN], n_epochs=1)  # the model's own columns


def test_a_frame_brings_ids_and_a_history_takes_them(model):
    pairs = group_counts().tocoo()
    frame = pd.DataFrame({"user": pairs.row, "item": IDS[pairs.col], "count": pairs.data})
    model.partial_fit(frame, n_epochs=1)
    assert set(model.catalogue_.ids) == set(IDS)
    assert model.catalogue_.ids[:N_KNOWN].tolist() == IDS[:N_KNOWN].tolist()
    assert len(model.recommend_for({"i19": 2}, n=4)[0]) == 4


@pytest.mark.parametrize(
    "ids",
    [np.arange(20, dtype=np.uint32) * 3, IDS.astype(str),
     np.arange(20).astype("datetime64[D]"), np.fromiter(((k, "x") for k in range(20)), object, 20)],
    ids=lambda ids: str(ids.dtype),
)  # fmt: skip
def test_ids_of_any_type(ids):
    known = interactions(group_counts()[:, :N_KNOWN], ids[:N_KNOWN])
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 2}).fit(known)
    model.partial_fit(interactions(group_counts(), ids), n_epochs=1, train="new")
    assert model.catalogue_.ids.tolist() == ids.tolist()
    assert model.catalogue_.ids.dtype == ids.dtype


def test_an_item_without_users_and_one_without_company_can_be_added(model):
    counts = np.zeros((62, 22))
    counts[:60, :20] = group_counts().toarray()
    counts[60, 21] = 3.0  # i21 is found alone; i20 with nobody
    ids = np.array([f"i{k}" for k in range(22)], dtype=object)
    model.partial_fit(interactions(csr_array(counts), ids), n_epochs=2, train="new")
    assert np.isfinite(model.scores(csr_array(counts))).all()
    ids, _ = model.recommend_for(["i0", "i2"], n=30)
    assert set(ids[-2:]) <= {"i20", "i21", "i17", "i19"}


def test_wrong_use_is_refused_and_changes_nothing(model):
    before = model.scores(group_counts()[:, :N_KNOWN])
    good = interactions(group_counts())
    for wrong in ({"n_epochs": -1}, {"n_epochs": 2.5}, {"n_epochs": True}):
        with pytest.raises(ConfigError, match="n_epochs must be a whole number"):
            model.partial_fit(good, **wrong)
    with pytest.raises(ConfigError, match="train must be one of all, new; got 'old'"):
        model.partial_fit(good, train="old")
    with pytest.raises(DataError, match="knows none of the items"):
        model.partial_fit(interactions(group_counts(), np.arange(20)))
    with pytest.raises(DataError, match="sparse"):
        model.partial_fit(group_counts().toarray())
    with pytest.raises(DataError, match="nothing to learn from"):
        model.partial_fit(csr_array((3, N_KNOWN)))
    with pytest.raises(ConfigError, match="learning_rate"):
        model.set_params(learning_rate=-1.0).partial_fit(good)
    assert model.n_features_in_ == N_KNOWN and model.partial_fits_ == []
    np.testing.assert_array_equal(model.scores(group_counts()[:, :N_KNOWN]), before)


def test_new_items_alone_without_any_change_nothing(model):
    histories = group_counts()[:, :N_KNOWN]
    before = model.scores(histories)
    model.partial_fit(interactions(histories, IDS[:N_KNOWN]), train="new")
    np.testing.assert_allclose(model.scores(histories), before, rtol=1e-6)
    assert model.epochs_ == []


def test_names_of_new_items_are_taken_over(first, tmp_path):
    names = np.array([f"Film {k}" for k in range(20)], dtype=object)
    first.save(tmp_path / "first")
    model = ImplicitCFNADE.load(tmp_path / "first")
    model.partial_fit(interactions(group_counts(), names=names), n_epochs=0)
    assert model.catalogue_.label("i19") == "Film 19"


def test_callbacks_are_called_for_every_epoch(model):
    epochs: list[int] = []
    callbacks = Callbacks(on_epoch=lambda epoch: epochs.append(epoch.number))
    model.partial_fit(interactions(group_counts()), n_epochs=3, callbacks=callbacks)
    assert epochs == [1, 2, 3] == [epoch.number for epoch in model.epochs_]


def test_all_units_are_trained():
    model = random_model(n_hidden=6, n_neighbours=0)
    before = {n: np.array(w) for n, w in model.scorer_.network.weights.items()}
    model.partial_fit(interactions(random_counts()), n_epochs=1)
    network = model.scorer_.network
    assert network.config.n_hidden == 6
    for name in ("like_weight", "output_weight"):
        assert (network.weights[name] != before[name]).any(axis=0).all(), name


def test_what_does_not_fit_into_memory_is_refused(model):
    model.set_params(memory_limit="1MB")
    with pytest.raises(ConfigError, match=r"limit of 1MB.* train on fewer users at a time"):
        model.partial_fit(interactions(group_counts()))
    assert model.n_features_in_ == N_KNOWN


def test_memory_that_only_a_fit_would_take_is_not_asked_for(model, monkeypatch):
    """Validation and factors are no part of training on more data."""
    model.set_params(memory_limit="450MB")
    monkeypatch.setattr("cfnade.fit.plan._JUDGED_COPIES", 10**6)
    with pytest.raises(ConfigError, match="more than the limit"):
        model.plan(group_counts())
    model.partial_fit(interactions(group_counts()), n_epochs=1)


# Where new items start -------------------------------------------------------------------------

N_MORE = 26
"""Items with the new ones; twenty are known."""


@pytest.fixture
def weights():
    return random_numpy_network(20, n_neighbours=0).weights


@pytest.mark.parametrize("n_nearest", [1, 4, 50])
def test_new_items_start_at_the_mean_of_those_their_users_have_most(
    weights, n_nearest, monkeypatch
):
    monkeypatch.setattr(module, "START_NEIGHBOURS", n_nearest)
    monkeypatch.setattr(module, "_ROWS", 4)  # in more than one block
    counts = random_counts(50, N_MORE, seed=3)
    grown = with_new_items(weights, counts)
    likes, popularity = counts.toarray() > 0, popularity_logit(counts)
    for item in range(20, N_MORE):
        cosine = np.array([
            (likes[:, item] & likes[:, known]).sum() / np.sqrt(likes[:, known].sum())
            for known in range(20)
        ])  # fmt: skip
        nearest = np.argsort(-cosine)[:n_nearest]
        share = cosine[nearest] / cosine[nearest].sum()
        for name in ("like_weight", "output_weight"):
            np.testing.assert_allclose(grown[name][item], share @ weights[name][nearest], atol=1e-5)
        bias = share @ (weights["output_bias"] - popularity[:20])[nearest]
        np.testing.assert_allclose(grown["output_bias"][item], popularity[item] + bias, atol=1e-5)


def test_known_rows_are_kept_and_rows_of_a_are_zero(weights):
    grown = with_new_items(weights, random_counts(50, N_MORE))
    for name, weight in weights.items():
        np.testing.assert_array_equal(grown[name][: len(weight)], weight)
        assert grown[name].dtype == np.float32
    assert (grown["dislike_weight"][20:] == 0).all()
    assert with_new_items(weights, random_counts(50, 20)).keys() == weights.keys()


def test_an_item_without_company_starts_with_zeros_and_its_popularity(weights):
    counts = np.zeros((4, 22))
    counts[0, 20] = counts[1:, 0] = 1.0  # the last has nobody at all
    grown = with_new_items(weights, csr_array(counts))
    popularity = popularity_logit(csr_array(counts))
    assert (grown["like_weight"][20:] == 0).all()
    assert (grown["output_weight"][20:] == 0).all()
    np.testing.assert_array_equal(grown["output_bias"][20:], popularity[20:])


# Times -------------------------------------------------------------------------------------------

GIVEN = Readout(history_half_life=20.0, trend_half_life=10.0, trend_gain=1.0, popularity_gain=2.0)


@pytest.fixture(scope="module")
def dated() -> ImplicitCFNADE:
    """Fitted on the first events of a log."""
    data = fashion()
    early = data.with_events(data.log.time < 50)
    return ImplicitCFNADE(**SMALL, validation_share=0, readout=GIVEN).fit(early)


def again(model: ImplicitCFNADE, folder) -> ImplicitCFNADE:
    model.save(folder)
    return ImplicitCFNADE.load(folder)


def expected_trend(data: Interactions) -> np.ndarray:
    now, ever = (log_watchers(data.log, data.n_items, h) for h in (10.0, 0.0))
    return trend(now, ever, 1.0, 2.0)


def test_trends_and_recent_counts_are_made_again_from_a_log(dated, tmp_path):
    model, data = again(dated, tmp_path), fashion()
    before = model.scorer_.relative_rating
    model.partial_fit(data, n_epochs=2)
    added = model.scorer_.network.weights["trend"]
    np.testing.assert_allclose(added, expected_trend(data), rtol=1e-5)
    assert np.median(added[20:]) > np.median(added[:20])  # the fashion has changed
    recent = recent_counts(data.log, data.counts.shape, 20.0)
    expected = before.merged_with(RelativeRating().fit(recent))
    histories = model.histories(data)
    np.testing.assert_array_equal(
        model.scorer_.relative_rating.transform(histories).toarray(),
        expected.transform(recent).toarray(),
    )
    assert model.clock_ == "number" and model.readout_ == dated.readout_
    loaded = again(model, tmp_path)
    np.testing.assert_array_equal(loaded.scores(histories), model.scores(histories))


def test_items_in_another_order_get_their_own_trend(dated, tmp_path):
    model, data = again(dated, tmp_path), fashion()
    order = np.random.default_rng(0).permutation(40)
    log = replace(data.log, item=np.argsort(order)[data.log.item].astype(np.int32))
    moved = Interactions.from_log(log, data.user_ids, data.item_ids[order])
    model.partial_fit(moved, n_epochs=1)
    added = model.scorer_.network.weights["trend"]
    np.testing.assert_allclose(added, expected_trend(data), rtol=1e-5)


def test_without_times_known_items_keep_their_trend_and_their_recent_counts(dated, tmp_path):
    model, plain = again(dated, tmp_path), replace(fashion(), log=None)
    before = model.scorer_
    model.partial_fit(plain, n_epochs=2)
    after = model.scorer_
    np.testing.assert_array_equal(after.network.weights["trend"], before.network.weights["trend"])
    histories = plain.counts
    np.testing.assert_array_equal(
        after.relative_rating.transform(histories).toarray(),
        before.relative_rating.transform(histories).toarray(),
    )
    assert not np.array_equal(
        after.network.weights["output_weight"], before.network.weights["output_weight"]
    )


@pytest.mark.parametrize("has_times", [True, False])
def test_a_new_item_has_the_trend_of_its_neighbours_and_known_items_keep_theirs(
    dated, tmp_path, has_times
):
    """A twin of item 3, with as many watchers, is as popular; one with fewer is less so."""
    model, data = again(dated, tmp_path), fashion()
    log = data.log.subset(data.log.time < 50)
    is_third, rng = log.item == 3, np.random.default_rng(0)
    rare = is_third & (rng.random(log.n_entries) < 0.3)
    copies = [np.flatnonzero(chosen) for chosen in (is_third, rare)]
    order = np.concatenate([np.arange(log.n_entries), *copies])
    item = np.concatenate([log.item, *(np.full(len(c), 40 + k) for k, c in enumerate(copies))])
    more = log_of(log.user[order], item, log.time[order], data.n_users, 42, "number")
    before = model.scorer_.network.weights["trend"]
    more = more if has_times else replace(more, log=None)
    model.partial_fit(more, n_epochs=0)
    added = model.scorer_.network.weights["trend"]
    np.testing.assert_array_equal(added[:40], before)
    assert added[40] == pytest.approx(np.median(before[:20]), abs=1.5)
    assert added[41] < added[40] - 0.5
    assert np.isfinite(model.scores(csr_array((1, 42)))).all()


def test_times_of_another_kind_are_refused(dated, tmp_path):
    model, data = again(dated, tmp_path), fashion()
    seconds = replace(data, log=replace(data.log, clock="seconds"))
    for ask in (model.partial_fit, model.histories):
        with pytest.raises(DataError, match="are dates or seconds since 1970, the model was"):
            ask(seconds)
    order = replace(data, log=replace(data.log, clock="order"))  # numbers, too
    assert model.histories(order).nnz == data.n_pairs


def test_a_log_changes_nothing_in_a_model_without_recency(model):
    data = log_of([0, 0, 1], [0, 1, 2], [1.0, 2.0, 3.0], 2, 3, "number")
    data = replace(data, item_ids=IDS[:3])
    model.partial_fit(data, n_epochs=1)
    assert "trend" not in model.scorer_.network.weights and model.clock_ is None


# Repeats and kinds of events ---------------------------------------------------------------------

REPEATS = (1.0, 0.5, 0.8, 0.2)


@pytest.fixture
def repeating(tmp_path) -> ImplicitCFNADE:
    """With a model of repeats, fitted on the first events of a log."""
    data = fashion()
    early = data.with_events(data.log.time < 50)
    given = Readout(history_half_life=0, trend_gain=0, popularity_gain=0, repeats=REPEATS)
    model = ImplicitCFNADE(**SMALL, validation_share=0, readout=given).fit(early)
    return again(model, tmp_path / "repeating")


def test_repeats_are_made_again_from_the_largest_log(repeating):
    data, before = fashion(), repeating.scorer_.network.weights
    repeating.partial_fit(data, n_epochs=1)
    after = repeating.scorer_.network.weights
    expected = Repeats.of(REPEATS, item_features(data.log, data.n_items))
    np.testing.assert_allclose(after["repeat_bias"], expected.bias, rtol=1e-5)
    np.testing.assert_array_equal(after["repeat_weight"], before["repeat_weight"])


def test_known_items_keep_their_repeats_on_a_part_and_new_ones_have_those_of_their_neighbours(
    repeating,
):
    data, before = fashion(), repeating.scorer_.network.weights["repeat_bias"]
    log = data.log.subset(data.log.user < 20)
    twin = np.flatnonzero(log.item == 3)
    order = np.concatenate([np.arange(log.n_entries), twin])
    item = np.concatenate([log.item, np.full(len(twin), 40)])
    part = log_of(log.user[order], item, log.time[order], 20, 42, "number")  # 41 has nobody
    repeating.partial_fit(part, n_epochs=1)
    after = repeating.scorer_.network.weights["repeat_bias"]
    np.testing.assert_array_equal(after[:40], before)
    assert before.min() <= after[40] <= before.max()
    assert after[41] == pytest.approx(before.mean(), rel=1e-5)
    assert np.isfinite(repeating.scores(csr_array(part.counts))).all()


def test_more_events_are_weighed_as_the_first_ones_were(tmp_path):
    """A purchase that weighs ten views counts so in the distributions of more data, too."""
    weights = {"buy": 10.0, "cart": 3.0, "skip": 0.0, "view": 1.0}
    plain = window_shopping(with_times=True)
    data = plain.weighed(weights, "buy")
    off = Readout(history_half_life=0, trend_gain=0, popularity_gain=0, repeats=REPEATS)
    model = ImplicitCFNADE(**SMALL, validation_share=0, readout=off).fit(data)
    assert "repeat_bias" in model.scorer_.network.weights
    by_name, by_log = again(model, tmp_path / "a"), again(model, tmp_path / "b")
    by_name.partial_fit(data, n_epochs=1)
    by_log.partial_fit(plain, n_epochs=1)  # as read from a file
    histories = model.histories(plain)
    np.testing.assert_array_equal(by_log.scores(histories), by_name.scores(histories))
    np.testing.assert_array_equal(
        by_log.scorer_.relative_rating.transform(data.counts).toarray(),
        model.scorer_.relative_rating.transform(data.counts).toarray(),
    )
    np.testing.assert_allclose(
        by_log.scorer_.network.weights["repeat_bias"],
        model.scorer_.network.weights["repeat_bias"],
        rtol=1e-5,
    )
