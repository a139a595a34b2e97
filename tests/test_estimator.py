from __future__ import annotations

import inspect
import json
import logging
import re

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone

from cfnade import ConfigError, DataError, ImplicitCFNADE, Interactions, RelativeRating
from cfnade.baselines import Popularity
from cfnade.beyond.readout import ReadoutConfig
from cfnade.data.simulation.service_config import ServiceConfig
from cfnade.data.simulation.simulate import SimulatedService
from cfnade.data.splitting import hold_out
from cfnade.fit.networks import NetworksConfig
from cfnade.fit.pipeline import Callbacks
from cfnade.fit.validation import ValidationConfig
from cfnade.metrics.evaluate import evaluate, mean_percentage_ranking
from cfnade.model.config import ITEM_L2, PRESETS, ModelConfig, TrainingConfig, usual_item_l2
from tests.networks import random_counts, random_model

SMALL = {
    "n_hidden": 8,
    "batch_size": 16,
    "max_epochs": 12,
    "learning_rate": 0.02,
    "item_l2_trials": 1,
}


@pytest.fixture(scope="module")
def model() -> ImplicitCFNADE:
    """Fitted on two taste groups with ids in words: items of even number belong together."""
    item_ids = np.array([f"i{k}" for k in range(20)], dtype=object)
    data = Interactions(group_counts(), np.arange(60), item_ids)
    return ImplicitCFNADE(**{**SMALL, "max_epochs": 80}).fit(data)


def group_counts() -> csr_array:
    rng = np.random.default_rng(0)
    in_group = np.arange(60)[:, None] % 2 == np.arange(20)[None, :] % 2
    watched = rng.random((60, 20)) < np.where(in_group, 0.7, 0.05)
    return csr_array(np.where(watched, rng.geometric(0.3, (60, 20)), 0).astype(float))


def test_a_made_up_history_gets_its_groups_other_items(model):
    ids, scores = model.recommend_for({"i0": 5, "i2": 1, "i4": 3}, n=5)
    assert len(ids) == 5
    assert all(int(item[1:]) % 2 == 0 for item in ids)
    assert not {"i0", "i2", "i4"} & set(ids)
    assert (np.diff(scores) <= 0).all()
    logits = model.scores(model.catalogue_.history({"i0": 5, "i2": 1, "i4": 3}))[0]
    np.testing.assert_allclose(scores, logits[model.catalogue_.columns(ids)], rtol=1e-5)


def test_a_list_is_a_history_of_single_counts_and_repeats_add_up(model):
    by_list = model.recommend_for(["i0", "i2", "i0"])
    by_counts = model.recommend_for({"i0": 2, "i2": 1})
    assert by_list[0].tolist() == by_counts[0].tolist()
    np.testing.assert_array_equal(by_list[1], by_counts[1])


def test_a_count_of_zero_is_no_interaction(model):
    with_zero = model.recommend_for({"i0": 2, "i2": 0}, n=20)
    without = model.recommend_for({"i0": 2}, n=20)
    assert with_zero[0].tolist() == without[0].tolist()
    assert "i2" in with_zero[0]


def test_someone_of_whom_nothing_is_known_gets_an_answer(model):
    ids, scores = model.recommend_for({}, n=3)
    assert len(ids) == 3 and np.isfinite(scores).all()


def test_unknown_items_raise_warn_or_are_ignored_as_asked(model, caplog):
    with pytest.raises(DataError, match=r"item 'x' is not in this model \(20 items\)"):
        model.recommend_for({"x": 1})
    known = model.recommend_for({"i0": 1})
    with caplog.at_level(logging.WARNING):
        warned = model.recommend_for({"i0": 1, "x": 1, "y": 2}, unknown="warn")
    assert "'x' and 1 more are not in this model" in caplog.text
    caplog.clear()
    ignored = model.recommend_for({"i0": 1, "x": 1}, unknown="ignore")
    assert not caplog.records
    assert known[0].tolist() == warned[0].tolist() == ignored[0].tolist()


@pytest.mark.parametrize("count", [-1, float("nan"), float("inf"), "many"])
def test_a_count_that_is_none_is_refused(model, count):
    with pytest.raises(DataError, match="counts"):
        model.recommend_for({"i0": count})


@pytest.mark.parametrize("matrix", [csr_matrix, csr_array])
def test_batch_equals_single_as_in_implicit(model, matrix):
    histories = matrix(group_counts())
    ids, scores = model.recommend(np.arange(60), histories, N=4)
    assert ids.shape == scores.shape == (60, 4)
    for user in (0, 7, 59):
        one_ids, one_scores = model.recommend(user, histories[[user]], N=4)
        assert one_ids.tolist() == ids[user].tolist()
        np.testing.assert_allclose(one_scores, scores[user], rtol=1e-5)


def test_filters_work_together(model):
    history = csr_array(np.eye(1, 20))
    allowed = ["i2", "i4", "i6", "i0"]
    ids, _ = model.recommend(0, history, N=10, items=allowed, filter_items=["i4"])
    assert sorted(ids) == ["i2", "i6"]  # i0 is in the history; fewer than N, never padded
    ids, _ = model.recommend(
        0, history, N=10, items=allowed, filter_items=["i4"], filter_already_liked_items=False
    )
    assert sorted(ids) == ["i0", "i2", "i6"]
    with pytest.raises(DataError, match="item 'x' is not in this model"):
        model.recommend(0, history, items=["x"])


def test_rows_of_a_batch_with_fewer_candidates_are_shorter_never_padded(model):
    histories = csr_array(np.array([[1.0] * 19 + [0], [1.0] + [0.0] * 19]))
    ids, scores = model.recommend([0, 1], histories, N=3)
    assert ids.shape == scores.shape == (2,)
    assert ids[0].tolist() == ["i19"] and scores[0].shape == (1,)
    assert ids[1].shape == scores[1].shape == (3,)
    ids, scores = model.recommend([0, 1], histories[[0, 0]], N=3)
    assert ids.tolist() == [["i19"], ["i19"]] and scores.shape == (2, 1)


def test_unsigned_ids_and_numpy_settings_are_fine(tmp_path):
    item_ids = np.arange(20, dtype=np.uint32)
    data = Interactions(group_counts(), np.arange(60), item_ids)
    model = ImplicitCFNADE(**{**SMALL, "n_hidden": np.int64(4), "random_state": np.int64(1)})
    model.set_params(n_threads=np.int64(1))
    model.fit(data).save(tmp_path / "model")
    histories = csr_array(np.array([[1.0] * 18 + [0, 0], [1.0] + [0.0] * 19]))
    ids, _ = ImplicitCFNADE.load(tmp_path / "model").recommend([0, 1], histories, N=2)
    assert ids.dtype == np.uint32 and ids.shape == (2, 2)
    with pytest.raises(ConfigError, match="at least 1"):
        model.recommend(0, histories[[0]], N=0)


def test_a_wrong_shape_is_told_with_what_to_pass(model):
    with pytest.raises(DataError, match=r"\(1, 20\); got \(60, 20\); pass user_items\[userid\]"):
        model.recommend(3, group_counts())


def test_save_and_load_change_nothing(model, tmp_path):
    model.save(tmp_path / "model", data={"name": "groups"})
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.scores(group_counts()), model.scores(group_counts()))
    before, after = model.get_params(), loaded.get_params()
    assert before == after
    assert loaded.recommend_for({"i0": 3})[0].tolist() == model.recommend_for({"i0": 3})[0].tolist()
    assert (loaded.best_epoch_, loaded.validation_mpr_) == (
        model.best_epoch_,
        model.validation_mpr_,
    )


def test_fit_takes_a_frame_with_any_ids():
    pairs = group_counts().tocoo()
    frame = pd.DataFrame(
        {
            "user": [f"u{u}" for u in pairs.row],
            "item": [f"i{i}" for i in pairs.col],
            "count": pairs.data,
        }
    )
    fitted = ImplicitCFNADE(**SMALL).fit(frame)
    assert set(fitted.catalogue_.ids) == {f"i{k}" for k in range(20)}
    assert len(fitted.recommend_for({"i3": 2}, n=4)[0]) == 4


def test_same_seed_same_model_whatever_the_order_of_rows_in_a_table():
    pairs = group_counts().tocoo()
    frame = pd.DataFrame({"user": pairs.row, "item": pairs.col, "count": pairs.data})
    first = ImplicitCFNADE(**SMALL).fit(frame)
    again = ImplicitCFNADE(**SMALL).fit(frame.sample(frac=1.0, random_state=3))
    np.testing.assert_array_equal(first.scores(group_counts()), again.scores(group_counts()))


def test_the_constructor_stores_its_keywords_and_clone_copies_them():
    model = ImplicitCFNADE(alpha=7.0, n_hidden=-3)  # checked in fit, not here
    assert clone(model).get_params() == model.get_params()
    assert repr(model) == "ImplicitCFNADE(n_hidden=-3, alpha=7.0)"
    with pytest.raises(ConfigError, match="n_hidden"):
        model.fit(group_counts())
    with pytest.raises(ConfigError, match="no setting 'depth'"):
        model.set_params(depth=3)


def test_defaults_are_those_of_the_configurations():
    parameters = inspect.signature(ImplicitCFNADE).parameters
    for config in (ModelConfig, TrainingConfig, ReadoutConfig, ValidationConfig, NetworksConfig):
        for name, field in config.__dataclass_fields__.items():
            if name not in ("n_items", "n_neighbours", "n_linear", "seed"):
                assert parameters[name].default == field.default, name


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", True, None])
def test_a_number_of_items_is_a_whole_number_above_zero(n):
    model = random_model()
    with pytest.raises(ConfigError, match="the number of items must be a whole number"):
        model.recommend_for({"i1": 2}, n=n)


def test_what_a_folder_told_is_saved_again(tmp_path):
    model = random_model()
    model.save(tmp_path / "a", data={"name": "plays"}, metrics={"ndcg": 0.3})
    ImplicitCFNADE.load(tmp_path / "a").save(tmp_path / "b")
    first, second = (json.loads((tmp_path / n / "model.json").read_text()) for n in "ab")
    assert second == first and first["metrics"]["ndcg"] == 0.3


def test_an_array_of_one_item_without_dimensions_is_one_item():
    ids, scores = random_model(item_ids=np.arange(20)).similar_items(np.array(3), N=2)
    assert ids[0] == 3 and ids.shape == scores.shape == (2,)


def test_the_paper_preset_is_one_word_away():
    paper = ImplicitCFNADE.from_preset("paper", random_state=3)
    assert (paper.n_hidden, paper.optimizer, paper.learning_rate) == (256, "sgd", 0.01)
    assert (paper.batch_size, paper.weight_decay, paper.alpha) == (200, 0.01, 300.0)
    assert paper.random_state == 3
    assert not paper.direct and paper.popularity_tilt == 0.0  # not in the paper
    fitted = paper.set_params(max_epochs=30, patience=30).fit(group_counts())
    assert fitted.epochs_[-1].loss < fitted.epochs_[0].loss
    assert fitted.validation_mpr_ < 50
    assert set(PRESETS) == {"default", "paper"}
    with pytest.raises(ConfigError, match="no preset 'best'"):
        ImplicitCFNADE.from_preset("best")


def test_what_is_not_fitted_says_so():
    with pytest.raises(ConfigError, match="not fitted yet"):
        ImplicitCFNADE().recommend_for({"i0": 1})


def test_nothing_to_learn_from_is_told():
    with pytest.raises(DataError, match="no count is above zero"):
        ImplicitCFNADE().fit(csr_array((3, 4)))


def test_too_little_for_a_validation_part_trains_all_epochs(caplog):
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 3}).fit(csr_array(np.eye(4)))
    assert "nobody has enough items" in caplog.text
    assert (model.best_epoch_, model.validation_mpr_) == (3, None)


def test_a_single_item_and_a_user_without_items_are_fine():
    counts = csr_array(np.array([[2.0], [0.0], [1.0]]))
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 2}).fit(counts)
    ids, _ = model.recommend(0, csr_array((1, 1)))
    assert ids.tolist() == [0]
    ids, scores = model.recommend(0, counts[[0]])
    assert ids.size == scores.size == 0


def test_validation_pairs_are_trained_on_again_in_the_end():
    epochs: list[int] = []
    callbacks = Callbacks(on_epoch=lambda epoch: epochs.append(epoch.number))
    model = ImplicitCFNADE(**SMALL).fit(group_counts(), callbacks=callbacks)
    n_search = len(model.epochs_)
    assert epochs[n_search:] == list(range(1, model.best_epoch_ + 1))
    kept = ImplicitCFNADE(**SMALL, refit=False).fit(group_counts())
    assert (kept.scores(group_counts()) != model.scores(group_counts())).any()


def test_fit_finds_the_strength_of_l2_on_validation(caplog):
    settings = {**SMALL, "validate_every": 1, "patience": 12, "direct": False, "factors": False}
    alone = {
        item_l2: ImplicitCFNADE(**settings, item_l2=item_l2, popularity_tilt=0.0).fit(
            group_counts()
        )
        for item_l2 in ITEM_L2
    }
    assert all(model.item_l2_ == item_l2 for item_l2, model in alone.items())
    mpr_of = {item_l2: model.validation_mpr_ for item_l2, model in alone.items()}
    usual = usual_item_l2(group_counts().nnz, 60, 20)
    for n_trials in (2, 3, 6):
        caplog.clear()
        settings |= {"item_l2_trials": n_trials, "popularity_tilt": 0.0}
        with caplog.at_level(logging.INFO, logger="cfnade.fit.pipeline"):
            found = ImplicitCFNADE(**settings).fit(group_counts())
        tried = [float(word) for word in re.findall(r"item_l2 ([0-9.]+):", caplog.text)]
        assert tried[0] == usual and 2 <= len(set(tried)) == len(tried) <= n_trials
        assert found.item_l2_ == min(tried, key=lambda item_l2: mpr_of[item_l2])
        assert found.validation_mpr_ == alone[found.item_l2_].validation_mpr_
        mine, theirs = (m.scores(group_counts()) for m in (found, alone[found.item_l2_]))
        np.testing.assert_array_equal(mine, theirs)  # trained again on all pairs as well


def test_epochs_and_readout_can_be_chosen_by_another_metric():
    train, held_out = hold_out(group_counts(), share=0.3, rng=0)
    settings = {**SMALL, "validate_every": 1, "patience": 12, "item_l2": 0.1}
    settings |= {"direct": False, "factors": False}

    def recall_of(model: ImplicitCFNADE) -> float:
        relevance = model.scorer_.relative_rating.transform(held_out)
        judged = evaluate(model, train, held_out, relevance, metrics=["recall@3"], n_bootstrap=0)
        return judged.metrics["recall@3"]

    epochs = []
    for n_epochs in range(1, SMALL["max_epochs"] + 1):
        fixed = {**settings, "max_epochs": n_epochs, "validation_share": 0.0}
        epochs.append(recall_of(ImplicitCFNADE(**fixed, popularity_tilt=0.0).fit(train)))
    chosen = ImplicitCFNADE(**settings, choose_by="recall@3").fit(train, validation=held_out)
    assert chosen.best_epoch_ == 1 + epochs.index(max(epochs))
    assert recall_of(chosen) >= max(epochs)  # the tilt of popularity is chosen by it as well
    assert [e.cost for e in chosen.epochs_] == [-recall for recall in epochs]
    for wrong, why in [("luck", "no metric 'luck'"), (5, "named by text"), (True, "named by text")]:
        with pytest.raises(ConfigError, match=why):
            ImplicitCFNADE(choose_by=wrong).fit(train)


def test_the_strength_of_l2_follows_the_metric_that_is_chosen_by(caplog):
    settings = {**SMALL, "validate_every": 1, "patience": 12, "direct": False}
    settings |= {"item_l2_trials": 3, "choose_by": "recall@3"}
    with caplog.at_level(logging.INFO, logger="cfnade.fit.pipeline"):
        found = ImplicitCFNADE(**settings).fit(group_counts())
    tried = [float(word) for word in re.findall(r"item_l2 ([0-9.]+):", caplog.text)]
    best = {}
    for item_l2 in tried:
        alone = ImplicitCFNADE(**{**settings, "item_l2": item_l2}).fit(group_counts())
        best[item_l2] = min(epoch.cost for epoch in alone.epochs_)
    assert len(tried) > 1 and best[found.item_l2_] == min(best.values()) < 0


def test_several_networks_are_one_whose_scores_are_their_mean():
    train, held_out = hold_out(group_counts(), share=0.3, rng=0)
    settings = {**SMALL, "item_l2": 0.1, "direct": False, "factors": False, "popularity_tilt": 0.0}
    three = ImplicitCFNADE(**settings, n_networks=3).fit(train, validation=held_out)
    assert three.scorer_.network.config.n_hidden == 3 * SMALL["n_hidden"]
    fixed = {**settings, "max_epochs": three.best_epoch_, "validation_share": 0.0}
    alone = [
        ImplicitCFNADE(**{**fixed, "random_state": 1_000_003 * number}).fit(train).scores(train)
        for number in range(3)
    ]
    np.testing.assert_allclose(three.scores(train), np.mean(alone, axis=0), atol=1e-5)
    assert np.abs(alone[0] - alone[1]).max() > 0.1  # else the mean shows nothing


@pytest.mark.parametrize("n_stop", [6, 10], ids=["second network", "trained again"])
def test_several_networks_are_resumed_where_one_stopped(tmp_path, n_stop):
    settings = {**SMALL, "max_epochs": 4, "item_l2": 0.1, "n_networks": 2}
    epochs = []
    count = Callbacks(on_epoch=epochs.append)
    whole = ImplicitCFNADE(**settings).fit(group_counts(), callbacks=count)
    n_whole, n_done = len(epochs), 0
    assert n_whole == 4 + 3 * whole.best_epoch_ > n_stop

    def stop(epoch):
        nonlocal n_done
        n_done += 1
        if n_done == n_stop:  # somebody presses Ctrl-C
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ImplicitCFNADE(**settings).fit(
            group_counts(), callbacks=Callbacks(on_epoch=stop), checkpoint=tmp_path
        )
    n_run = []
    again = ImplicitCFNADE(**settings).fit(
        group_counts(), callbacks=Callbacks(on_epoch=n_run.append), checkpoint=tmp_path, resume=True
    )
    np.testing.assert_array_equal(again.scores(group_counts()), whole.scores(group_counts()))
    assert len(n_run) == n_whole - n_done


def test_several_networks_are_trained_where_items_have_few_watchers():
    sparse = random_counts(30, 200, density=0.1)
    assert sparse.nnz < 10 * 200
    dense = group_counts()
    assert dense.nnz > 10 * dense.shape[1]
    assert NetworksConfig().n_for(sparse) == 4 and NetworksConfig().n_for(dense) == 1
    assert NetworksConfig(2).n_for(sparse) == 2 and NetworksConfig(3).n_for(dense) == 3
    for wrong in (0, 1.5, "two", True):
        with pytest.raises(ConfigError, match="n_networks"):
            ImplicitCFNADE(n_networks=wrong).fit(dense)


def test_rare_items_are_held_more_and_much_data_is_not_searched(monkeypatch):
    sparse, many, dense = (10**4, 10**4, 10**3), (10**6, 10**5, 10**3), (10**4, 10**2, 10**3)
    assert usual_item_l2(*sparse) > usual_item_l2(*many) == usual_item_l2(*dense)
    monkeypatch.setattr("cfnade.fit.pipeline.SEARCH_UP_TO", 60 * 20 - 1)
    seen: list[int] = []
    callbacks = Callbacks(on_epoch=lambda epoch: seen.append(epoch.number))
    settings = {**SMALL, "item_l2_trials": 3, "refit": False}
    model = ImplicitCFNADE(**settings).fit(group_counts(), callbacks=callbacks)
    assert seen.count(1) == 1 and model.item_l2_ == usual_item_l2(group_counts().nnz, 60, 20)


def test_what_was_found_is_kept_for_more_training(tmp_path):
    settings = {**SMALL, "max_epochs": 4}
    other = ImplicitCFNADE(**settings, item_l2=0.05).fit(group_counts())
    other.set_params(item_l2=None).save(tmp_path / "model")  # as if it had been found
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert (loaded.item_l2, loaded.item_l2_) == (None, 0.05)
    grown = loaded.partial_fit(group_counts(), n_epochs=2)
    told = other.set_params(item_l2=0.05).partial_fit(group_counts(), n_epochs=2)
    np.testing.assert_array_equal(grown.scores(group_counts()), told.scores(group_counts()))
    otherwise = ImplicitCFNADE.load(tmp_path / "model").set_params(item_l2=1.6)
    otherwise.partial_fit(group_counts(), n_epochs=2)
    assert (otherwise.scores(group_counts()) != told.scores(group_counts())).any()


@pytest.mark.parametrize("n_trials", [1, 3])
def test_an_interrupted_fit_can_be_resumed_in_any_phase(tmp_path, n_trials):
    settings = {**SMALL, "max_epochs": 6, "item_l2_trials": n_trials}
    whole_epochs: list[int] = []
    whole = ImplicitCFNADE(**settings).fit(
        group_counts(), callbacks=Callbacks(lambda epoch: whole_epochs.append(epoch.number))
    )
    starts = [n for n, number in enumerate(whole_epochs) if number == 1]
    assert len(starts) == n_trials + 1 or n_trials > 1
    for stop_at in (n + 2 for n in starts):
        seen: list[int] = []

        def interrupt(epoch, seen=seen, stop_at=stop_at):
            seen.append(epoch.number)
            if len(seen) == stop_at:
                raise KeyboardInterrupt

        folder = tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            ImplicitCFNADE(**settings).fit(
                group_counts(), callbacks=Callbacks(interrupt), checkpoint=folder
            )
        resumed = ImplicitCFNADE(**settings).fit(group_counts(), checkpoint=folder, resume=True)
        np.testing.assert_array_equal(resumed.scores(group_counts()), whole.scores(group_counts()))


def test_a_fit_that_starts_anew_forgets_an_earlier_refit(tmp_path):
    def stop_at(n):
        seen: list[int] = []

        def interrupt(epoch):
            seen.append(epoch.number)
            if len(seen) == n:
                raise KeyboardInterrupt

        return Callbacks(interrupt)

    first = ImplicitCFNADE(**SMALL)
    n_search = len(ImplicitCFNADE(**SMALL).fit(group_counts()).epochs_)
    with pytest.raises(KeyboardInterrupt):
        first.fit(group_counts(), callbacks=stop_at(n_search + 2), checkpoint=tmp_path / "c")
    other = {**SMALL, "max_epochs": 4}
    with pytest.raises(KeyboardInterrupt):
        ImplicitCFNADE(**other).fit(group_counts(), callbacks=stop_at(2), checkpoint=tmp_path / "c")
    resumed = ImplicitCFNADE(**other).fit(group_counts(), checkpoint=tmp_path / "c", resume=True)
    whole = ImplicitCFNADE(**other).fit(group_counts())
    np.testing.assert_array_equal(resumed.scores(group_counts()), whole.scores(group_counts()))


def test_a_large_catalogue_goes_without_the_direct_path(monkeypatch):
    monkeypatch.setattr("cfnade.beyond.readout.DIRECT_UP_TO", 10)
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 1}).fit(group_counts())
    assert "neighbours" not in model.scorer_.network.weights
    assert np.isfinite(model.scores(group_counts())).all()


def test_a_few_hundred_users_are_enough_to_learn_from():
    counts = SimulatedService(ServiceConfig.sized("tiny")).interactions().counts
    known, held_out = hold_out(counts, share=0.1, rng=0)
    relevance = RelativeRating().fit(known).transform(held_out)
    model = ImplicitCFNADE(direct=False, refit=False).fit(known)  # with the settings of large data
    mprs = {
        name: mean_percentage_ranking(scorer, known, held_out, relevance)
        for name, scorer in {"cfnade": model, "popularity": Popularity().fit(known)}.items()
    }
    assert mprs["cfnade"] < 0.6 * mprs["popularity"]  # 8.9 and 20.4 on validation
