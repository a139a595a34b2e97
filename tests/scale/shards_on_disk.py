"""A small prepared folder without Spark, for tests of what reads it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import hold_out


def write_prepared(folder: Path, n_users: int = 330, n_items: int = 30) -> Path:
    rng = np.random.default_rng(1)
    taste = rng.integers(3, size=n_users)
    liked = rng.random((n_users, n_items)) < np.where(
        taste[:, None] == np.arange(n_items) % 3, 0.5, 0.08
    )
    # One that most have, and something for everybody. If all of a batch had it, its gradient by A
    # would be nothing but rounding, which differs between processes and which Adam makes large.
    liked[:, 0] = rng.random(n_users) < 0.8
    liked[np.arange(n_users), 3 + taste] = True
    counts = liked * rng.integers(1, 6, liked.shape)
    held = np.zeros_like(liked)
    for user in range(60):
        held[user, rng.choice(np.flatnonzero(liked[user]))] = liked[user].sum() > 4
    held[np.arange(n_users), 3 + taste] = False
    known = csr_array(counts * ~held)
    ratings = RelativeRating().fit(known)
    rated = ratings.transform(known).tolil()
    item, n, _ = ratings.entries()
    for name in ("users", "items", "distributions"):
        (folder / name).mkdir(parents=True)
    pq.write_table(
        pa.table({"item": np.arange(n_items), "code": np.arange(n_items, dtype=np.int32)}),
        folder / "items" / "part.parquet",
    )
    pq.write_table(
        pa.table({"code": item, "n": n, "n_watchers_up_to": ratings.n_watchers_up_to_}),
        folder / "distributions" / "part.parquet",
    )
    rows = [
        {
            "user": f"u{user}",
            "items": rated.rows[user],
            "counts": counts[user][rated.rows[user]].astype(float).tolist(),
            "ratings": rated.data[user],
            "validation_items": np.flatnonzero(held[user]).tolist(),
            "validation_counts": counts[user][held[user]].astype(float).tolist(),
            "test_items": [],
            "test_counts": [],
        }
        for user in range(n_users)
    ]
    of_items = ("items", "validation_items", "test_items")
    kinds = {name: pa.int32() if name in of_items else pa.float64() for name in rows[0]}
    schema = pa.schema(
        [(name, pa.string() if name == "user" else pa.list_(kind)) for name, kind in kinds.items()]
    )
    for shard in range(4):  # of different sizes, in several row groups
        own = rows[shard::5] + (rows[4::5] if shard == 0 else [])
        path = folder / "users" / f"part-{shard:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(own, schema), path, row_group_size=25)
    summary = {
        "format": 1,
        "n_users": n_users,
        "n_items": n_items,
        "n_pairs": int(liked.sum()),
        "checksum": "0",
    }
    (folder / "prepared.json").write_text(json.dumps(summary))
    return folder


def n_held_alone(n_items, share):
    """How many of one user's items one machine holds out, if others have them as well."""
    others = np.eye(n_items)  # of one item each, which they keep
    return hold_out(csr_array(np.vstack([np.ones((1, n_items)), others])), share=share)[1].nnz
