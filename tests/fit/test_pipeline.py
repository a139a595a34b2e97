"""A fit step by step: hold out, start, train, judge, read out, take in all pairs, resume."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cfnade import (
    ArtifactError,
    ConfigError,
    DataError,
    ImplicitCFNADE,
    RelativeRating,
    TrainingError,
)
from cfnade.beyond.readout import GAINS, NO_READOUT, USUAL, Readout
from cfnade.data.interactions import Interactions
from cfnade.data.splitting import hold_out
from cfnade.fit import pipeline as module
from cfnade.fit.pipeline import Fitted, fit_network, hold_out_validation
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings, Recipe
from cfnade.metrics.evaluate import evaluate, mean_percentage_ranking
from cfnade.progress import Callbacks
from tests.networks import SMALL, group_counts, random_counts

QUICK = Recipe(n_hidden=8, max_epochs=2, readout=NO_READOUT)


@pytest.fixture
def often(monkeypatch):
    """Keep a checkpoint after every epoch, however short."""
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)


def scores_of(counts: csr_array, recipe: Recipe) -> np.ndarray:
    return fit_network(counts, FitSettings(recipe)).scorer.scores(counts)


# The start -------------------------------------------------------------------------------------


def test_a_fit_starts_from_factors_or_at_random():
    counts, recipe = random_counts(60, 20), replace(QUICK, readout=Readout(direct_gain=2.0))
    usual, warm, random = (
        scores_of(counts, replace(recipe, start=start)) for start in (None, "factors", "random")
    )
    np.testing.assert_array_equal(usual, warm)
    assert np.abs(usual - random).max() > 0.01


@pytest.mark.parametrize(
    "counts",
    [np.ones((1, 1)), np.ones((10, 1)), np.ones((1, 5)), np.ones((10, 4))],
    ids=["one pair", "one item", "one user", "all alike"],
)
def test_where_factors_say_nothing_the_start_is_random(counts):
    recipe = Recipe(n_hidden=8, max_epochs=2, schedule="constant")
    usual, random = (
        scores_of(csr_array(counts), replace(recipe, start=start)) for start in (None, "random")
    )
    np.testing.assert_array_equal(usual, random)
    assert np.abs(usual).max() < 20.0


# Validation and readout ------------------------------------------------------------------------


def test_epochs_are_judged_with_the_usual_direct_path():
    counts = random_counts(80, 20)

    def looks(readout: Readout) -> list[float | None]:
        recipe = Recipe(n_hidden=8, max_epochs=4, validate_every=2, readout=readout)
        fitted = fit_network(counts, FitSettings(recipe))
        return [epoch.validation_mpr for epoch in fitted.epochs]

    strong = Readout(direct_gain=300.0, direct_l2=1.0, direct_neighbours=5)
    assert looks(strong) != looks(NO_READOUT)
    usual = Readout(direct_l2=USUAL.direct_l2, direct_gain=USUAL.direct_gain)
    assert looks(Readout()) == looks(usual)
    assert [mpr is None for mpr in looks(Readout())] == [True, False, True, False]


@pytest.mark.parametrize("by", [None, "recall@3"])
def test_the_readout_is_the_best_on_validation(by):
    counts = random_counts(200, 20, seed=1)
    train, held_out = hold_out(counts, share=0.2, rng=0)

    def fit(gain: float | None) -> tuple[Fitted, float]:
        recipe = Recipe(n_hidden=4, max_epochs=4, readout=Readout(direct_gain=gain))
        fitted = fit_network(train, FitSettings(recipe, choose_by=by), validation=held_out)
        relevance = fitted.scorer.relative_rating.transform(held_out)
        names = ("mpr", "ndcg@100", "recall@3")
        judged = evaluate(
            fitted.scorer, train, held_out, relevance, metrics=names, n_bootstrap=0
        ).metrics
        assert judged["mpr"] == pytest.approx(fitted.validation_mpr)
        return fitted, -judged[by] if by else judged["mpr"] / judged["ndcg@100"]

    cost = fit(None)[1]
    costs = [fit(gain)[1] for gain in GAINS]
    assert cost == min(costs) < max(costs)


def test_the_readout_that_was_found_makes_the_same_model_again():
    counts = random_counts(60, 20, seed=1)
    recipe = Recipe(n_hidden=4, max_epochs=4)
    found = fit_network(counts, FitSettings(recipe))
    assert None not in vars(found.readout).values()
    again = fit_network(counts, FitSettings(replace(recipe, readout=found.readout)))
    assert again.readout == found.readout
    np.testing.assert_array_equal(found.scorer.scores(counts), again.scorer.scores(counts))


def test_without_validation_the_readout_is_the_usual_one():
    recipe = replace(QUICK, readout=Readout(direct_gain=2.0))
    fitted = fit_network(group_counts(), FitSettings(recipe, validation_share=0.0))
    n_neighbours = fitted.plan.readout.direct_neighbours
    assert fitted.readout == replace(USUAL, direct_gain=2.0, direct_neighbours=n_neighbours)
    assert (fitted.validation_mpr, fitted.calibrator, fitted.best_epoch) == (None, None, 2)
    assert fitted.n_looks == 0


def test_every_look_at_validation_is_counted():
    def n_looks(**recipe) -> int:
        return fit_network(group_counts(), FitSettings(replace(QUICK, **recipe))).n_looks

    fixed = n_looks()  # the last epoch and the readout
    assert n_looks(validate_every=1) == fixed + 1
    assert n_looks(trials=3) >= fixed + 2
    assert n_looks(readout=Readout()) > fixed + 2


def test_validation_must_fit_the_counts():
    with pytest.raises(DataError, match=r"of the counts, \(60, 20\); got \(3, 20\)"):
        fit_network(group_counts(), FitSettings(QUICK), validation=csr_array((3, 20)))
    with pytest.raises(DataError, match="nothing to learn from"):
        fit_network(csr_array((3, 4)), FitSettings(QUICK))


def test_distributions_that_are_given_are_used():
    given = RelativeRating().fit(random_counts(seed=9))
    fitted = fit_network(random_counts(), FitSettings(QUICK), relative_rating=given)
    assert fitted.scorer.relative_rating is given


def test_too_little_for_a_validation_part_trains_all_epochs(caplog):
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 3}).fit(csr_array(np.eye(4)))
    assert "no user has enough items" in caplog.text
    assert (model.best_epoch_, model.validation_mpr_) == (3, None)


def test_held_out_pairs_are_in_the_distributions_and_the_direct_path_but_not_trained_on():
    counts, settings = group_counts(), FitSettings(replace(QUICK, readout=Readout()))
    train, held_out = held_out_of(counts, settings)
    whole, part = fit_network(counts, settings), fit_network(train, settings, validation=held_out)
    for fitted, known in ((whole, counts), (part, train)):
        expected = RelativeRating().fit(known).transform(counts).toarray()
        ratings = fitted.scorer.relative_rating.transform(counts).toarray()
        np.testing.assert_array_equal(ratings, expected)
    weights, in_part = whole.scorer.network.weights, part.scorer.network.weights
    for name in ("like_weight", "dislike_weight", "hidden_bias", "output_weight"):
        np.testing.assert_array_equal(weights[name], in_part[name])
    assert not np.array_equal(weights["neighbour_weight"], in_part["neighbour_weight"])
    for name in ("readout", "calibrator", "validation_mpr", "best_epoch", "n_looks"):
        assert getattr(whole, name) == getattr(part, name) is not None, name


def stages_of(
    settings: FitSettings, counts: csr_array | None = None, validation: csr_array | None = None
) -> list[str]:
    counts = group_counts() if counts is None else counts
    begun: list[str] = []
    planned: list[tuple[dict[str, float], int]] = []
    callbacks = Callbacks(on_stage=begun.append, on_stages=lambda *plan: planned.append(plan))
    fit_network(counts, settings, callbacks=callbacks, validation=validation)
    plan = FitPlan.of(counts, settings)
    assert planned[0] == (plan.stages, plan.training.max_epochs)
    assert all(stages == {} and n_epochs > 0 for stages, n_epochs in planned[1:])  # trainings
    assert len(planned) == 1 + plan.trials
    assert begun == [name for name in plan.stages if name in begun]  # in their order
    return begun


def test_the_stages_of_a_fit_are_announced():
    train, held_out = hold_out(group_counts(), share=0.1, rng=0)
    before, after = ["factors", "direct path"], ["readout", "calibration"]
    last = "direct path of all pairs"
    assert stages_of(FitSettings(QUICK)) == [*before, "training", *after, last]
    three = [*before, "training", "training 2", "training 3", *after, last]
    assert stages_of(FitSettings(replace(QUICK, trials=3))) == three
    random = FitSettings(replace(QUICK, start="random"))
    assert stages_of(random) == ["direct path", "training", *after, last]
    assert stages_of(FitSettings(QUICK, validation_share=0.0)) == ["factors", "training", last]
    given = stages_of(FitSettings(QUICK), train, held_out)
    assert given == [*before, "training", *after]  # nothing was held out


def test_a_large_catalogue_goes_without_the_direct_path(monkeypatch, caplog):
    monkeypatch.setattr("cfnade.fit.plan.DIRECT_MAX_ITEMS", 10)
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 1}).fit(group_counts())
    assert "neighbours" not in model.scorer_.network.weights and not model.readout_.direct
    assert "no direct item-item path" in caplog.text
    assert np.isfinite(model.scores(group_counts())).all()


# Several trainings -----------------------------------------------------------------------------


def test_of_several_trainings_the_best_on_validation_is_taken():
    counts, recipe = group_counts(), replace(QUICK, item_l2=40.0, trials=6)
    settings = FitSettings(recipe, choose_by="mpr")
    costs: list[list[float]] = []

    def on_epoch(epoch) -> None:
        if epoch.number == 1:
            costs.append([])
        if epoch.cost is not None:
            costs[-1].append(epoch.cost)

    fitted = fit_network(counts, settings, callbacks=Callbacks(on_epoch))
    first = fit_network(counts, replace(settings, recipe=replace(recipe, trials=1)))
    assert 3 <= len(costs) <= 6 and costs[0] == [first.epochs[-1].cost]
    assert fitted.epochs[-1].cost == min(min(looks) for looks in costs) < costs[0][0]
    best = fitted.plan.training
    assert (best.item_l2, best.max_epochs) != (40.0, 2)
    again = replace(recipe, trials=1, item_l2=best.item_l2, max_epochs=best.max_epochs)
    again = replace(again, alpha=fitted.plan.model.alpha)
    once = fit_network(counts, replace(settings, recipe=again))
    np.testing.assert_array_equal(fitted.scorer.scores(counts), once.scorer.scores(counts))
    assert (fitted.best_epoch, fitted.readout) == (once.best_epoch, once.readout)
    model = ImplicitCFNADE(recipe=recipe, choose_by="mpr").fit(counts)
    assert model.item_l2_ == best.item_l2


def test_there_are_no_more_trainings_than_trials_and_one_without_validation():
    for trials, share, expected in ((2, 0.1, 2), (2, 0.0, 1)):
        begun: list[str] = []
        settings = FitSettings(replace(QUICK, trials=trials), validation_share=share)
        fit_network(group_counts(), settings, callbacks=Callbacks(on_stage=begun.append))
        assert len([name for name in begun if name.startswith("training")]) == expected


def test_a_training_that_diverges_counts_as_the_worst(tmp_path, often, caplog):
    """Nor may it leave a checkpoint that a later training takes for its own."""
    counts = group_counts()
    recipe = replace(QUICK, trials=3, optimizer="sgd", learning_rate=1e20, item_l2=1.0)
    with pytest.raises(TrainingError, match="none of 3 settings could be fitted"):
        fit_network(counts, FitSettings(recipe), checkpoint=tmp_path / "c")
    assert "a trial failed and counts as the worst" in caplog.text


# Precision and threads -------------------------------------------------------------------------


def test_a_fit_in_bfloat16_ranks_as_well_as_one_in_float32():
    known, held_out = hold_out(group_counts(), share=0.2, rng=0)
    scores, mprs = {}, {}
    for precision in ("float32", "bfloat16"):
        recipe = Recipe(n_hidden=8, precision=precision, readout=NO_READOUT)
        scorer = fit_network(known, FitSettings(recipe)).scorer
        relevance = scorer.relative_rating.transform(held_out)
        mprs[precision] = mean_percentage_ranking(scorer, known, held_out, relevance)
        scores[precision] = scorer.scores(known)
        assert all(w.dtype == np.float32 for w in scorer.network.weights.values())
    assert mprs["bfloat16"] == pytest.approx(mprs["float32"], abs=1.0)
    assert max(mprs.values()) < 30  # chance is 50
    assert 0 < np.abs(scores["bfloat16"] - scores["float32"]).max() < 1.0


@pytest.mark.parametrize(("logits", "expected"), [(10**6, 1), (1, 2)])
def test_small_updates_are_made_on_one_thread(monkeypatch, logits, expected):
    monkeypatch.setattr("cfnade.fit.plan.SEVERAL_THREADS_LOGITS", logits)
    before, seen = torch.get_num_threads(), set()
    callbacks = Callbacks(on_step=lambda step, n_steps: seen.add(torch.get_num_threads()))
    fit_network(group_counts(), FitSettings(QUICK, n_threads=2), callbacks=callbacks)
    assert seen == {expected} and torch.get_num_threads() == before


# Another metric --------------------------------------------------------------------------------


def test_epochs_and_readout_can_be_chosen_by_another_metric():
    train, held_out = hold_out(group_counts(), share=0.3, rng=0)
    recipe = Recipe(schedule="constant", validate_every=1)
    settings = {**SMALL, "max_epochs": 6, "patience": 6, "recipe": recipe}

    def recall_of(model: ImplicitCFNADE) -> float:
        relevance = model.scorer_.relative_rating.transform(held_out)
        judged = evaluate(model, train, held_out, relevance, metrics=["recall@3"], n_bootstrap=0)
        return judged.metrics["recall@3"]

    epochs = []
    for n_epochs in range(1, settings["max_epochs"] + 1):
        fixed = {**settings, "max_epochs": n_epochs, "validation_share": 0.0}
        epochs.append(recall_of(ImplicitCFNADE(**fixed, readout=NO_READOUT).fit(train)))
    settings |= {"choose_by": "recall@3", "readout": Readout(direct=False)}
    chosen = ImplicitCFNADE(**settings).fit(train, validation=held_out)
    assert chosen.best_epoch_ == 1 + epochs.index(max(epochs))
    assert recall_of(chosen) == max(epochs)
    assert [e.cost for e in chosen.epochs_] == [1 / recall for recall in epochs]
    for wrong, why in [("luck", "no metric 'luck'"), (5, "named by text"), (True, "named by text")]:
        with pytest.raises(ConfigError, match=why):
            ImplicitCFNADE(choose_by=wrong).fit(train)


# Checkpoints -----------------------------------------------------------------------------------


def stop_at(stage: str, epoch: int = 0) -> Callbacks:
    """Interrupt a fit when a stage begins, or after an epoch of it."""
    begun: list[str] = []

    def on_stage(name: str) -> None:
        begun.append(name)
        if name == stage and epoch == 0:
            raise KeyboardInterrupt

    def on_epoch(seen) -> None:
        if begun[-1] == stage and seen.number == epoch:
            raise KeyboardInterrupt

    return Callbacks(on_epoch=on_epoch, on_stage=on_stage)


RESUMED = Recipe(n_hidden=8, max_epochs=4, item_l2=0.5, trials=3)


@pytest.mark.parametrize(
    ("stage", "epoch"),
    [("training", 2), ("training", 4), ("training 2", 0), ("training 2", 1), ("training 3", 1),
     ("readout", 0), ("calibration", 0), ("direct path of all pairs", 0)],
)  # fmt: skip
def test_an_interrupted_fit_can_be_resumed_in_any_stage(tmp_path, often, stage, epoch):
    counts, settings = group_counts(), FitSettings(RESUMED)
    all_epochs: list[int] = []
    whole = fit_network(
        counts, settings, callbacks=Callbacks(lambda e: all_epochs.append(e.number))
    )
    with pytest.raises(KeyboardInterrupt):
        fit_network(counts, settings, callbacks=stop_at(stage, epoch), checkpoint=tmp_path / "c")
    epochs: list[int] = []
    callbacks = Callbacks(lambda seen: epochs.append(seen.number))
    resumed = fit_network(
        counts, settings, callbacks=callbacks, checkpoint=tmp_path / "c", resume=True
    )
    np.testing.assert_array_equal(resumed.scorer.scores(counts), whole.scorer.scores(counts))
    for name in ("plan", "readout", "calibrator", "validation_mpr", "best_epoch"):
        assert getattr(resumed, name) == getattr(whole, name), name
    assert len(epochs) < len(all_epochs)  # something was kept


@pytest.mark.parametrize("stage", ["direct path", "factors", "training"])
def test_before_the_first_epoch_a_resumed_fit_starts_from_the_beginning(
    tmp_path, often, stage, caplog
):
    counts, settings, place = group_counts(), FitSettings(RESUMED), {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        fit_network(counts, settings, callbacks=stop_at(stage), **place)
    assert not caplog.messages
    resumed = fit_network(counts, settings, resume=True, **place)
    expected = f"there is no checkpoint in {tmp_path / 'c'}: starting from the beginning"
    assert caplog.messages == [expected]
    whole = fit_network(counts, settings)
    np.testing.assert_array_equal(resumed.scorer.scores(counts), whole.scorer.scores(counts))


def test_a_training_too_short_for_a_checkpoint_is_made_again(tmp_path, often):
    counts, settings = group_counts(), FitSettings(RESUMED)
    with pytest.raises(KeyboardInterrupt):
        fit_network(counts, settings, callbacks=stop_at("training 2", 2), checkpoint=tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / "training")
    resumed = fit_network(counts, settings, checkpoint=tmp_path / "c", resume=True)
    whole = fit_network(counts, settings)
    np.testing.assert_array_equal(resumed.scorer.scores(counts), whole.scorer.scores(counts))


def test_a_short_fit_writes_no_checkpoint(tmp_path):
    fit_network(group_counts(), FitSettings(QUICK), checkpoint=tmp_path / "c")
    assert module.CHECKPOINT_SECONDS > 1 and not (tmp_path / "c").exists()


def test_a_fit_that_starts_anew_forgets_an_earlier_one(tmp_path, often):
    counts, other = group_counts(), FitSettings(replace(RESUMED, max_epochs=3))
    place = {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        fit_network(counts, FitSettings(RESUMED), callbacks=stop_at("training 3", 1), **place)
    with pytest.raises(KeyboardInterrupt):
        fit_network(counts, other, callbacks=stop_at("training", 2), **place)
    resumed = fit_network(counts, other, resume=True, **place)
    whole = fit_network(counts, other)
    np.testing.assert_array_equal(resumed.scorer.scores(counts), whole.scorer.scores(counts))


def test_a_fit_is_not_resumed_with_another_start_readout_or_metric(tmp_path, often):
    counts = random_counts(60, 20)
    recipe = replace(QUICK, schedule="constant", readout=Readout(direct_gain=2.0))
    fit_network(counts, FitSettings(recipe), checkpoint=tmp_path)
    longer = replace(recipe, max_epochs=4)
    for settings, reason in (
        (FitSettings(replace(longer, start="random")), "other start"),
        (FitSettings(replace(longer, readout=Readout(direct_gain=5.0))), "other readout"),
        (FitSettings(longer, choose_by="recall@5"), "other choose_by"),
        (FitSettings(longer, validation_share=0.3), "other data"),
    ):
        with pytest.raises(ArtifactError, match=reason):
            fit_network(counts, settings, checkpoint=tmp_path, resume=True)
    fit_network(counts, FitSettings(longer), checkpoint=tmp_path, resume=True)


def test_nothing_is_resumed_without_a_place():
    with pytest.raises(ArtifactError, match="resuming needs the folder"):
        fit_network(group_counts(), FitSettings(QUICK), resume=True)


# Holding out and judging -----------------------------------------------------------------------


def held_out_of(counts: csr_array, settings: FitSettings) -> tuple[csr_array, csr_array | None]:
    plan = FitPlan.of(counts, settings)
    train, held_out = hold_out_validation(Interactions.from_matrix(counts), settings, plan)
    return train.counts, held_out


def test_validation_by_events_predicts_what_is_new_to_a_user():
    counts = group_counts().toarray()
    counts[:, 0] = 30.0  # everybody's daily bread: never new
    bread = {}
    counts[:, 1:4] = np.minimum(counts[:, 1:4], 1.0)  # what is new has a single event
    for by in ("pairs", "events", "sessions"):
        train, held_out = held_out_of(csr_array(counts), FitSettings(validation_by=by))
        assert held_out is not None
        np.testing.assert_array_equal((train + held_out).toarray(), counts)
        bread[by] = held_out[:, [0]].nnz
    assert bread["pairs"] > bread["events"] == bread["sessions"] == 0


def test_some_users_are_enough_to_hold_out_from(monkeypatch):
    counts, settings = group_counts(), FitSettings()
    plan = FitPlan.of(counts, settings)
    n_users = plan.validation_users
    assert n_users == 60  # few: all of them
    monkeypatch.setattr("cfnade.fit.plan.LEAST_VALIDATION_USERS", 7)
    monkeypatch.setattr("cfnade.fit.plan.VALIDATION_USER_SHARE", 0.01)
    _, held_out = held_out_of(counts, settings)
    assert (np.diff(held_out.indptr) > 0).sum() == 7


def test_nothing_is_held_out_where_it_is_not_asked_for_or_there_is_too_little(caplog):
    counts = group_counts()
    train, held_out = held_out_of(counts, FitSettings(validation_share=0.0))
    assert held_out is None and (train != counts).nnz == 0 and not caplog.text
    assert held_out_of(csr_array(np.eye(3)), FitSettings())[1] is None
    assert "no user has enough items for validation" in caplog.text
    caplog.clear()
    repeated = csr_array(2.0 * np.ones((9, 9)))
    assert held_out_of(repeated, FitSettings(validation_by="sessions"))[1] is None
    assert "items with a single event" in caplog.text


def test_the_split_follows_from_the_seed():
    held_out = [
        held_out_of(group_counts(), FitSettings(seed=seed))[1].toarray() for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(held_out[0], held_out[1])
    assert (held_out[0] != held_out[2]).any()
