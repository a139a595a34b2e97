"""Recommendations for all users of a table, in one Parquet file, a block of users at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.interactions import CountMatrix
from cfnade.errors import DataError
from cfnade.scorer import blocks

if TYPE_CHECKING:
    from cfnade.estimator import ImplicitCFNADE


def write_recommendations(
    model: ImplicitCFNADE,
    histories: CountMatrix,
    user_ids: NDArray[Any],
    path: Path,
    n: int = 10,
    *,
    progress: Callable[[int], None] | None = None,
    **filters: Any,
) -> int:
    """Recommend for many users and write a table.

    It has the columns `user_id`, `item_id`, `rank` (from 1) and `probability`, users in the order
    given, best items first. The file appears when it is complete; what was there stays until
    then. Ids that are not numbers are written as text.

    Args:
        model: A fitted model.
        histories: Counts, (n_users, n_items).
        user_ids: Id of each row, (n_users,).
        path: Where it goes.
        n: Items for each user at most.
        progress: Called with the number of users done.
        filters: Passed on to `ImplicitCFNADE.recommend`; the same for all users.

    Returns:
        Number of rows written.

    Raises:
        DataError: If it cannot be written.
    """
    import duckdb  # late: recommending does without it

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise DataError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        with duckdb.connect(str(folder / "rows.duckdb")) as connection:
            connection.execute(
                f"CREATE TABLE rows (user_id {_sql_type(user_ids)}, "
                f"item_id {_sql_type(model.catalogue_.ids)}, rank INTEGER, probability FLOAT)"
            )
            n_written = 0
            for rows in blocks(*histories.shape):
                users = user_ids[rows]
                ids, scores = model.recommend(users, histories[rows], n, **filters)
                columns = as_columns(users, ids, scores)
                n_rows = len(columns["rank"])
                if n_rows:
                    connection.register("columns", columns)
                    connection.execute("INSERT INTO rows SELECT * FROM columns")
                    connection.unregister("columns")
                n_written += n_rows
                if progress is not None:
                    progress(rows.stop)
            whole = folder / "rows.parquet"
            quoted = str(whole).replace("'", "''")
            connection.execute(f"COPY rows TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
        whole.replace(path)
    except (OSError, duckdb.IOException) as error:
        raise DataError(f"cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return n_written


def as_columns(
    users: NDArray[Any], ids: Iterable[NDArray[Any]], scores: Iterable[NDArray[np.float32]]
) -> dict[str, NDArray[Any]]:
    """Recommendations for many users as the columns of a table, one row for each.

    Args:
        users: Their ids, (n_users,).
        ids: Items recommended to each, best first.
        scores: Their probabilities.

    Returns:
        `user_id`, `item_id`, `rank` and `probability`; ids that are not numbers as text.
    """
    ids, scores = list(ids), list(scores)
    lengths = [len(row) for row in scores]
    if not sum(lengths):
        return {name: np.empty(0) for name in ("user_id", "item_id", "rank", "probability")}
    return {
        "user_id": _as_written(np.repeat(users, lengths)),
        "item_id": _as_written(np.concatenate(ids)),
        "rank": np.concatenate([np.arange(1, k + 1) for k in lengths]),
        "probability": np.concatenate(scores),
    }


def _sql_type(ids: NDArray[Any]) -> str:
    """Numbers stay numbers, all else is written as text."""
    return {"i": "BIGINT", "u": "UBIGINT", "f": "DOUBLE"}.get(ids.dtype.kind, "VARCHAR")


def _as_written(ids: NDArray[Any]) -> NDArray[Any]:
    if ids.dtype.kind in "iuf":
        return ids
    return np.array([str(value) for value in ids.tolist()], dtype=object)
