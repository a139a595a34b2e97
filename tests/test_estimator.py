from __future__ import annotations

import inspect
import json
import logging
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone

from cfnade import (
    ArtifactError,
    ConfigError,
    DataError,
    ImplicitCFNADE,
    Interactions,
    RelativeRating,
)
from cfnade.baselines import Popularity
from cfnade.beyond.readout import NO_READOUT, RECENCY, Readout
from cfnade.data.simulation.simulate import ServiceConfig, SimulatedService
from cfnade.data.splitting import hold_out
from cfnade.fit.settings import Recipe
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.model.inference import NetworkScorer
from tests.networks import (
    SMALL,
    group_counts,
    random_counts,
    random_model,
    random_numpy_network,
)
from tests.planted import fashion
from tests.storage.saved import seal


@pytest.fixture(scope="module")
def model() -> ImplicitCFNADE:
    """Fitted on two taste groups with ids in words: items of even number belong together."""
    item_ids = np.array([f"i{k}" for k in range(20)], dtype=object)
    data = Interactions(group_counts(), np.arange(60), item_ids)
    return ImplicitCFNADE(**{**SMALL, "max_epochs": 80}).fit(data)


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


def test_a_wrong_shape_is_refused_with_what_to_pass(model):
    with pytest.raises(DataError, match=r"\(1, 20\); got \(60, 20\); pass user_items\[userid\]"):
        model.recommend(3, group_counts())


def test_save_and_load_change_nothing(model, tmp_path):
    model.save(tmp_path / "model", data={"name": "groups"})
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.scores(group_counts()), model.scores(group_counts()))
    before, after = model.get_params(), loaded.get_params()
    assert before == after
    assert loaded.recommend_for({"i0": 3})[0].tolist() == model.recommend_for({"i0": 3})[0].tolist()
    for name in ("best_epoch_", "validation_mpr_", "n_looks_", "item_l2_", "readout_"):
        assert getattr(loaded, name) == getattr(model, name), name


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


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", True, None])
def test_a_number_of_items_is_a_whole_number_above_zero(n):
    model = random_model()
    with pytest.raises(ConfigError, match="the number of items must be a whole number"):
        model.recommend_for({"i1": 2}, n=n)


def test_what_was_in_a_folder_is_saved_again(tmp_path):
    model = random_model()
    model.save(tmp_path / "a", data={"name": "plays"}, metrics={"ndcg": 0.3})
    ImplicitCFNADE.load(tmp_path / "a").save(tmp_path / "b")
    first, second = (json.loads((tmp_path / n / "model.json").read_text()) for n in "ab")
    assert second == first and first["metrics"]["ndcg"] == 0.3


@pytest.mark.parametrize(
    "settings",
    [{"recipe": "best"}, {"recipe": [1]}, {"recipe": {"start": "warm"}}, {"direct": "no"},
     {"recipe": {"readout": 3}}, {"recipe": "default", "readout": {"direct_gain": -1}}],
)  # fmt: skip
def test_a_folder_with_settings_that_cannot_be_read_is_refused(tmp_path, settings):
    random_model().save(tmp_path / "model")
    seal(tmp_path / "model", settings=settings)
    with pytest.raises(ArtifactError, match="cannot be read"):
        ImplicitCFNADE.load(tmp_path / "model")


def test_an_array_of_one_item_without_dimensions_is_one_item():
    ids, scores = random_model(item_ids=np.arange(20)).similar_items(np.array(3), N=2)
    assert ids[0] == 3 and ids.shape == scores.shape == (2,)


def test_the_paper_recipe_is_one_word_away():
    paper = ImplicitCFNADE(recipe="paper", max_epochs=30, patience=30).fit(group_counts())
    assert paper.scorer_.network.config.n_hidden == 256
    assert "neighbours" not in paper.scorer_.network.weights  # not in the paper
    assert paper.epochs_[-1].loss < paper.epochs_[0].loss
    assert paper.validation_mpr_ < 50
    with pytest.raises(ConfigError, match="no recipe 'best'; choose from default, thorough, paper"):
        ImplicitCFNADE(recipe="best").fit(group_counts())


def test_the_keywords_are_few_and_documented_in_their_order():
    keywords = list(inspect.signature(ImplicitCFNADE).parameters)
    assert len(keywords) == 16
    described = re.findall(r"^ {8}(\w+): ", ImplicitCFNADE.__doc__.split("Attributes:")[0], re.M)
    assert described == keywords


def test_a_recipe_of_ones_own_and_keywords_beside_it():
    recipe = Recipe(n_layers=2, activation="silu", alpha=7.0, readout=NO_READOUT)
    model = ImplicitCFNADE(**SMALL, recipe=recipe, alpha=3.0).fit(group_counts())
    config = model.scorer_.network.config
    assert (config.n_layers, config.activation, config.alpha, config.n_hidden) == (
        2,
        "silu",
        3.0,
        8,
    )
    assert "neighbours" not in model.scorer_.network.weights
    fixed = Readout(True, 10.0, 3, 2.0)
    model = ImplicitCFNADE(**SMALL, recipe=recipe, readout=fixed).fit(group_counts())
    assert model.readout_ == fixed.or_usual()
    assert model.scorer_.network.config.n_neighbours == 3


def test_nested_names_are_settings_too():
    model = ImplicitCFNADE(n_hidden=8).set_params(
        recipe__n_layers=2, readout__direct=False, alpha=3.0, recipe__trials=2
    )
    assert model.recipe == Recipe(n_layers=2, trials=2)
    assert (model.readout, model.alpha) == (Readout(direct=False), 3.0)
    params = model.get_params()
    assert params["recipe__n_layers"] == 2 and params["readout__direct"] is False
    assert params["recipe__alpha"] == 30.0  # the keyword overrides it
    assert model.get_params(deep=False).keys() < params.keys()
    for wrong in ("recipe__depth", "readout__n_layers", "depth__n_layers"):
        with pytest.raises(ConfigError, match=f"no setting '{wrong}'"):
            model.set_params(**{wrong: 1})


def test_the_plan_says_what_fit_would_do(caplog):
    counts = group_counts()
    plan = ImplicitCFNADE(**SMALL).plan(counts)
    with caplog.at_level(logging.INFO, logger="cfnade.fit.pipeline"):
        fitted = ImplicitCFNADE(**SMALL).fit(counts)
    for line in plan.lines():
        assert line in caplog.text
    assert fitted.item_l2_ == plan.training.item_l2
    with pytest.raises(ConfigError, match="n_hidden"):
        ImplicitCFNADE(n_hidden=0).plan(counts)
    with pytest.raises(DataError, match="sparse"):
        ImplicitCFNADE().plan(counts.toarray())


def test_a_model_can_be_made_of_a_network_and_a_catalogue(model, tmp_path):
    scorer = NetworkScorer(random_numpy_network(), RelativeRating().fit(random_counts()))
    made = ImplicitCFNADE.from_parts(
        scorer,
        model.catalogue_,
        calibrator=model.calibrator_,
        info={
            "training": {"best_epoch": 4, "item_l2": 0.3, "readout": {"direct_gain": 2.0}},
            "metrics": {"validation_mpr": 7.5},
            "data": {"name": "plays"},
        },
        alpha=3.0,
    )
    assert (made.alpha, made.best_epoch_, made.item_l2_) == (3.0, 4, 0.3)
    assert made.readout_ == Readout(direct_gain=2.0).or_usual()
    assert (made.validation_mpr_, made.epochs_, made.partial_fits_) == (7.5, [], [])
    np.testing.assert_array_equal(made.scores(random_counts()), scorer.scores(random_counts()))
    made.save(tmp_path / "made")
    again = ImplicitCFNADE.load(tmp_path / "made")
    np.testing.assert_array_equal(again.scores(random_counts()), scorer.scores(random_counts()))
    assert again.readout_ == made.readout_ and again.calibrator_ == made.calibrator_
    assert json.loads((tmp_path / "made" / "model.json").read_text())["data"]["name"] == "plays"
    bare = ImplicitCFNADE.from_parts(scorer, model.catalogue_)
    assert (bare.best_epoch_, bare.validation_mpr_, bare.calibrator_) == (0, None, None)
    for wrong in (
        {"readout": [1]},
        {"partial_fits": {}},
        {"partial_fits": [1]},
        {"partial_fits": [{"number": "1"}]},
        {"partial_fits": [{"data_fingerprint": [1]}]},
        {"partial_fits": [{"data_fingerprint": {"n_pairs": "many"}}]},
        {"event_weights": {"view": "1"}},
        {"event_weights": {"view": math.inf}},
        {"event_weights": {"view": 1.0}, "target_event": "purchase"},
        {"event_weights": {"view": 0.0}, "target_event": "view"},
    ):
        with pytest.raises(ArtifactError, match="record of its training"):
            ImplicitCFNADE.from_parts(scorer, model.catalogue_, info={"training": wrong})


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("training", {"event_weights": {"view": 10**400}}),
        ("training", {"best_epoch": [3]}),
        ("training", {"n_looks": "9"}),
        ("training", {"item_l2": {"a": 1}}),
        ("training", {"readout": {"repeats": 7}}),
        ("settings", {"random_state": "x"}),
        ("settings", {"n_threads": [2]}),
        ("settings", {"memory_limit": {}}),
        ("settings", {"choose_by": "ndcg@" + "9" * 5000}),
        ("settings", {"recipe": [1]}),
        ("data_fingerprint", {"n_pairs": "many"}),
    ],
)
def test_a_forged_record_or_setting_is_refused_in_one_line(tmp_path, part, change):
    random_model().save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    seal(tmp_path / "model", **{part: {**described[part], **change}})
    with pytest.raises(ArtifactError) as refused:
        ImplicitCFNADE.load(tmp_path / "model")
    assert "\n" not in str(refused.value)


def test_what_is_not_fitted_says_so():
    with pytest.raises(ConfigError, match="not fitted yet"):
        ImplicitCFNADE().recommend_for({"i0": 1})


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(DataError, match="no count is above zero"):
        ImplicitCFNADE().fit(csr_array((3, 4)))


def test_a_single_item_and_a_user_without_items_are_fine():
    counts = csr_array(np.array([[2.0], [0.0], [1.0]]))
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 2}).fit(counts)
    ids, _ = model.recommend(0, csr_array((1, 1)))
    assert ids.tolist() == [0]
    ids, scores = model.recommend(0, counts[[0]])
    assert ids.size == scores.size == 0


def test_what_was_found_is_kept_for_more_training(tmp_path):
    settings = {**SMALL, "max_epochs": 4}
    other = ImplicitCFNADE(**settings, item_l2=0.05).fit(group_counts())
    other.set_params(item_l2=None).save(tmp_path / "model")  # as if it had been found
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert (loaded.item_l2, loaded.item_l2_) == (None, 0.05)
    grown = loaded.partial_fit(group_counts(), n_epochs=2)
    given = other.set_params(item_l2=0.05).partial_fit(group_counts(), n_epochs=2)
    np.testing.assert_array_equal(grown.scores(group_counts()), given.scores(group_counts()))
    otherwise = ImplicitCFNADE.load(tmp_path / "model").set_params(item_l2=1.6)
    otherwise.partial_fit(group_counts(), n_epochs=2)
    assert (otherwise.scores(group_counts()) != given.scores(group_counts())).any()


def test_a_few_hundred_users_are_enough_to_learn_from():
    counts = SimulatedService(ServiceConfig.sized("tiny")).interactions().counts
    known, held_out = hold_out(counts, share=0.1, rng=0)
    relevance = RelativeRating().fit(known).transform(held_out)
    model = ImplicitCFNADE(readout=Readout(direct=False)).fit(known)
    mprs = {
        name: mean_percentage_ranking(scorer, known, held_out, relevance)
        for name, scorer in {"cfnade": model, "popularity": Popularity().fit(known)}.items()
    }
    assert mprs["cfnade"] < 0.6 * mprs["popularity"]  # 8.9 and 20.4 on validation


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_a_model_saved_in_16_bits_recommends_the_same_items(model, dtype, tmp_path):
    model.save(tmp_path / "small", dtype=dtype)
    small = ImplicitCFNADE.load(tmp_path / "small")
    histories = random_counts(n_users=200, seed=3)
    before, after = (m.recommend(np.arange(200), histories, N=5)[0] for m in (model, small))
    same = [set(a) == set(b) for a, b in zip(before, after, strict=True)]
    assert np.mean(same) >= 0.99
    np.testing.assert_allclose(small.scores(histories), model.scores(histories), atol=0.01)
    # all else works as before: dislikes, explanations, similar items, probabilities, more data
    assert len(small.recommend_for({"i0": 2}, disliked=["i1"], n=3)[0]) == 3
    assert len(small.explain({"i0": 2, "i2": 1}, "i4").effects) == 2
    assert small.similar_items("i0")[0][0] == "i0"
    np.testing.assert_allclose(
        small.probability({"i0": 2}), model.probability({"i0": 2}), atol=0.01
    )
    more = small.partial_fit(group_counts(), n_epochs=1)
    more.save(tmp_path / "more", dtype=dtype)
    again = ImplicitCFNADE.load(tmp_path / "more")
    assert again.recommend_for({"i0": 1})[0].tolist() == more.recommend_for({"i0": 1})[0].tolist()


def test_an_unknown_type_of_weights_is_refused_in_one_line(model, tmp_path):
    with pytest.raises(ConfigError, match="dtype must be one of float32, float16, int16; got 'f8'"):
        model.save(tmp_path / "model", dtype="f8")
    assert not (tmp_path / "model").exists()


# Times -------------------------------------------------------------------------------------------


def test_a_model_with_recency_saves_and_loads_with_equal_scores(tmp_path):
    data = fashion()
    given = Readout(history_half_life=9.0, trend_half_life=5.0, trend_gain=1.0, popularity_gain=0.5)
    model = ImplicitCFNADE(**SMALL, readout=given).fit(data)
    model.save(tmp_path / "model")
    loaded = ImplicitCFNADE.load(tmp_path / "model")
    assert loaded.clock_ == model.clock_ == "number" and loaded.readout_ == model.readout_
    assert np.abs(loaded.scorer_.network.weights["trend"]).max() > 0
    histories = loaded.histories(data)
    np.testing.assert_array_equal(histories.toarray(), model.histories(data).toarray())
    np.testing.assert_array_equal(loaded.scores(histories), model.scores(histories))
    dated = {3: [2, 10.0], 25: [1, 90.0]}
    for mine, theirs in zip(model.recommend_for(dated), loaded.recommend_for(dated), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(model.probability(dated), loaded.probability(dated))


@pytest.mark.parametrize("forged", ["sundial", 7, ["seconds"]])
def test_a_clock_that_does_not_exist_is_refused(tmp_path, forged):
    model = random_model()
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    seal(tmp_path / "model", training={**described["training"], "clock": forged})
    with pytest.raises(ArtifactError, match="the record of its training cannot be read"):
        ImplicitCFNADE.load(tmp_path / "model")


def test_histories_are_plain_counts_without_times_or_recency(caplog):
    data = fashion()
    plain = (
        ImplicitCFNADE(**SMALL)
        .set_params(**{f"readout__{name}": 0.0 for name in RECENCY})
        .fit(data)
    )
    np.testing.assert_array_equal(plain.histories(data).toarray(), data.counts.toarray())
    assert not caplog.text
    dated = ImplicitCFNADE(**SMALL, readout=Readout(history_half_life=9.0)).fit(data)
    undated = replace(data, log=None)
    np.testing.assert_array_equal(dated.histories(undated).toarray(), data.counts.toarray())
    assert "the data have no times" in caplog.text
    stranger = replace(data, item_ids=np.array([*range(39), 99]))
    with pytest.raises(DataError, match="item 99 is not in this model"):
        dated.histories(stranger)
    assert dated.histories(stranger, unknown="ignore")[:, [39]].nnz == 0
