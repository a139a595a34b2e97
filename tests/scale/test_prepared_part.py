"""Training on a prepared folder with times: recency is found, and all events are trained on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from cfnade.beyond.readout import NO_READOUT
from cfnade.beyond.recency import half_lives, log_watchers, recent_counts, trend
from cfnade.data.catalogue import Catalogue
from cfnade.data.event_splits import split_by_time
from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.items_table import with_items_table
from cfnade.data.ratings import RelativeRating, likes_alone
from cfnade.errors import ConfigError, DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.cold_start import find_strengths
from cfnade.fit.judge import Judge
from cfnade.fit.plan import ALL_EVENTS, FitPlan
from cfnade.fit.settings import FitSettings, Recipe
from cfnade.fit.training_part import TrainingPart, find_repeats
from cfnade.metrics.evaluate import evaluate
from cfnade.progress import Callbacks
from cfnade.scale.prepare import PrepareConfig, prepare
from cfnade.scale.prepared import Prepared
from cfnade.scale.prepared_part import Finder
from cfnade.scale.shard_training import train_prepared
from cfnade.scale.spark_scoring import score_prepared
from tests.networks import random_numpy_network
from tests.planted import fashion
from tests.scale.processes import SETTINGS, largest_difference, run, settings, torchrun, weights

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]

LONGER = {**SETTINGS, "max_epochs": 6}


def make_trendy(spark, folder):
    """What is popular changes for everybody halfway; prepared with a test part."""
    log = fashion().log
    frame = pd.DataFrame({"user": log.user, "item": log.item, "day": log.time})
    frame.to_parquet(folder / "log.parquet", index=False)
    rows = spark.read.parquet(str(folder / "log.parquet"))
    prepare(rows, folder / "ready", PrepareConfig(shards=2, test_share=0.1))
    return folder


@pytest.fixture(scope="module")
def trendy(spark, tmp_path_factory):
    return make_trendy(spark, tmp_path_factory.mktemp("trendy"))


@pytest.fixture(scope="module")
def model(trendy):
    train_prepared(trendy / "ready", trendy / "model", LONGER)
    return ImplicitCFNADE.load(trendy / "model")


def data_of(folder):
    """Before the test, before validation, and what is held out of these, on one machine."""
    tested = split_by_time(read_interactions(folder / "log.parquet"), share=0.1)
    return tested, split_by_time(tested.train, share=0.1)


def catalogue_of(n_items=40):
    """Two groups of items by name, and a new one of the second."""
    rows = [(item, "early" if item < 20 else "late") for item in range(n_items)]
    return pd.DataFrame([*rows, (90, "late"), (91, "none")], columns=["item", "season"])


def test_the_readout_and_the_strengths_are_those_of_one_machine(trendy):
    _, validated = data_of(trendy)
    train, prepared = validated.train, Prepared.open(trendy / "ready")
    recipe = replace(Recipe(), start="random", readout=NO_READOUT)
    plan = FitPlan.of(train.counts, FitSettings(recipe), train.clock)
    network = random_numpy_network(40, n_neighbours=0)
    features = with_items_table(Catalogue(train.item_ids), catalogue_of()).features
    found = Finder(prepared, features).find(network, plan)

    part = TrainingPart(train, RelativeRating().fit(train.counts), plan)
    judge = Judge(part, validated.new, None)
    readout, mpr = judge.find_readout(network)
    plain = Finder(prepared).find(network, plan)
    assert plain.mpr == pytest.approx(mpr, rel=1e-6) and found.mpr != plain.mpr
    assert plain.n_looks == judge.n_looks and readout.trend_gain > 0
    scorer = part.scorer(network, readout)
    repeats = find_repeats(part, scorer, readout, validated.test)
    assert len(repeats) == 4
    assert plain.readout.repeats == pytest.approx(repeats, rel=0.02)
    assert replace(plain.readout, repeats=()) == replace(readout, repeats=())
    likes = likes_alone(part.histories(readout.history_half_life)[1])
    strengths = find_strengths(scorer, features.first(40), likes, validated.new)
    assert found.strengths == strengths


def test_the_model_reads_times_and_has_the_trend_of_all_events(trendy, model):
    tested, validated = data_of(trendy)
    known, readout = tested.train, model.readout_
    assert model.clock_ == "number" and model.n_looks_ > 10
    assert readout.adds_trend and not readout.direct
    tried = half_lives(validated.train.log)
    assert any(readout.trend_half_life == pytest.approx(each) for each in tried)
    now = log_watchers(known.log, known.n_items, readout.trend_half_life)
    ever = log_watchers(known.log, known.n_items)
    expected = trend(now, ever, readout.trend_gain, readout.popularity_gain)
    np.testing.assert_allclose(model.scorer_.network.weights["trend"], expected, rtol=1e-5)
    counts = recent_counts(known.log, known.counts.shape, readout.history_half_life)
    ratings = RelativeRating().fit(counts)
    assert np.array_equal(model.scorer_.relative_rating.entries()[2], ratings.entries()[2])
    assert (likes_alone(model.histories(known)) != counts).nnz == 0
    ids, _ = model.recommend_for({0: [1, 3], 21: [1, 90.5]}, n=10)
    assert np.mean(ids >= 20) > 0.9
    without = train_prepared(
        trendy / "ready",
        trendy / "plain",
        {**LONGER, "readout__trend_gain": 0.0, "readout__popularity_gain": 0.0},
    )
    assert model.validation_mpr_ < without.validation_mpr - 3
    plain = ImplicitCFNADE.load(trendy / "plain")
    assert "trend" not in plain.scorer_.network.weights and not plain.readout_.adds_trend


def test_the_test_part_is_judged_as_on_one_machine(trendy, model):
    tested, _ = data_of(trendy)
    users = np.flatnonzero(np.diff(tested.new.indptr))
    relevance = RelativeRating().fit(tested.train.counts).transform(tested.new[users])
    histories = model.histories(tested.train)[users]
    judged = evaluate(model, histories, tested.new[users], relevance, n_bootstrap=0)
    saved = json.loads((trendy / "model" / "model.json").read_text())["metrics"]
    assert saved["test_mpr"] == pytest.approx(judged.metrics["mpr"], abs=1e-4)


def test_all_events_are_trained_on_for_as_many_epochs(trendy, tmp_path):
    stages, epochs = [], []
    callbacks = Callbacks(on_stage=stages.append, on_epoch=lambda e: epochs.append(e.number))
    outcome = train_prepared(trendy / "ready", tmp_path / "m", LONGER, callbacks=callbacks)
    assert stages == ["training", ALL_EVENTS]
    assert epochs[6:] == list(range(1, outcome.best_epoch + 1)) and len(epochs) > 6
    # As if it were trained on all events alone, without the time.
    ready = shutil.copytree(trendy / "ready", tmp_path / "ready")
    shutil.rmtree(ready / "before")
    whole = {**LONGER, "max_epochs": outcome.best_epoch}
    train_prepared(ready, tmp_path / "whole", whole)
    expected = weights(tmp_path / "whole")
    found = {name: weights(tmp_path / "m")[name] for name in expected}
    assert largest_difference(found, expected) == 0.0


def test_two_processes_find_the_same_and_resume_in_the_second_training(trendy, model, tmp_path):
    ready, kept = trendy / "ready", tmp_path / "kept"
    command = ("-m", "cfnade", "scale", "train", ready, "--out")
    done = run(torchrun(*command, tmp_path / "two", *settings(max_epochs=6)))
    assert done.returncode == 0, done.stderr
    two = ImplicitCFNADE.load(tmp_path / "two")
    assert replace(two.readout_, repeats=()) == replace(model.readout_, repeats=())
    trained = ("like_weight", "output_weight", "output_bias")
    for name in trained:
        own, other = weights(tmp_path / "two")[name], weights(trendy / "model")[name]
        assert np.abs(np.asarray(own) - np.asarray(other)).max() < 1e-4

    def keep(epoch):
        checkpoint = tmp_path / "one.checkpoint"
        if (checkpoint / ALL_EVENTS).exists() and not kept.exists():
            shutil.copytree(checkpoint, kept)

    train_prepared(ready, tmp_path / "one", LONGER, callbacks=Callbacks(on_epoch=keep))
    kept.rename(tmp_path / "one.checkpoint")
    resumed = train_prepared(ready, tmp_path / "one", LONGER, resume=True)
    assert resumed.resumed_after > 6
    assert largest_difference(weights(tmp_path / "one"), weights(trendy / "model")) < 1e-6


def test_settings_of_recency_may_be_fixed_to_what_was_prepared(trendy, folder, tmp_path):
    def refused(ready, why, **changes):
        with pytest.raises(ConfigError, match=why):
            train_prepared(ready, tmp_path / "m", changes)

    ready = trendy / "ready"
    refused(ready, "must be one that was prepared", readout__history_half_life=3.0)
    refused(ready, "cannot be set on a prepared folder", readout__direct_gain=3.0)
    refused(folder, "it has no times", readout__history_half_life=3.0)


def test_without_anybody_to_judge_all_epochs_are_run_without_recency(spark, tmp_path, caplog):
    user = np.repeat(np.arange(40), 6)
    frame = pd.DataFrame({"user": user, "item": np.arange(240) % 7, "day": user // 36 + 0.5})
    rows = spark.createDataFrame(frame)
    summary = prepare(rows, tmp_path / "ready", PrepareConfig(shards=1))
    assert summary["validation_born_users"] == 4 and summary["n_validation_pairs"] == 0
    assert "nobody has earlier and later events" in caplog.text
    items = pd.DataFrame({"item": range(8), "kind": ["a", "b"] * 4})
    outcome = train_prepared(tmp_path / "ready", tmp_path / "m", SETTINGS, items=items)
    assert outcome.best_epoch == 4 and outcome.validation_mpr is None
    model = ImplicitCFNADE.load(tmp_path / "m")
    assert not model.readout_.adds_trend and model.readout_.history_half_life == 0.0
    assert len(model.recommend_for({0: 1}, n=9)[0]) == 7


def test_a_prepared_folder_is_scored_by_all_events_also_those_of_the_test(
    spark, trendy, model, tmp_path
):
    score_prepared(spark, trendy / "ready", trendy / "model", tmp_path / "out", {"n": 5})
    data = read_interactions(trendy / "log.parquet")
    found = pd.read_parquet(tmp_path / "out").sort_values(["user_id", "rank"])
    ids, _ = model.recommend(np.arange(120), data.counts, N=5)
    assert found["user_id"].tolist() == np.repeat(np.arange(120), 5).tolist()
    assert found["item_id"].tolist() == ids.ravel().tolist()
    ready = shutil.copytree(trendy / "ready", tmp_path / "ready")
    summary = json.loads((ready / "prepared.json").read_text())
    summary["settings"]["event_weights"] = {"view": 1.0, "skip": -1.0}
    (ready / "prepared.json").write_text(json.dumps(summary))
    with pytest.raises(DataError, match="differs for weights below 0; score the original"):
        score_prepared(spark, ready, trendy / "model", tmp_path / "out")


def test_items_that_nobody_has_are_recommended_by_what_is_known_about_them(
    trendy, folder, tmp_path
):
    outcome = train_prepared(trendy / "ready", tmp_path / "m", LONGER, items=catalogue_of())
    found = ImplicitCFNADE.load(tmp_path / "m")
    assert found.catalogue_.ids.tolist() == [*range(40), 90, 91]
    assert found.feature_strengths_ is not None and outcome.test_mpr is not None
    ids, _ = found.recommend_for(dict.fromkeys(range(20, 26), 1), n=42)
    assert ids.tolist().index(90) < 20 and ids.tolist().index(91) > 30
    assert found.add_items(pd.DataFrame({"item": [92], "season": ["late"]}))

    groups = pd.DataFrame({"item": range(31), "group": [f"g{k % 3}" for k in range(31)]})
    longer = {**SETTINGS, "max_epochs": 100, "patience": 100}
    outcome = train_prepared(folder, tmp_path / "plain", longer, items=groups)
    plain = ImplicitCFNADE.load(tmp_path / "plain")

    def place(group):
        """Place of the item of group 0 that nobody has, for somebody who likes a group."""
        ids, _ = plain.recommend_for({k + group: 2 for k in (6, 9, 12, 15, 18)}, n=31)
        return ids.tolist().index(30)

    assert place(0) < min(place(1), place(2))
    assert plain.validation_mpr_ == outcome.validation_mpr
