"""A fit on events with times: what is recent is found to matter, and all events are trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfnade import ImplicitCFNADE
from cfnade.beyond.readout import RECENCY, Readout
from cfnade.beyond.recency import log_watchers, recent_counts, trend
from cfnade.data.event_splits import split_by_time, split_last
from cfnade.data.interactions import Interactions
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import without_overlap
from cfnade.fit import pipeline as module
from cfnade.fit.judge import Judge
from cfnade.fit.pipeline import fit_network, hold_out_validation
from cfnade.fit.plan import ALL_EVENTS, FitPlan
from cfnade.fit.settings import FitSettings, Recipe
from cfnade.fit.training_part import TrainingPart
from cfnade.metrics.evaluate import evaluate
from cfnade.progress import Callbacks
from tests.compare.logs import random_log
from tests.networks import SMALL, group_counts, random_numpy_network
from tests.planted import changing_tastes, fashion

NO_RECENCY = dict.fromkeys((f"readout__{name}" for name in RECENCY), 0.0)


def fitted(data: Interactions, **settings) -> ImplicitCFNADE:
    return ImplicitCFNADE(**SMALL).set_params(**settings).fit(data)


@pytest.fixture(scope="module")
def trendy() -> ImplicitCFNADE:
    return fitted(fashion())


@pytest.fixture(scope="module")
def changed() -> ImplicitCFNADE:
    return fitted(changing_tastes(), validation_by="last")


# What is found ---------------------------------------------------------------------------------


def test_what_is_in_fashion_now_is_found_and_recommended(trendy):
    assert trendy.readout_.adds_trend and trendy.readout_.trend_half_life > 0
    added = trendy.scorer_.network.weights["trend"]
    assert np.median(added[20:]) > added[:20].max() > added[:20].min()
    ids, _ = trendy.recommend_for({0: 1, 21: 1}, n=15)
    assert np.mean(ids >= 20) > 0.9
    without = fitted(fashion(), **NO_RECENCY)
    assert trendy.validation_mpr_ < without.validation_mpr_ - 5
    assert "trend" not in without.scorer_.network.weights


def test_that_recent_events_of_a_history_say_more_is_found(changed):
    assert changed.readout_.history_half_life > 0
    without = fitted(changing_tastes(), validation_by="last", readout__history_half_life=0.0)
    assert changed.validation_mpr_ < without.validation_mpr_

    def preference(zero: float | None, one: float | None) -> float:
        """How much items of group 1 are above those of group 0, if these were seen then."""
        history = {item: [1, zero if item % 4 == 0 else one] for item in (0, 4, 8, 1, 5, 9)}
        scores = changed.scores(changed.answers_.history(history))[0, 12:]
        return scores[1::4].mean() - scores[::4].mean()

    assert preference(0, 30) > preference(30, 30) > preference(30, 0)
    assert preference(30, 30) == preference(None, None) == preference(None, 30)


def test_without_times_there_is_no_recency_and_nothing_is_trained_twice():
    stages: list[str] = []
    found = fit_network(
        group_counts(), FitSettings(Recipe(n_hidden=4, max_epochs=2)),
        callbacks=Callbacks(on_stage=stages.append),
    )  # fmt: skip
    assert {getattr(found.readout, name) for name in RECENCY} == {0.0}
    assert ALL_EVENTS not in stages and found.plan.clock is None


def test_recency_that_is_given_is_not_searched():
    given = Readout(direct_gain=5.0, history_half_life=3.0, trend_half_life=9.0, trend_gain=0.5,
                    popularity_gain=0.0, repeats=())  # fmt: skip
    model = fitted(fashion(), readout=given)
    assert replace(model.readout_, direct_l2=None, direct_neighbours=None) == given
    log = fashion().log
    now, ever = log_watchers(log, 40, 9.0), log_watchers(log, 40)
    expected = trend(now, ever, 0.5, 0.0)
    np.testing.assert_allclose(model.scorer_.network.weights["trend"], expected, rtol=1e-6)


def test_given_distributions_are_of_plain_counts_so_histories_do_not_decay():
    given = RelativeRating().fit(changing_tastes().counts)
    model = fitted(changing_tastes(), relative_rating=given, validation_by="last")
    assert model.readout_.history_half_life == 0.0
    assert model.scorer_.relative_rating is given


# How it is held out and judged -----------------------------------------------------------------


@pytest.mark.parametrize("by", ["time", "last"])
def test_validation_is_what_comes_later_and_nothing_later_is_trained_on(by):
    data, settings = fashion(), FitSettings(validation_by=by)
    plan = FitPlan.of(data.counts, settings, data.clock)
    train, held_out = hold_out_validation(data, settings, plan)
    split = (split_by_time if by == "time" else split_last)(data, share=settings.validation_share)
    np.testing.assert_array_equal(train.counts.toarray(), split.train.counts.toarray())
    np.testing.assert_array_equal(held_out.toarray(), split.test.toarray())
    assert train.log.n_entries < data.log.n_entries


def test_where_nothing_comes_later_validation_falls_back_to_pairs(caplog):
    data = random_log(n_users=30)
    same = replace(data, log=replace(data.log, time=np.zeros(data.log.n_entries)))
    plan = FitPlan.of(same.counts, FitSettings(), same.clock)
    _, held_out = hold_out_validation(same, FitSettings(), plan)
    assert held_out is not None and held_out.nnz
    assert "validation uses random pairs, not the latest events: " in caplog.text


def test_a_judge_finds_what_evaluating_the_scorer_with_that_readout_does():
    data = random_log()
    settings = FitSettings(Recipe(n_hidden=4))
    plan = FitPlan.of(data.counts, settings, data.clock)
    train, later = hold_out_validation(data, settings, plan)
    held_out = without_overlap(train.counts, later)
    part = TrainingPart(train, RelativeRating().fit(train.counts), plan)
    judge, network = Judge(part, held_out, None), random_numpy_network(n_neighbours=0)
    readout, mpr = judge.find_readout(network)
    scorer = part.scorer(network, readout)
    _, histories = part.histories(readout.history_half_life)
    judged = evaluate(
        scorer, histories, held_out, part.ratings.transform(held_out), n_bootstrap=0
    ).metrics
    # The direct path uses likes alone, so it is the same whatever the half-life.
    assert mpr == pytest.approx(judged["mpr"])
    expected = RelativeRating().fit(
        recent_counts(train.log, train.counts.shape, readout.history_half_life)
    )
    np.testing.assert_array_equal(
        scorer.relative_rating.transform(histories).toarray(),
        expected.transform(histories).toarray(),
    )


# The final fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "tolerance"), [("random", 0.0), ("factors", 0.05)])
def test_the_final_network_is_trained_on_all_events(start, tolerance):
    found = fitted(fashion(), recipe__start=start)
    others = {"readout": found.readout_, "recipe__max_epochs": found.best_epoch_}
    alone = fitted(fashion(), recipe__start=start, validation_share=0.0, **others)
    assert alone.validation_mpr_ is None and found.validation_mpr_ is not None
    for name, weight in found.scorer_.network.weights.items():  # factors begin with earlier ones
        expected = alone.scorer_.network.weights[name]
        np.testing.assert_allclose(weight, expected, 0, tolerance, err_msg=name)


def test_the_network_that_finds_the_readout_is_trained_for_a_short_time():
    lengths: list[int] = []
    callbacks = Callbacks(on_stages=lambda stages, n_epochs: lengths.append(n_epochs))
    recipe = Recipe(n_hidden=4, max_epochs=8)
    fit_network(fashion(), FitSettings(recipe), callbacks=callbacks)
    assert lengths == [8, 4, 8]  # as planned, without the latest events, with them
    lengths.clear()
    fit_network(fashion(), FitSettings(replace(recipe, start="random")), callbacks=callbacks)
    assert lengths == [8, 8, 8]  # with early stopping nothing says how short it may be
    lengths.clear()
    fit_network(fashion(), FitSettings(recipe, validation_by="pairs"), callbacks=callbacks)
    assert lengths == [8, 8]  # this network is kept


def test_a_network_that_is_judged_on_given_pairs_is_trained_for_all_epochs():
    data = fashion()
    split = split_by_time(data, share=0.2)
    found = fit_network(
        split.train, FitSettings(Recipe(n_hidden=4, max_epochs=8)), validation=split.test
    )
    assert found.best_epoch == 8 and len(found.epochs) == 8


@pytest.mark.parametrize("n_threads", [1, 2])  # one after the other, and side by side
@pytest.mark.parametrize("stopped_at", ["readout", "calibration", ALL_EVENTS])
def test_an_interrupted_fit_with_two_trainings_is_resumed(
    tmp_path, monkeypatch, n_threads, stopped_at
):
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
    data = fashion()
    settings = FitSettings(Recipe(n_hidden=4, max_epochs=3), n_threads=n_threads)
    stages: list[str] = []
    whole = fit_network(data, settings, callbacks=Callbacks(on_stage=stages.append))
    plan = FitPlan.of(data.counts, settings, data.clock)
    assert stages == [name for name in plan.stages if name in stages]
    assert stages[-1] == ALL_EVENTS

    def stop(name: str) -> None:
        if name == stopped_at:
            raise KeyboardInterrupt

    place = {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        fit_network(data, settings, callbacks=Callbacks(on_stage=stop), **place)
    epochs: list[int] = []
    again = fit_network(
        data, settings, callbacks=Callbacks(lambda e: epochs.append(e.number)), resume=True, **place
    )
    assert epochs in ([], [1, 2, 3], [2, 3], [3])  # the first training was done
    for name, weight in again.scorer.network.weights.items():
        np.testing.assert_array_equal(weight, whole.scorer.network.weights[name], err_msg=name)


def test_training_side_by_side_changes_nothing():
    data = fashion()
    found = [
        fit_network(data, FitSettings(Recipe(n_hidden=4, max_epochs=3), n_threads=n))
        for n in (1, 2)
    ]
    assert found[0].readout == found[1].readout and found[0].calibrator == found[1].calibrator
    assert [e.loss for e in found[0].epochs] == [e.loss for e in found[1].epochs]
    for name, weight in found[0].scorer.network.weights.items():
        np.testing.assert_array_equal(weight, found[1].scorer.network.weights[name], err_msg=name)


def test_trainings_are_side_by_side_where_memory_allows_both():
    data = fashion()
    plan = FitPlan.of(data.counts, FitSettings(), data.clock)
    assert plan.trains_beside
    tight = FitSettings(memory_limit=str(plan.memory.total - 1))
    alone = FitPlan.of(data.counts, tight, data.clock)
    assert not alone.trains_beside and 2 * alone.memory.weights == plan.memory.weights
    assert not FitPlan.of(data.counts, FitSettings(), None).trains_beside
    assert not FitPlan.of(data.counts, FitSettings(Recipe(trials=4)), data.clock).trains_beside


def test_probabilities_are_those_of_what_is_new_in_the_last_tenth(trendy):
    """On data of the same kind, the probabilities add up to the new items of such a period."""
    data = fashion(seed=1)
    split = split_by_time(data, share=0.1)
    histories = trendy.histories(split.train)
    rows = [histories[[user]] for user in range(data.n_users)]
    expected = sum(np.nansum(trendy.probability(row)) for row in rows)
    assert expected == pytest.approx(split.new.nnz, rel=0.15)
