from __future__ import annotations

import pytest

from cfnade.data.simulation.service_config import SIZES, ServiceConfig
from cfnade.errors import ConfigError


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
        ("n_items", -1, "n_items must be finite and at least 0"),
        ("n_tastes", 0, "n_tastes must be above 0"),
        ("taste_strength", float("nan"), "taste_strength must be finite"),
        ("popularity_exponent", float("inf"), "popularity_exponent must be finite"),
        ("popularity_head", 0.0, "popularity_head must be above 0"),
        ("popularity_head", 1.5, "popularity_head is a share"),
        ("show_share", 1.1, "show_share is a share"),
        ("rewatching", 1.0, "rewatching is a chance below 1"),
        ("median_episodes", 1.0, "median_episodes must be at least 2"),
        ("min_history", 0, "min_history must be above 0"),
        ("mean_history", 4.0, "choose a mean_history in between"),
        ("mean_history", 61.0, "choose a mean_history in between"),
    ],
)
def test_a_setting_without_meaning_is_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ServiceConfig.sized("tiny", **{name: value})
