"""Every decision that depends on the size of the data."""

from __future__ import annotations

import ast
import logging
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import cfnade
from cfnade import ConfigError, ImplicitCFNADE
from cfnade.beyond.direct import regression_bytes
from cfnade.beyond.readout import GRID, NO_READOUT, Readout
from cfnade.fit import plan as module
from cfnade.fit.plan import (
    DirectPlan,
    FactorPlan,
    FitPlan,
    MemoryPlan,
    calibration_users,
    recommending_block,
)
from cfnade.fit.settings import RECIPES, FitSettings, Recipe
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.scorer import BLOCK_BYTES
from tests.networks import group_counts, random_counts


def plan_of(
    n_users: int = 10_000, n_items: int = 1_000, n_pairs: int = 200_000, **recipe
) -> FitPlan:
    return FitPlan.of_size(n_users, n_items, n_pairs, FitSettings(Recipe(**recipe)))


def test_the_size_of_counts_is_what_is_planned_for():
    counts, settings = group_counts(), FitSettings(seed=7)
    plan = FitPlan.of(counts, settings)
    assert plan == FitPlan.of_size(60, 20, counts.nnz, settings)
    assert (plan.n_users, plan.model.n_items, plan.n_pairs) == (60, 20, counts.nnz)
    assert plan.training.seed == 7
    assert ImplicitCFNADE(random_state=7).plan(counts) == plan


def test_nothing_is_left_open_but_what_validation_finds():
    for recipe in RECIPES.values():
        plan = FitPlan.of_size(500, 100, 4_000, FitSettings(recipe))
        for config in (plan.model, plan.training):
            left_open = {name for name, value in asdict(config).items() if value is None}
            assert left_open <= {"context_share"}


def test_what_is_set_is_not_decided():
    given = {
        "n_hidden": 17, "alpha": 3.0, "item_l2": 0.3, "dropout": 0.1, "learning_rate": 0.4,
        "batch_size": 7, "max_epochs": 9, "patience": 3, "validate_every": 4, "n_layers": 2,
        "activation": "relu", "input_scale": "none", "optimizer": "sgd", "schedule": "linear",
        "weight_decay": 0.2, "item_mean": False, "context_share": None,
        "bias_start": "odds",
    }  # fmt: skip
    plan = plan_of(**given)
    decided = {**asdict(plan.model), **asdict(plan.training)}
    assert {name: decided[name] for name in given} == given


# Training --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_users", "expected"), [(10**6, 200), (1_600, 200), (800, 100), (100, 16), (1, 16)]
)
def test_an_update_has_200_users_or_an_eighth_of_them(n_users, expected):
    assert plan_of(n_users).training.batch_size == expected
    assert plan_of(n_users, batch_size=7).training.batch_size == 7


@pytest.mark.parametrize(
    ("n_users", "patience", "look_every"),
    [(100_000, 6, 2), (6_000, 7, 2), (1_900, 20, 5), (200, 25, 7)],
)
def test_with_few_users_patience_and_looks_count_updates(n_users, patience, look_every):
    training = plan_of(n_users).training
    assert (training.patience, training.validate_every) == (patience, look_every)
    given = plan_of(n_users, patience=3, validate_every=4, max_epochs=10).training
    assert (given.patience, given.validate_every) == (3, 4)
    soon = plan_of(n_users, patience=3).training  # or a single look would end it
    assert soon.validate_every == min(look_every, 3)
    short = plan_of(n_users, max_epochs=12).training  # a quarter of the epochs
    assert short.validate_every == min(look_every, 3)


@pytest.mark.parametrize(
    ("n_users", "watchers", "expected"),
    [
        (10**6, 129, 0.8),
        (10**6, 130, 0.02),  # many
        (1_000, 29, 0.8),
        (1_000, 30, 0.02),  # three per cent of the users
    ],
)
def test_items_with_few_watchers_are_regularised_more(n_users, watchers, expected):
    plan = plan_of(n_users, 100, 100 * watchers)
    assert plan.training.item_l2 == expected
    assert plan_of(n_users, 100, 100 * watchers, item_l2=0.1).training.item_l2 == 0.1


# The start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "n_pairs", "expected"),
    [(None, 500_000, True), (None, 500_001, False), ("factors", 500_001, True),
     ("random", 10, False)],
)  # fmt: skip
def test_small_data_start_from_factors_unless_set_otherwise(start, n_pairs, expected):
    assert (plan_of(n_pairs=n_pairs, start=start).factors is not None) is expected


@pytest.mark.parametrize("changes", [{"n_layers": 2}, {"activation": "relu"}])
def test_a_network_that_cannot_start_from_factors_starts_at_random_or_refuses(changes):
    assert plan_of(**changes).factors is None
    with pytest.raises(ConfigError, match=r"single layer .* got n_layers=\d, activation='\w+'"):
        plan_of(**changes, start="factors")
    assert plan_of(**changes, start="random").factors is None


@pytest.mark.parametrize(
    ("watchers", "alpha"), [(300, 10.0), (130, 10.0), (60, 30.0), (35, 100.0), (4, 1000.0)]
)
def test_few_watchers_are_given_more_confidence(watchers, alpha):
    assert plan_of(n_items=1_000, n_pairs=1_000 * watchers).factors.alpha == alpha


def test_there_are_more_factors_where_items_have_few_watchers_but_never_more_than_data():
    assert plan_of(2_000, 1_025, 19_000).factors.n_factors == 512
    assert plan_of(2_000, 1_024, 20 * 1_024).factors.n_factors == 256
    assert plan_of(100, 1_024, 40_000).factors.n_factors == 50
    assert plan_of(1, 1, 1).factors == FactorPlan(1, 1000.0)


# The direct path and the readout ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_items", "expected"),
    [
        (20_000, DirectPlan(100, None)),
        (20_001, DirectPlan(200, 50_000)),
        (100_000, DirectPlan(200, 50_000)),
        (100_001, None),
    ],
)
def test_the_direct_path_is_dense_then_sparse_then_left_out(n_items, expected):
    plan = plan_of(n_items=n_items)
    assert plan.direct == expected
    assert plan.readout == Readout(direct=expected is not None)
    assert (plan.memory.direct > 0) is (expected is not None)


def test_more_neighbours_need_as_many_candidates():
    assert plan_of(readout=Readout(direct_neighbours=150)).direct.n_candidates == 150
    assert plan_of(readout=Readout(direct_neighbours=20)).direct.n_candidates == 100
    many = plan_of(n_items=50_000, readout=Readout(direct_neighbours=150))
    assert many.direct.n_candidates == 200


def test_a_readout_without_a_direct_path_has_none():
    plan = plan_of(readout=NO_READOUT)
    assert plan.direct is None and plan.readout == NO_READOUT and plan.memory.direct == 0


def test_the_grid_of_the_readout_fits_the_candidates_and_the_catalogue():
    small, medium, large = (plan_of(n_items=n).readout_grid for n in (10_000, 10_001, 20_001))
    assert small == {**GRID, "direct_neighbours": (5, 10, 20, 50, 100)}
    assert "direct_l2" not in medium and medium["direct_neighbours"][-1] == 100
    assert large["direct_neighbours"] == GRID["direct_neighbours"]


# Refit -----------------------------------------------------------------------------------------


def test_a_refit_is_for_what_was_held_out_and_worth_it():
    assert not plan_of(refit=True).refits(1.0)  # nothing to add
    assert plan_of().refits(0.95) and not plan_of().refits(0.995)
    assert plan_of(refit=True).refits(0.995)
    assert not plan_of(refit=False).refits(0.5)


# Memory ----------------------------------------------------------------------------------------

SIZE = {"n_users": 444_480, "n_pairs": 16_000_000, "model": ModelConfig(17_348)}
PAPER = {**SIZE, "training": TrainingConfig()}
DIRECT = regression_bytes(444_480, 17_348, 16_000_000, 100, None)


def test_factors_to_start_from_take_room_and_a_refusal_names_them():
    cold, warm = (MemoryPlan.of(**PAPER, n_factors=n) for n in (0, 256))
    assert warm.factors == 4 * (444_480 + 17_348) * 256 * 3 > warm.update
    assert warm.total - cold.total == warm.factors - cold.update  # one after the other
    assert "factors 1.4" in warm.describe() and "factors" not in cold.describe()
    with pytest.raises(ConfigError, match="recipe__start='random'"):
        warm.within(10**9)
    with pytest.raises(ConfigError) as refused:
        cold.within(10**9)
    assert "recipe__start" not in str(refused.value)


def test_held_out_users_take_room():
    plan = MemoryPlan.of(**PAPER, judged_users=2_000)
    assert plan.judged == 3 * 4 * 2_000 * 17_348
    assert plan.total == MemoryPlan.of(**PAPER).total + plan.judged


def test_the_papers_scale_takes_less_than_four_gibibytes():
    assert MemoryPlan.of(**PAPER, direct=DIRECT, judged_users=2_000).total < 4 * 2**30


def test_a_limit_of_memory_costs_blocks_first_and_the_direct_path_then():
    size = (444_480, 12_000, 16_000_000)
    free = FitPlan.of_size(*size, FitSettings())
    assert free.memory_limit is None
    assert free.memory.direct == regression_bytes(*size, 100, None) and free.memory.judged > 0

    def limited(to: int) -> FitPlan:
        return FitPlan.of_size(*size, FitSettings(memory_limit=str(to)))

    total = free.memory.total
    assert limited(total) == replace(free, memory_limit=total)
    tight = limited(total - 10**7)
    assert tight.direct == free.direct and tight.rows_per_look < free.rows_per_look
    tighter = limited(total - 5 * 10**8)
    assert tighter.direct is None and not tighter.readout.direct
    assert tighter.rows_per_look == free.rows_per_look
    with pytest.raises(ConfigError, match=r"more than the limit of 1\.0 GB"):
        limited(10**9)
    with pytest.raises(ConfigError, match="memory_limit must be a size"):
        FitPlan.of_size(*size, FitSettings(memory_limit="much"))


def test_memory_is_planned_for_the_factors_that_training_starts_from():
    warm, random = plan_of(), plan_of(start="random")
    assert warm.memory.factors == 4 * 3 * 11_000 * warm.factors.n_factors > 0
    assert random.memory.factors == 0


def test_at_least_one_user_is_judged_at_once():
    assert plan_of(n_items=10**9, n_hidden=1).rows_per_look == 1


def test_validation_is_planned_for_no_more_users_than_there_are():
    few, many = plan_of(100, 1_000), plan_of(10**6, 1_000)
    assert few.memory.judged == 4 * 3 * 100 * 1_000
    assert many.memory.judged == 4 * 3 * module.VALIDATION_USERS * 1_000
    assert (few.validation_users, many.validation_users) == (100, module.VALIDATION_USERS)


def test_the_calibrator_sees_fewer_users_if_there_are_many_items():
    assert [calibration_users(n) for n in (1, 15_000, 30_000, 10**6)] == [2_000, 2_000, 1_000, 200]


def test_more_data_have_the_most_pairs_unless_any_before_had_more():
    plan = plan_of(n_pairs=200_000)
    assert plan.has_most_pairs([])
    assert plan.has_most_pairs([{"n_pairs": 200_000}, {}])
    assert not plan.has_most_pairs([{"n_pairs": 10}, {"n_pairs": 200_001}])


def test_fit_keeps_to_the_limit_and_logs_its_plan(caplog):
    counts = random_counts(60, 20)
    small = {"n_hidden": 4, "max_epochs": 2}
    with caplog.at_level(logging.INFO, logger="cfnade"):
        free = ImplicitCFNADE(**small).fit(counts)
    assert "fitting takes about 0.4 GB at most" in caplog.text
    limited = ImplicitCFNADE(**small, memory_limit="410MB").fit(counts)  # small blocks
    np.testing.assert_allclose(limited.scores(counts), free.scores(counts), rtol=1e-5)
    with pytest.raises(ConfigError, match="more than the limit"):
        ImplicitCFNADE(**small, memory_limit="1MB").fit(counts)


def test_recommending_holds_fewer_scores_when_memory_is_short():
    everyone = {**SIZE, "n": 10}
    assert recommending_block(**everyone, limit=4 * 2**30) == BLOCK_BYTES
    few = {"n_users": 10, "n_pairs": 100, "model": ModelConfig(17_348), "n": 10}
    tight = recommending_block(**few, limit=490 * 10**6)
    assert 4 * 17_348 <= tight < BLOCK_BYTES
    with pytest.raises(ConfigError, match="recommend for fewer users at a time"):
        recommending_block(**everyone, limit=10**8)


def test_recommend_keeps_to_the_limit_with_the_same_answers(caplog):
    counts = random_counts(60, 20)
    model = ImplicitCFNADE(n_hidden=4, max_epochs=2).fit(counts)
    users = np.arange(60)
    ids, scores = model.recommend(users, counts, N=3)
    model.set_params(memory_limit="401MB")
    with caplog.at_level(logging.INFO, logger="cfnade"):
        limited_ids, limited_scores = model.recommend(users, counts, N=3)
    assert "recommending takes about 0.4 GB at most" in caplog.text
    np.testing.assert_array_equal(limited_ids, ids)
    np.testing.assert_allclose(limited_scores, scores, rtol=1e-5)
    model.set_params(memory_limit="1MB")
    with pytest.raises(ConfigError, match="recommending takes"):
        model.recommend(users, counts, N=3)


# In words --------------------------------------------------------------------------------------


def test_the_plan_is_readable():
    lines = FitPlan.of(random_counts(60, 20), FitSettings()).lines()
    text = "\n".join(lines)
    assert "data: 60 users, 20 items, " in text and "watchers per item" in text
    assert "network: 256 hidden units, alpha 30, start from 10 factors (alpha 1000)" in text
    assert "batches of 16, item_l2 0.02" in text
    assert "direct path: 100 candidate neighbours for each item" in text
    assert "searches direct_gain, direct_l2, direct_neighbours, popularity_tilt" in text
    assert "fitting takes about 0.4 GB" in text
    paper = "\n".join(FitPlan.of_size(9, 9, 9, FitSettings(RECIPES["paper"])).lines())
    assert "random weights" in paper and "direct path: none" in paper
    assert "searches nothing" in paper
    large = "\n".join(plan_of(n_items=30_000).lines())
    assert "found on 50,000 users at most" in large


# Nowhere else ----------------------------------------------------------------------------------

SIZES = {"n_items", "n_users", "n_pairs", "nnz", "n_watchers"}
SOURCE = Path(cfnade.__file__).parent
ONLY_FASTER = {"likes.shape[1] <= _DENSE_UP_TO"}
"""Rules of data/splitting.py that do not change the result; its tests show that."""


def is_number(node: ast.AST) -> bool:
    """Whether it is a number of at least 1,000."""
    is_any = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    return is_any and node.value >= 1_000


def size_rules(path: Path) -> list[str]:
    """Where a size of the data meets a number of at least 1,000, by name or as it is.

    To meet is to be compared, or to be bounded by `min` or `max`.
    """
    tree = ast.parse(path.read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    large = {
        name.id
        for node in assigned
        if any(is_number(part) for part in ast.walk(node.value))
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }

    def is_large(node: ast.AST) -> bool:
        return is_number(node) or (isinstance(node, ast.Name) and node.id in large)

    def meet(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("min", "max"):
            return any(is_large(argument) for argument in node.args)  # not the end of a block
        return isinstance(node, ast.Compare)

    def is_size(node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in SIZES) or (
            isinstance(node, ast.Attribute) and node.attr in SIZES | {"shape"}
        )

    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if meet(node)
        and any(is_size(part) for part in ast.walk(node))
        and any(is_large(part) for part in ast.walk(node))
    ]


def test_rules_that_depend_on_the_size_of_the_data_are_in_the_plan_alone():
    assert len(size_rules(SOURCE / "fit" / "plan.py")) >= 4  # else this finds nothing anywhere
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "plan.py":
            assert set(size_rules(path)) <= ONLY_FASTER, path
