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
from cfnade.beyond.readout import NO_READOUT, Readout
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
        "n_hidden": 17, "alpha": 3.0, "item_l2": 0.3, "learning_rate": 0.4,
        "batch_size": 7, "max_epochs": 9, "patience": 3, "validate_every": 4, "n_layers": 2,
        "activation": "relu", "input_scale": "none", "optimizer": "sgd", "schedule": "linear",
        "weight_decay": 0.2, "item_mean": False, "context_share": None,
        "bias_start": "odds", "precision": "bfloat16",
    }  # fmt: skip
    plan = plan_of(**given)
    decided = {**asdict(plan.model), **asdict(plan.training)}
    assert {name: decided[name] for name in given} == given


# Training --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_users", "expected"),
    [(10**6, 1000), (100_000, 400), (50_000, 200), (1_600, 200), (800, 100), (100, 16), (1, 16)],
)
def test_few_users_are_trained_on_in_smaller_batches_and_many_in_larger_ones(n_users, expected):
    assert plan_of(n_users).training.batch_size == expected
    assert plan_of(n_users, batch_size=7).training.batch_size == 7


@pytest.mark.parametrize(
    ("n_users", "patience", "look_every"),
    [(100_000, 6, 2), (6_000, 7, 2), (1_900, 20, 5), (200, 25, 7)],
)
def test_from_a_random_start_patience_and_looks_count_updates(n_users, patience, look_every):
    def training(**changes):
        return plan_of(n_users, start="random", **changes).training

    assert (training().patience, training().validate_every) == (patience, look_every)
    given = training(patience=3, validate_every=4, max_epochs=10)
    assert (given.patience, given.validate_every) == (3, 4)
    # A single look would end it, or come after the last epoch.
    assert training(patience=3).validate_every == min(look_every, 3)
    assert training(max_epochs=12).validate_every == min(look_every, 3)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({}, "linear"),
        ({"start": "factors"}, "linear"),
        ({"start": "random"}, "constant"),
        ({"n_layers": 2}, "constant"),  # cannot start from factors
        ({"schedule": "constant"}, "constant"),
        ({"start": "random", "schedule": "linear"}, "linear"),
    ],
)
def test_the_step_falls_after_a_start_from_factors(recipe, expected):
    training = plan_of(**recipe).training
    assert training.schedule == expected
    looks = [n for n in range(1, training.max_epochs + 1) if training.is_validated(n)]
    if expected == "linear":  # nothing stops it early: one look, at the end
        assert looks == [training.max_epochs] and training.patience == training.max_epochs
    else:
        assert len(looks) > 10 and training.patience < training.max_epochs == 200


@pytest.mark.parametrize("n_users", [60, 1_600, 7_000, 10_000])
def test_a_falling_step_takes_about_as_many_updates_whatever_the_data(n_users):
    training = plan_of(n_users, 100, 100 * n_users).training
    n_updates = training.updates_per_epoch(n_users)
    assert abs(training.max_epochs * n_updates - module.N_UPDATES) <= n_updates / 2
    assert plan_of(n_users, max_epochs=7).training.max_epochs == 7


def test_a_falling_step_takes_an_epoch_however_many_users():
    assert plan_of(10**7, 100, 10**9).training.max_epochs == 1


def test_larger_batches_take_larger_steps():
    small, large = (plan_of(n_users, 100, 20 * n_users).training for n_users in (9_000, 200_000))
    assert (small.batch_size, large.batch_size) == (200, 800)
    assert large.learning_rate == pytest.approx(2 * small.learning_rate)


@pytest.mark.parametrize("n_users", [60, 1_600])
def test_where_items_have_few_watchers_epochs_are_limited(n_users):
    training = plan_of(n_users, 1_000, 1_000).training
    assert training.max_epochs == module.MOST_EPOCHS
    assert plan_of(n_users, 1_000, 1_000, max_epochs=99).training.max_epochs == 99
    assert plan_of(n_users, 1_000, 1_000, start="random").training.max_epochs == 200


def test_where_items_have_few_watchers_a_falling_step_is_smaller():
    few, many = ((10_000, 1_000, 1_000 * watchers) for watchers in (20, 200))
    assert plan_of(*few).training.learning_rate < plan_of(*many).training.learning_rate
    for recipe in ({"start": "random"}, {"schedule": "constant"}, {"learning_rate": 0.5}):
        rates = {plan_of(*size, **recipe).training.learning_rate for size in (few, many)}
        assert len(rates) == 1


@pytest.mark.parametrize(("is_fast", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_products_are_in_bfloat16_where_that_is_fast_unless_set(monkeypatch, is_fast, expected):
    monkeypatch.setattr(module, "has_fast_bfloat16", lambda: is_fast)
    assert plan_of().training.precision == expected
    assert f"{expected} products" in "\n".join(plan_of().lines())
    for given in ("float32", "bfloat16"):
        assert plan_of(precision=given).training.precision == given
    assert FitPlan.of_size(9, 9, 9, FitSettings(RECIPES["paper"])).training.precision == "float32"
    with pytest.raises(ConfigError, match="precision must be one of float32, bfloat16"):
        plan_of(precision="float16")


def test_small_updates_are_made_on_one_thread():
    logits = {n_items: 200 * (n_items // 2 + 1) for n_items in (9_996, 10_000)}
    assert logits[9_996] < module.SEVERAL_THREADS_LOGITS < logits[10_000]
    assert plan_of(n_items=9_996).training_threads(4) == 1
    assert plan_of(n_items=10_000).training_threads(4) == 4
    assert plan_of(n_items=10_000).training_threads(1) == 1
    assert plan_of(n_items=6_000, context_share=None).training_threads(4) == 4  # more targets


def test_trials_are_made_around_the_plan():
    plan = plan_of(trials=3)
    assert plan_of().trials == 1 and plan.trials == 3
    assert plan.training == plan_of().training
    usual = {**vars(plan.model), **vars(plan.training)}
    for name, values in plan.grid.items():
        assert usual[name] in values[1:-1] and list(values) == sorted(set(values))
    shortest = plan_of(max_epochs=1, item_l2=0.0, alpha=9.0).grid  # nothing is tried twice
    alphas = [1.0, 3.0, 9.0, 27.0, 81.0]
    assert shortest == {"max_epochs": [1, 2, 4], "alpha": alphas, "item_l2": [0.0]}
    changed = plan.changed(alpha=3.0, item_l2=0.5, max_epochs=7)
    training = changed.training
    assert (changed.model.alpha, training.item_l2, training.max_epochs) == (3.0, 0.5, 7)
    assert training.validate_every == training.patience == 7  # one look, after the last epoch


def test_stages_are_announced_in_their_order():
    before, after = ["factors", "direct path"], ["readout", "calibration"]
    last = "direct path of all pairs"
    assert list(plan_of().stages) == [*before, "training", *after, last]
    trainings = ["training", "training 2", "training 3"]
    assert list(plan_of(trials=3).stages) == [*before, *trainings, *after, last]
    assert all(time > 0 for time in plan_of().stages.values())
    without = plan_of(start="random", readout=NO_READOUT).stages
    assert {name for name, time in without.items() if time == 0} == {*before, last}


def test_more_work_takes_longer():
    small = plan_of().stages
    for larger, stages in [
        (plan_of(n_items=2_000, n_pairs=10**6), {"direct path", "factors", "training", "readout"}),
        (plan_of(n_users=30_000), {"factors"}),
        (plan_of(n_users=900_000), {"training"}),
        (plan_of(max_epochs=99), {"training"}),
        (plan_of(n_hidden=512), {"training"}),
    ]:
        assert {n for n, time in larger.stages.items() if time > 1.01 * small[n]} >= stages


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


@pytest.mark.parametrize("size", [(60, 20, 400), (10**4, 10**3, 10**5), (10**7, 10**5, 10**9)])
@pytest.mark.parametrize(
    ("start", "expected"), [(None, True), ("factors", True), ("random", False)]
)
def test_data_of_any_size_start_from_factors_unless_set_otherwise(size, start, expected):
    assert (plan_of(*size, start=start).factors is not None) is expected


def test_a_rough_plan_is_short_in_epochs_and_iterations_alone():
    plan = plan_of(max_epochs=20)
    rough = plan.rough()
    assert (rough.training.max_epochs, rough.factors.n_iterations) == (10, 6)
    assert rough.training.validate_every == 10  # judged at its end
    assert replace(rough, training=plan.training, factors=plan.factors) == plan
    assert plan_of(max_epochs=1).rough().training.max_epochs == 1
    random = plan_of(start="random")
    assert random.rough() is random


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


def test_there_are_never_more_factors_than_half_of_the_users_or_items():
    assert plan_of(2_000, 1_024, 20_000).factors.n_factors == module.N_FACTORS == 256
    assert plan_of(100, 1_024, 40_000).factors.n_factors == 50
    assert plan_of(2_000, 30, 40_000).factors.n_factors == 15
    assert plan_of(1, 1, 1).factors == FactorPlan(1, 1000.0, module.FACTOR_USERS)


def test_of_very_many_users_a_sample_gives_a_rough_start():
    whole, sample = (plan_of(n, 1_000, 1_000 * n // 10).factors for n in (30_000, 600_000))
    assert whole.n_iterations > sample.n_iterations
    few = plan_of(600_000, 1_000, 1_300_000).factors  # 1,300 watchers, of whom 65 are sampled
    assert (whole.alpha, sample.alpha, few.alpha) == (10.0, 10.0, 30.0)


# The direct path and the readout ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_items", "expected"),
    [
        (20_000, DirectPlan(32, None)),
        (20_001, DirectPlan(32, 50_000)),
        (100_000, DirectPlan(32, 50_000)),
        (100_001, None),
    ],
)
def test_the_direct_path_is_dense_then_sparse_then_left_out(n_items, expected):
    plan = plan_of(n_items=n_items)
    assert plan.direct == expected
    n_neighbours = None if expected is None else expected.n_candidates
    assert plan.readout == Readout(expected is not None, direct_neighbours=n_neighbours)
    assert (plan.memory.direct > 0) is (expected is not None)


def test_items_have_more_neighbours_where_they_have_many_watchers_unless_set():
    few, many = ((10_000, 100, 100 * watchers) for watchers in (20, 200))
    found = [plan_of(*size).readout.direct_neighbours for size in (few, many)]
    assert found == [module.FEW_NEIGHBOURS, module.MANY_NEIGHBOURS] == [32, 100]
    for size in (few, many):
        plan = plan_of(*size, readout=Readout(direct_neighbours=150))
        assert plan.direct.n_candidates == plan.readout.direct_neighbours == 150


def test_a_readout_without_a_direct_path_has_none():
    plan = plan_of(readout=NO_READOUT, start="factors")
    assert plan.direct is None and plan.readout == NO_READOUT and plan.memory.direct == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, DirectPlan(100, None)),
        ({"readout": Readout()}, None),
        ({"start": "factors"}, None),
        ({"start": "random"}, None),
        ({"n_layers": 2}, None),
        ({"n_items": 100_001}, None),
        ({"n_pairs": 20_000}, DirectPlan(32, None)),
    ],
)
def test_a_network_alone_starts_with_neighbours_too(changes, expected):
    plan = plan_of(**{"readout": NO_READOUT, **changes})
    assert plan.start_neighbours == expected
    assert ("neighbours" in plan.lines()[1]) is (expected is not None)
    if expected is not None:
        assert plan.memory.direct > 0 and plan.direct is None


@pytest.mark.parametrize(("watchers", "alone", "with_direct"), [(200, 0.1, 0.02), (20, 0.4, 0.8)])
def test_the_regularisation_belongs_to_the_start(watchers, alone, with_direct):
    plans = (plan_of(n_pairs=1_000 * watchers, readout=r) for r in (NO_READOUT, Readout()))
    assert [plan.training.item_l2 for plan in plans] == [alone, with_direct]


def test_neighbours_of_the_start_are_left_out_if_there_is_no_room():
    memory = plan_of(readout=NO_READOUT).memory
    limit = f"{memory.total - memory.direct - memory.block + 2**20}B"  # with small blocks
    settings = FitSettings(Recipe(readout=NO_READOUT), memory_limit=limit)
    less = FitPlan.of_size(10_000, 1_000, 200_000, settings)
    assert less.start_neighbours is None and less.factors is not None


# Memory ----------------------------------------------------------------------------------------

SIZE = {"n_users": 444_480, "n_pairs": 16_000_000, "model": ModelConfig(17_348)}
PAPER = {**SIZE, "training": TrainingConfig()}
DIRECT = regression_bytes(444_480, 17_348, 16_000_000, 100, None)


def test_factors_to_start_from_take_room_and_a_refusal_names_them():
    cold, warm = (MemoryPlan.of(**PAPER, n_factors=n) for n in (0, 256))
    assert warm.factors == 4 * (30_000 + 17_348) * 256 * 3 > warm.update
    assert warm.total - cold.total == warm.factors - cold.update  # one after the other
    assert "factors 0.15" in warm.describe() and "factors" not in cold.describe()
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
    assert tight.direct == free.direct and tight.rows_per_block < free.rows_per_block
    tighter = limited(total - 5 * 10**8)
    assert tighter.direct is None and not tighter.readout.direct
    assert tighter.rows_per_block == free.rows_per_block
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


@pytest.mark.parametrize(
    ("n_users", "expected"),
    [(1, 1), (100, 100), (501, 500), (2_000, 500), (4_000, 1_000), (8_000, 2_000), (10**6, 2_000)],
)
def test_validation_is_held_out_from_a_quarter_of_the_users_within_bounds(n_users, expected):
    plan = plan_of(n_users, 1_000)
    assert plan.validation_users == expected
    assert plan.memory.judged == 4 * 3 * expected * 1_000


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
    assert "training: adam, step 0.005, batches of 16, item_l2 0.02, " in text
    assert "125 epochs with a falling step" in text and "trials" not in text
    assert "direct path: 100 neighbours for each item" in text
    assert "readout: searches direct_gain" in text
    assert "fitting takes about 0.4 GB" in text
    paper = "\n".join(FitPlan.of_size(9, 9, 9, FitSettings(RECIPES["paper"])).lines())
    assert "random weights" in paper and "direct path: none" in paper
    assert "searches nothing" in paper
    assert "at most 5000 epochs, validated every 2, patience 40, float32 products" in paper
    large = "\n".join(plan_of(n_items=30_000).lines())
    assert "32 neighbours for each item, found on 50,000 users at most" in large
    assert "products; up to 3 trials around that" in "\n".join(plan_of(trials=3).lines())
    fixed = Readout(direct_gain=2.0)
    assert "searches nothing" in "\n".join(plan_of(readout=fixed).lines())
    assert "searches nothing" in "\n".join(plan_of(n_items=10**6).lines())


# Nowhere else ----------------------------------------------------------------------------------

SIZES = {"n_items", "n_users", "n_pairs", "nnz", "n_watchers"}
SOURCE = Path(cfnade.__file__).parent
ONLY_FASTER = {
    "likes.shape[1] <= _DENSE_UP_TO",
    "n_users * n_items >= (_QUICK_PAYS if 'torch' in sys.modules else _TORCH_PAYS)",
}
"""Rules of data/splitting.py and answer/all_users.py that do not change the result; their tests
show that."""


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
