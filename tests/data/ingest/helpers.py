"""What the tests of ingest share."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from cfnade.data.interactions import Interactions


def pairs(interactions: Interactions) -> dict[tuple[Hashable, Hashable], float]:
    """Count by (user id, item id)."""
    counts = interactions.counts.tocoo()
    users = interactions.user_ids[counts.row].tolist()
    items = interactions.item_ids[counts.col].tolist()
    return dict(zip(zip(users, items, strict=True), counts.data.tolist(), strict=True))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def write_parquet(path: Path, **columns: Any) -> Path:
    """Columns as lists or numpy arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    for name, array in arrays.items():
        if array.dtype.kind == "U":
            arrays[name] = array.astype(object)
    return write_query(path, "SELECT * FROM rows", arrays)


def write_query(path: Path, query: str, rows: dict[str, Any] | None = None) -> Path:
    """A Parquet or CSV file of what a query gives."""
    kind = "csv, HEADER" if path.suffix == ".csv" else "parquet"
    quoted = str(path).replace("'", "''")
    with duckdb.connect() as connection:
        if rows is not None:
            connection.register("rows", rows)
        connection.execute(f"COPY ({query}) TO '{quoted}' (FORMAT {kind})")
    return path
