"""The judge of networks: the metrics of an evaluation, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cfnade import ImplicitCFNADE, RelativeRating
from cfnade.beyond.readout import NO_READOUT, Readout
from cfnade.data.interactions import Interactions
from cfnade.data.splitting import hold_out
from cfnade.fit.judge import Judge
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings, Recipe
from cfnade.fit.training_part import TrainingPart
from cfnade.metrics.evaluate import evaluate
from cfnade.model.inference import NetworkScorer
from tests.networks import SMALL, group_counts, random_numpy_network
from tests.planted import changing_tastes


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_a_judge_finds_the_metrics_that_evaluation_does(block_size):
    train, held_out = hold_out(group_counts(), share=0.2, rng=0, n_users=30)
    ratings = RelativeRating().fit(train)
    network = random_numpy_network()
    plan = FitPlan.of(train, FitSettings(Recipe(readout=NO_READOUT)))
    plan = replace(plan, memory=replace(plan.memory, block=2 * 4 * 20 * block_size))
    judge = Judge(TrainingPart(Interactions.from_matrix(train), ratings, plan), held_out, None)
    logits = judge.logits(network)
    assert logits.shape == (30, 20) == judge.histories.shape
    names = ("mpr", "ndcg@100", "recall@3")
    expected = evaluate(
        NetworkScorer(network, ratings), train, held_out, ratings.transform(held_out),
        metrics=names, n_bootstrap=0,
    ).metrics  # fmt: skip
    assert judge.metrics(logits, names) == pytest.approx(expected)
    assert judge.metrics(-logits, names)["mpr"] != pytest.approx(expected["mpr"])
    look = judge.look(network)
    assert look.mpr == pytest.approx(expected["mpr"])
    assert look.cost == pytest.approx(expected["mpr"] / expected["ndcg@100"])
    assert judge.n_looks == 3


@pytest.mark.parametrize("fixed", [{"history_half_life": 0.5}, {"popularity_gain": 40.0}])
def test_a_readout_that_is_given_is_used_even_if_it_makes_things_worse(fixed):
    model = ImplicitCFNADE(**SMALL, readout=Readout(**fixed)).fit(changing_tastes())
    for name, value in fixed.items():
        assert getattr(model.readout_, name) == value
