"""Random logs with times, and how one machine reads them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.columns import Columns

WEIGHTS = {"buy": 4.0, "skip": -2.5, "view": 1.0}
COLUMNS = Columns(count_col="n")


def write_log(path, seed, clock="seconds"):
    """Random events of three kinds, some with several at once or a count of 0; users and items
    that come late; and one user who has all events at one time."""
    rng = np.random.default_rng(seed)
    n = 1500
    user, item = rng.integers(60, size=n), np.minimum(rng.geometric(0.15, n), 25)
    day = rng.integers(0, 90, n)
    user = np.where(user >= 55, np.where(day < 84, 0, user), user)
    item = np.where((item == 7) & (day < 80), 8, item)
    day[user == 3] = 88
    time = 1_700_000_000 + 86_400 * day + rng.integers(0, 3, n) * 60
    if clock == "order":
        time = pd.Series(day).groupby(user).rank(method="dense").to_numpy() - 1
    frame = pd.DataFrame({"user": user, "item": [f"i{k:02d}" for k in item], "time": time})
    frame["event"] = np.array(sorted(WEIGHTS))[rng.choice(3, n, p=[0.2, 0.1, 0.7])]
    frame["n"] = rng.integers(0, 4, n)
    frame.columns = ["user", "item", "step" if clock == "order" else "time", "event", "n"]
    frame.to_parquet(path, index=False)
    return path


def columns_of(path):
    time = "step" if "step" in pd.read_parquet(path).columns else "time"
    return Columns(count_col="n", time_col=time)


def read_alone(path, weights, **options):
    return read_interactions(
        path, **{**vars(columns_of(path)), "event_weights": weights, **options}
    )
