"""Event logs in which what is recent matters, by construction."""

from __future__ import annotations

import numpy as np

from cfnade.data.interactions import Interactions
from tests.compare.logs import log_of

N_USERS, N_ITEMS = 120, 40


def fashion(seed: int = 0) -> Interactions:
    """Items 0 to 19 until time 50, then items 20 to 39: what is popular changes for everybody.

    Some watch the others' items at all times, so that all items are known throughout.
    """
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(N_USERS), 24)
    time = rng.integers(0, 100, user.size)
    is_in_fashion = rng.random(user.size) < 0.9
    item = rng.integers(0, 20, user.size) + 20 * ((time >= 50) == is_in_fashion)
    return log_of(user, item, time, N_USERS, N_ITEMS, "number")


def changing_tastes(seed: int = 0) -> Interactions:
    """Users like one of four groups of items, then another one, each at a time of their own.

    All groups are equally popular at all times: only the user's own latest events say which.
    """
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(N_USERS), 40)
    time = np.tile(np.arange(40), N_USERS) + rng.integers(0, 40, N_USERS)[user]
    first = rng.integers(0, 4, N_USERS)
    then = (first + rng.integers(1, 4, N_USERS)) % 4
    has_changed = np.tile(np.arange(40), N_USERS) >= 26
    group = np.where(has_changed, then[user], first[user])
    item = 4 * rng.integers(0, N_ITEMS // 4, user.size) + group
    return log_of(user, item, time, N_USERS, N_ITEMS, "number")
