"""Event logs for the tests of splits."""

from __future__ import annotations

import numpy as np

from cfnade.data.events import Clock, EventLog
from cfnade.data.interactions import Interactions


def random_log(
    seed: int = 0,
    *,
    n_users: int = 60,
    n_items: int = 20,
    per_user: int = 30,
    clock: Clock = "number",
) -> Interactions:
    """Events of random items: at whole times up to 99, or at the places 0, 1, 2, ... of an order.

    Items have different popularities, so that pairs repeat.
    """
    rng = np.random.default_rng(seed)
    chances = 1.0 / np.arange(1, n_items + 1)
    user = np.repeat(np.arange(n_users), per_user)
    item = rng.choice(n_items, user.size, p=chances / chances.sum())
    time = rng.integers(0, 100, user.size)
    if clock == "order":
        time = np.tile(np.arange(per_user) // 3, n_users)  # baskets of three
    return log_of(user, item, time, n_users, n_items, clock)


def log_of(user, item, time, n_users: int, n_items: int, clock: Clock) -> Interactions:
    """From one event per entry, in any order."""
    order = np.lexsort((item, time, user))
    log = EventLog(
        np.asarray(user, dtype=np.int32)[order],
        np.asarray(item, dtype=np.int32)[order],
        np.ones(len(order)),
        np.asarray(time, dtype=float)[order],
        clock,
    )
    return Interactions.from_log(log, np.arange(n_users), np.arange(n_items))
