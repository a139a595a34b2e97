"""Event logs in which what is recent, or the kind of an event, matters by construction."""

from __future__ import annotations

import numpy as np

from cfnade.data.events import EventLog
from cfnade.data.interactions import Interactions
from tests.compare.logs import log_of

N_USERS, N_ITEMS, N_SHOPPERS = 120, 40, 400


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


def window_shopping(seed: int = 0, *, with_times: bool = False) -> Interactions:
    """Users of four tastes view items, put some in the cart and buy most of those.

    Views are many and often of other tastes; a cart says much more; `skip` says nothing.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, str]] = []
    for user in range(N_SHOPPERS):
        taste = user % 4
        for _ in range(14):
            is_own = rng.random() < 0.6
            item = 4 * int(rng.integers(N_ITEMS // 4)) + (taste if is_own else int(rng.integers(4)))
            time = int(rng.integers(90))
            rows.append((user, item, time, "view"))
            if rng.random() < (0.5 if is_own else 0.05):
                rows.append((user, item, time + 1, "cart"))
                if rng.random() < 0.6:
                    rows.append((user, item, time + 2 + int(rng.integers(8)), "buy"))
        rows.append((user, int(rng.integers(N_ITEMS)), int(rng.integers(100)), "skip"))
    user_of, item_of, time_of, event = zip(*rows, strict=True)
    kinds = ("buy", "cart", "skip", "view")
    order = np.lexsort((time_of, user_of))
    log = EventLog(
        np.int32(user_of)[order],
        np.int32(item_of)[order],
        np.ones(len(rows)),
        np.float64(time_of)[order] if with_times else None,
        "number" if with_times else None,
        np.int16([kinds.index(kind) for kind in event])[order],
        kinds,
    )
    return Interactions.from_log(log, np.arange(N_SHOPPERS), np.arange(N_ITEMS))
