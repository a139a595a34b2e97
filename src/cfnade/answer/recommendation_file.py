"""Recommendations for all users of a table in one Parquet file, a block of users at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.all_users import recommend_all
from cfnade.answer.recommend import Answers, AnswerTable
from cfnade.data.interactions import CountMatrix
from cfnade.errors import DataError

COLUMNS = ("user_id", "item_id", "rank", "score", "probability")
"""Of the table."""


def write_recommendations(
    answers: Answers,
    histories: CountMatrix,
    user_ids: NDArray[Any],
    path: Path,
    n: int = 10,
    *,
    progress: Callable[[int], None] | None = None,
    **filters: Any,
) -> int:
    """Write at most n recommendations for each row of counts; returns the number of rows written.

    The `COLUMNS` have ranks from 1, and NULL where there is no probability. Users are in the order
    of `user_ids`, (n_users,), best items first. Ids that are not numbers are written as text. The
    file is replaced when the new one is complete. `progress` is called with the number of users
    done; `filters` are those of `recommend_all`.

    Raises:
        DataError: If the file cannot be written.
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
                f"item_id {_sql_type(answers.catalogue.ids)}, rank INTEGER, score FLOAT, "
                "probability FLOAT)"
            )
            n_written = 0
            for n_done, found in recommend_all(answers, histories, n, **filters):
                columns = as_columns(user_ids, found, answers.catalogue.ids)
                if len(columns["rank"]):
                    connection.register("columns", columns)
                    connection.execute(
                        "INSERT INTO rows SELECT * REPLACE (CASE WHEN isnan(probability) THEN NULL "
                        "ELSE probability END AS probability) FROM columns"
                    )
                    connection.unregister("columns")
                n_written += len(columns["rank"])
                if progress is not None:
                    progress(n_done)
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
    user_ids: NDArray[Any], found: AnswerTable, item_ids: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Recommendations for many users as the `COLUMNS` of a table, one row for each.

    Ids that are not numbers become text; the probability is NaN where there is none.
    """
    return {
        "user_id": _as_written(user_ids[found.row]),
        "item_id": _as_written(item_ids[found.column]),
        "rank": found.rank,
        "score": found.score,
        "probability": found.probability,
    }


def _sql_type(ids: NDArray[Any]) -> str:
    """Numbers stay numbers, everything else is text."""
    return {"i": "BIGINT", "u": "UBIGINT", "f": "DOUBLE"}.get(ids.dtype.kind, "VARCHAR")


def _as_written(ids: NDArray[Any]) -> NDArray[Any]:
    if ids.dtype.kind in "iuf":
        return ids
    return np.array([str(value) for value in ids.tolist()], dtype=object)
