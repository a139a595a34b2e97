from __future__ import annotations

import logging

import numpy as np
import pytest

from cfnade import ConfigError, ImplicitCFNADE
from cfnade.beyond.direct import regression_bytes
from cfnade.fit.memory import MemoryPlan, parse_bytes, recommending_block
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.scorer import BLOCK_BYTES
from tests.networks import random_counts

SIZE = {"n_users": 444_480, "n_pairs": 16_000_000, "model": ModelConfig(17_348)}
PAPER = {**SIZE, "training": TrainingConfig()}
DIRECT = regression_bytes(444_480, 17_348, 16_000_000, 100, None)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("4GB", 4 * 10**9), ("512 MiB", 2**29), ("1.5g", 1_500_000_000), ("2e9", 2 * 10**9), (7, 7)],
)
def test_sizes_are_read_as_people_write_them(limit, expected):
    assert parse_bytes(limit) == expected


@pytest.mark.parametrize("limit", ["", "much", "-1GB", "0", "1..5GB", "4XB", "GB"])
def test_other_texts_are_refused(limit):
    with pytest.raises(ConfigError, match="memory_limit must be a size such as 4GB"):
        parse_bytes(limit)


def test_a_limit_costs_scores_held_at_once_first_and_the_direct_path_then():
    free = MemoryPlan.of(**PAPER, direct=DIRECT)
    assert free.within(free.total) == free
    tight = free.within(free.total - 10**7)
    assert tight.direct == free.direct and tight.total <= free.total - 10**7
    assert tight.block < free.block
    tighter = free.within(free.total - 3 * 10**8)
    assert tighter.direct == 0 and tighter.block == free.block
    with pytest.raises(ConfigError, match=r"more than the limit of 1\.0 GB; allow more"):
        free.within(10**9)


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
