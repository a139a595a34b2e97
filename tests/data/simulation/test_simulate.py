from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cfnade.data.simulation import simulate
from cfnade.data.simulation.simulate import (
    SIZES,
    USERS_PER_UNIT,
    ServiceConfig,
    SimulatedService,
)
from cfnade.errors import ConfigError

TINY = ServiceConfig.sized("tiny")


@pytest.fixture(scope="module")
def small() -> SimulatedService:
    return SimulatedService(ServiceConfig.sized("small"), seed=1)


@pytest.fixture(scope="module")
def pairs(small: SimulatedService) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User, item and count of every pair of the small service."""
    counts = small.interactions().counts
    user = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    return user, counts.indices, counts.data


def columns(service: SimulatedService, block_size: int) -> list[np.ndarray]:
    blocks = list(service.blocks(block_size))
    return [
        np.concatenate([getattr(b, name) for b in blocks]) for name in ("user", "item", "count")
    ]


@pytest.mark.parametrize("block_size", [1, USERS_PER_UNIT, USERS_PER_UNIT + 1, 10_000])
def test_the_same_seed_gives_the_same_data_for_any_block_size(block_size: int) -> None:
    expected = columns(SimulatedService(TINY, seed=3), 65_536)
    got = columns(SimulatedService(TINY, seed=3), block_size)
    assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True))


def test_the_number_of_threads_does_not_change_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY, n_users=5 * USERS_PER_UNIT)
    found = []
    for n_threads in (1, 4):
        monkeypatch.setattr(simulate, "available_threads", lambda n=n_threads: n)
        found.append(SimulatedService(config).interactions().counts)
    assert (found[0] != found[1]).nnz == 0


def test_another_seed_gives_other_users_items_and_data() -> None:
    one, other = SimulatedService(TINY, seed=1), SimulatedService(TINY, seed=2)
    assert not np.array_equal(one.tastes, other.tastes)
    assert not np.array_equal(one.items.episodes, other.items.episodes)
    assert (one.interactions().counts != other.interactions().counts).nnz > 0


def test_a_negative_seed_and_an_empty_block_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed must be at least 0, got -1"):
        SimulatedService(TINY, seed=-1)
    with pytest.raises(ConfigError, match="block_size must be at least 1, got 0"):
        next(SimulatedService(TINY).blocks(0))


def test_blocks_hold_whole_users_in_order() -> None:
    blocks = list(SimulatedService(TINY).blocks(1))
    assert [int(b.user[0]) for b in blocks] == [0, USERS_PER_UNIT]
    assert blocks[-1].user[-1] == TINY.n_users - 1
    for block in blocks:
        place = block.user.astype(np.int64) * TINY.n_items + block.item
        assert (np.diff(place) > 0).all()  # by user, then by item, no pair twice


def test_preferences_are_never_computed_for_more_users_than_a_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = SimulatedService(replace(TINY, n_users=3 * USERS_PER_UNIT + 1))
    asked: list[int] = []
    compute = service.preferences
    monkeypatch.setattr(service, "preferences", lambda u: (asked.append(len(u)), compute(u))[1])
    list(service.blocks(10 * USERS_PER_UNIT))
    assert sorted(asked) == [1, *[USERS_PER_UNIT] * 3]


def test_items_are_drawn_without_replacement_in_proportion_to_propensity() -> None:
    # Without tastes all users are alike, so the share of them that watched an item estimates
    # its chance to be the first, or the second after any other one.
    config = ServiceConfig(
        n_users=40_000,
        n_items=6,
        n_tastes=1,
        taste_strength=0.0,
        popularity_head=0.5,
        mean_history=2,
        min_history=2,
    )
    service = SimulatedService(config)
    p = np.exp(service.preferences(np.array([0]))[0].astype(float))
    p /= p.sum()
    second = [sum(p[j] * p[i] / (1 - p[j]) for j in range(6) if j != i) for i in range(6)]
    watched = (service.interactions().counts > 0).sum(axis=0) / config.n_users
    assert np.ptp(p) > 0.15
    np.testing.assert_allclose(watched, p + second, atol=0.01)


def test_units_of_like_users_do_not_repeat_one_another() -> None:
    config = replace(TINY, n_users=2 * USERS_PER_UNIT, taste_strength=0.0, history_spread=0.0)
    first, second = SimulatedService(config).blocks(USERS_PER_UNIT)
    assert first.item.shape == second.item.shape
    assert not np.array_equal(first.item, second.item)


def test_users_watch_what_they_prefer_and_not_what_others_do(
    small: SimulatedService, pairs: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    def mean_percentile(shift: int) -> float:
        preferences = small.preferences((np.arange(500) + shift) % 500)
        place = np.argsort(np.argsort(-preferences, axis=1), axis=1) / preferences.shape[1]
        return float(place[user[user < 500], item[user < 500]].mean())

    user, item, _ = pairs
    assert mean_percentile(0) < 0.1
    assert mean_percentile(1) > 0.25


def test_preferences_are_popularity_and_affinity() -> None:
    service = SimulatedService(TINY)
    users = np.array([7, 2])
    affinity = [[service.tastes[u] @ place for place in service.places] for u in users]
    expected = service.log_popularity + TINY.taste_strength * np.array(affinity)
    np.testing.assert_allclose(service.preferences(users), expected, rtol=1e-4, atol=1e-4)


def test_popularity_has_a_long_tail(pairs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    watchers = np.sort(np.bincount(pairs[1], minlength=1_000))[::-1]
    assert watchers[:100].sum() > 0.3 * watchers.sum()
    assert watchers[500:].sum() < 0.2 * watchers.sum()


def test_histories_have_a_minimum_a_mean_and_a_long_tail(small: SimulatedService) -> None:
    lengths = small.history_lengths
    assert lengths.min() >= small.config.min_history
    assert lengths.mean() == pytest.approx(small.config.mean_history, rel=0.05)
    assert np.median(lengths) < 0.8 * lengths.mean() < 0.2 * lengths.max()


def test_movies_are_mostly_watched_once_and_sometimes_again(
    small: SimulatedService, pairs: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    _, item, count = pairs
    of_movies = count[small.items.kind[item] == "movie"]
    assert 0.8 < np.mean(of_movies == 1) < 0.95
    assert 2 <= of_movies.max() < 15


def test_counts_of_shows_follow_their_episodes(
    small: SimulatedService, pairs: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    _, item, count = pairs
    is_show = small.items.kind[item] == "show"
    per_episode = count[is_show] / small.items.episodes[item[is_show]]
    assert (count >= 1).all()
    assert (count == np.rint(count)).all()
    assert 0.2 < per_episode.mean() < 0.8
    assert np.percentile(per_episode, 99.9) < 3
    assert np.percentile(small.items.episodes, 99) > 5 * small.config.median_episodes


def test_within_a_show_those_it_suits_best_watch_most(
    small: SimulatedService, pairs: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    user, item, count = pairs
    shows = np.flatnonzero(small.items.episodes > 10)
    correlations = [
        np.corrcoef(small.tastes[user[of]] @ small.places[show], count[of])[0, 1]
        for show in shows
        if np.count_nonzero(of := item == show) > 100
    ]
    assert len(correlations) > 30
    assert np.mean(correlations) > 0.3


def test_items_have_readable_names_and_movies_one_episode() -> None:
    items = SimulatedService(TINY).items
    assert set(items.kind) == {"show", "movie"}
    for number, (name, kind, episodes) in enumerate(
        zip(items.name, items.kind, items.episodes, strict=True)
    ):
        assert name == f"{kind.capitalize()} {number:03d}"
        assert (episodes == 1) == (kind == "movie")


def test_interactions_keep_all_items_and_their_names() -> None:
    service = SimulatedService(TINY)
    data = service.interactions()
    assert data.counts.shape == (TINY.n_users, TINY.n_items)
    assert data.n_pairs == service.history_lengths.sum()
    assert data.item_label(5) == service.items.name[5]


# Settings ---------------------------------------------------------------------------------------


def test_the_default_is_the_size_of_the_paper() -> None:
    config = ServiceConfig()
    assert (config.n_users, config.n_items) == (444_480, 17_348)
    assert ServiceConfig.sized("paper") == config


def test_sizes_grow_in_the_order_they_are_listed() -> None:
    n_users = [ServiceConfig.sized(size).n_users for size in SIZES]
    assert n_users == sorted(n_users)
    assert len(set(n_users)) == len(SIZES)


def test_settings_of_a_size_can_be_changed() -> None:
    config = ServiceConfig.sized("small", n_users=7)
    assert (config.n_users, config.n_items) == (7, ServiceConfig.sized("small").n_items)


def test_an_unknown_size_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'huge' is not known; choose one of tiny, small"):
        ServiceConfig.sized("huge")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_users", 0, "n_users must be above 0"),
        ("n_items", -1, "n_items must be at least 0"),
        ("n_tastes", 0, "n_tastes must be above 0"),
        ("taste_strength", float("nan"), "taste_strength must be a finite number"),
        ("popularity_exponent", float("inf"), "popularity_exponent must be a finite number"),
        ("popularity_head", 0.0, "popularity_head must be above 0"),
        ("popularity_head", 1.5, "popularity_head is a share"),
        ("show_share", 1.1, "show_share is a share"),
        ("rewatching", 1.0, "rewatching must be at least 0 and below 1"),
        ("median_episodes", 1.0, "median_episodes must be at least 2"),
        ("min_history", 0, "min_history must be above 0"),
        ("mean_history", 4.0, "choose a mean_history in between"),
        ("mean_history", 61.0, "choose a mean_history in between"),
    ],
)
def test_a_setting_without_meaning_is_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ServiceConfig.sized("tiny", **{name: value})
