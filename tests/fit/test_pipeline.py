"""A fit step by step: hold out, start, train, judge, read out, train again, resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ArtifactError, ConfigError, DataError, ImplicitCFNADE, RelativeRating
from cfnade.beyond.readout import GRID, NO_READOUT, Readout
from cfnade.data.splitting import hold_out
from cfnade.fit.pipeline import Callbacks, Judge, cost_by, fit_network, hold_out_validation
from cfnade.fit.settings import FitSettings, Recipe
from cfnade.metrics.evaluate import evaluate
from cfnade.model.inference import NetworkScorer
from tests.networks import SMALL, group_counts, random_counts, random_numpy_network

QUICK = Recipe(n_hidden=8, max_epochs=2, readout=NO_READOUT)


def scores_of(counts: csr_array, recipe: Recipe) -> np.ndarray:
    return fit_network(counts, FitSettings(recipe)).scorer.scores(counts)


# The start -------------------------------------------------------------------------------------


def test_a_fit_starts_from_factors_or_at_random():
    counts = random_counts(60, 20)
    usual, warm, random = (
        scores_of(counts, replace(QUICK, start=start)) for start in (None, "factors", "random")
    )
    np.testing.assert_array_equal(usual, warm)
    assert np.abs(usual - random).max() > 0.01


@pytest.mark.parametrize(
    "counts",
    [np.ones((1, 1)), np.ones((10, 1)), np.ones((1, 5)), np.ones((10, 4))],
    ids=["one pair", "one item", "one user", "all alike"],
)
def test_where_factors_say_nothing_the_start_is_random(counts):
    recipe = Recipe(n_hidden=8, max_epochs=2)
    usual, random = (
        scores_of(csr_array(counts), replace(recipe, start=start)) for start in (None, "random")
    )
    np.testing.assert_array_equal(usual, random)
    assert np.abs(usual).max() < 20.0


# Validation and readout ------------------------------------------------------------------------


def test_epochs_are_judged_with_the_usual_direct_path():
    counts = random_counts(80, 20)

    def looks(readout: Readout) -> list[float | None]:
        recipe = Recipe(n_hidden=8, max_epochs=4, item_l2=0.1, readout=readout)
        fitted = fit_network(counts, FitSettings(recipe))
        return [epoch.validation_mpr for epoch in fitted.epochs]

    strong = Readout(direct_gain=300.0, direct_l2=1.0, direct_neighbours=5)
    assert looks(strong) != looks(NO_READOUT)
    assert looks(Readout(popularity_tilt=0.0)) == looks(Readout(True, 30.0, 50, 10.0, 0.0))


@pytest.mark.parametrize("by", [None, "recall@3"])
def test_the_readout_is_the_best_of_those_nearby_on_validation(by):
    counts = random_counts(200, 20, seed=1)
    train, held_out = hold_out(counts, share=0.2, rng=0)
    recipe = Recipe(n_hidden=4, max_epochs=4, item_l2=0.1)
    costs = {}
    for tilt in (None, *GRID["popularity_tilt"]):
        # An epoch is judged with the tilt that is set: one look makes all end after the same.
        settings = FitSettings(
            replace(recipe, validate_every=4, readout=Readout(direct=False, popularity_tilt=tilt)),
            choose_by=by,
        )
        fitted = fit_network(train, settings, validation=held_out)
        relevance = fitted.scorer.relative_rating.transform(held_out)
        names = ("mpr", "ndcg@100", "recall@3")
        judged = evaluate(
            fitted.scorer, train, held_out, relevance, metrics=names, n_bootstrap=0
        ).metrics
        assert judged["mpr"] == pytest.approx(fitted.validation_mpr)
        costs[tilt] = -judged[by] if by else judged["mpr"] / judged["ndcg@100"]
        if tilt is None:
            found = fitted.readout.popularity_tilt
    assert costs[found] == costs[None]
    near = [t for t in GRID["popularity_tilt"] if abs(t - found) < 0.21]
    assert costs[found] == min(costs[tilt] for tilt in near)


def test_the_readout_that_was_found_makes_the_same_model_again():
    counts = random_counts(60, 20, seed=1)
    # The epochs are judged with the readout, so only one look is the same for both.
    recipe = Recipe(n_hidden=4, max_epochs=4, validate_every=4, refit=False)
    found = fit_network(counts, FitSettings(recipe))
    assert None not in vars(found.readout).values()
    again = fit_network(counts, FitSettings(replace(recipe, readout=found.readout)))
    assert again.readout == found.readout
    np.testing.assert_array_equal(found.scorer.scores(counts), again.scorer.scores(counts))


def test_without_validation_the_readout_is_the_usual_one():
    recipe = replace(QUICK, readout=Readout(direct_gain=2.0))
    fitted = fit_network(group_counts(), FitSettings(recipe, validation_share=0.0))
    assert fitted.readout == Readout(direct_gain=2.0).or_usual()
    assert (fitted.validation_mpr, fitted.calibrator, fitted.best_epoch) == (None, None, 2)


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


def test_validation_pairs_are_trained_on_again_in_the_end():
    epochs: list[int] = []
    callbacks = Callbacks(on_epoch=lambda epoch: epochs.append(epoch.number))
    model = ImplicitCFNADE(**SMALL).fit(group_counts(), callbacks=callbacks)
    n_search = len(model.epochs_)
    assert epochs[n_search:] == list(range(1, model.best_epoch_ + 1))
    kept = ImplicitCFNADE(**SMALL, recipe=Recipe(refit=False)).fit(group_counts())
    assert (kept.scores(group_counts()) != model.scores(group_counts())).any()


def test_epochs_and_readout_can_be_chosen_by_another_metric():
    train, held_out = hold_out(group_counts(), share=0.3, rng=0)
    settings = {**SMALL, "patience": 12, "item_l2": 0.1, "recipe": Recipe(validate_every=1)}

    def recall_of(model: ImplicitCFNADE) -> float:
        relevance = model.scorer_.relative_rating.transform(held_out)
        judged = evaluate(model, train, held_out, relevance, metrics=["recall@3"], n_bootstrap=0)
        return judged.metrics["recall@3"]

    epochs = []
    for n_epochs in range(1, SMALL["max_epochs"] + 1):
        fixed = {**settings, "max_epochs": n_epochs, "validation_share": 0.0}
        epochs.append(recall_of(ImplicitCFNADE(**fixed, readout=NO_READOUT).fit(train)))
    settings |= {"choose_by": "recall@3", "readout": Readout(direct=False)}
    chosen = ImplicitCFNADE(**settings).fit(train, validation=held_out)
    assert chosen.best_epoch_ == 1 + epochs.index(max(epochs))
    assert recall_of(chosen) >= max(epochs)  # the tilt of popularity is chosen by it as well
    assert [e.cost for e in chosen.epochs_] == [-recall for recall in epochs]
    for wrong, why in [("luck", "no metric 'luck'"), (5, "named by text"), (True, "named by text")]:
        with pytest.raises(ConfigError, match=why):
            ImplicitCFNADE(choose_by=wrong).fit(train)


def test_an_interrupted_fit_can_be_resumed_in_any_phase(tmp_path):
    settings = {**SMALL, "max_epochs": 6}
    whole_epochs: list[int] = []
    whole = ImplicitCFNADE(**settings).fit(
        group_counts(), callbacks=Callbacks(lambda epoch: whole_epochs.append(epoch.number))
    )
    starts = [n for n, number in enumerate(whole_epochs) if number == 1]
    assert len(starts) == 2  # the search for the best epoch, and the refit
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


def test_a_large_catalogue_goes_without_the_direct_path(monkeypatch, caplog):
    monkeypatch.setattr("cfnade.fit.plan.DIRECT_MAX_ITEMS", 10)
    model = ImplicitCFNADE(**{**SMALL, "max_epochs": 1}).fit(group_counts())
    assert "neighbours" not in model.scorer_.network.weights and not model.readout_.direct
    assert "no direct item-item path" in caplog.text
    assert np.isfinite(model.scores(group_counts())).all()


def test_a_fit_is_not_resumed_with_another_start_readout_or_metric(tmp_path):
    counts = random_counts(60, 20)
    recipe = replace(QUICK, item_l2=0.1, readout=Readout(direct_gain=2.0))
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


def test_there_is_nothing_to_resume_without_a_checkpoint(tmp_path):
    with pytest.raises(ArtifactError, match="there is no checkpoint in"):
        fit_network(group_counts(), FitSettings(QUICK), checkpoint=tmp_path, resume=True)


def test_validation_by_events_predicts_what_is_new_to_a_user():
    counts = group_counts().toarray()
    counts[:, 0] = 30.0  # everybody's daily bread: never new
    bread = {}
    counts[:, 1:4] = np.minimum(counts[:, 1:4], 1.0)  # what is new has a single event
    for by in ("pairs", "events", "sessions"):
        train, held_out = hold_out_validation(csr_array(counts), FitSettings(validation_by=by), 60)
        assert held_out is not None
        np.testing.assert_array_equal((train + held_out).toarray(), counts)
        bread[by] = held_out[:, [0]].nnz
    assert bread["pairs"] > bread["events"] == bread["sessions"] == 0


def test_some_users_are_enough_to_hold_out_from():
    _, held_out = hold_out_validation(group_counts(), FitSettings(), 7)
    assert (np.diff(held_out.indptr) > 0).sum() == 7


def test_nothing_is_held_out_where_it_is_not_asked_for_or_there_is_too_little(caplog):
    counts = group_counts()
    train, held_out = hold_out_validation(counts, FitSettings(validation_share=0.0), 60)
    assert held_out is None and train is counts and not caplog.text
    assert hold_out_validation(csr_array(np.eye(3)), FitSettings(), 3)[1] is None
    assert "no user has enough items for validation" in caplog.text
    caplog.clear()
    repeated = csr_array(2.0 * np.ones((9, 9)))
    assert hold_out_validation(repeated, FitSettings(validation_by="sessions"), 9)[1] is None
    assert "items with a single event" in caplog.text


def test_the_split_follows_from_the_seed():
    held_out = [
        hold_out_validation(group_counts(), FitSettings(seed=seed), 60)[1].toarray()
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(held_out[0], held_out[1])
    assert (held_out[0] != held_out[2]).any()


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_a_judge_finds_the_metrics_that_evaluation_does(block_size):
    train, held_out = hold_out(group_counts(), share=0.2, rng=0, n_users=30)
    ratings = RelativeRating().fit(train)
    network = random_numpy_network()
    judge = Judge(train, held_out, ratings, block_size)
    logits = judge.logits(network)
    assert logits.shape == (30, 20) == judge.histories.shape
    names = ("mpr", "ndcg@100", "recall@3")
    expected = evaluate(
        NetworkScorer(network, ratings), train, held_out, ratings.transform(held_out),
        metrics=names, n_bootstrap=0,
    ).metrics  # fmt: skip
    assert judge.metrics(logits, names) == pytest.approx(expected)
    assert judge.metrics(-logits, names)["mpr"] != pytest.approx(expected["mpr"])


def test_less_cost_is_better_by_every_metric():
    good, bad = {"mpr": 5.0, "ndcg@100": 0.4}, {"mpr": 6.0, "ndcg@100": 0.3}
    for by in (None, "mpr", "ndcg@100"):
        assert cost_by(good, by) < cost_by(bad, by)
    # One per cent of the one is worth one per cent of the other.
    level = {"mpr": 5.0 * 1.01, "ndcg@100": 0.4 * 1.01}
    assert cost_by(level, None) == pytest.approx(cost_by(good, None))
    assert np.isfinite(cost_by({"mpr": 50.0, "ndcg@100": 0.0}, None))
