"""Recommendations for all users, a block at a time: as arrays, or in one Parquet file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.dials import Dials
from cfnade.answer.filters import Items, Ranked, rule_out, stack
from cfnade.answer.recommend import Answers, AnswerTable
from cfnade.data.catalogue import Unknown
from cfnade.data.ingest.scan import OFFLINE
from cfnade.data.interactions import CountMatrix
from cfnade.data.pairs import rows_of
from cfnade.data.ratings import dislikes_alone, likes_alone
from cfnade.errors import DataError
from cfnade.folders import temporary_folder
from cfnade.model.inference import rows_between
from cfnade.scorer import blocks
from cfnade.threads import available_threads, has_fast_int8, limited_threads, one_thread

COLUMNS = ("user_id", "item_id", "rank", "score", "probability")
"""Of the table of recommendations."""

_QUICK_PAYS = 10_000_000  # scores from which preparing a `QuickNetwork` saves time
_TORCH_PAYS = 150_000_000  # scores from which importing torch for it does, too


def recommend_all(
    answers: Answers,
    histories: CountMatrix,
    n: int = 10,
    *,
    filter_already_liked_items: bool = True,
    owned: CountMatrix | None = None,
    filter_items: Items | None = None,
    items: Items | None = None,
    dials: Dials | None = None,
    unknown: Unknown = "raise",
    block_bytes: int | None = None,
    n_threads: int | None = None,
) -> Iterator[tuple[int, AnswerTable]]:
    """Recommend for each row of counts, (n_users, n_items), a block of rows at a time.

    Filters are those of `ImplicitCFNADE.recommend`. Disliked items are never recommended.

    Args:
        answers: Of the model.
        histories: Counts; those below 0 are dislikes.
        n: Most items for each row.
        filter_already_liked_items: Leave out items of the history.
        owned: Leave out these pairs instead, (n_users, n_items); see `ImplicitCFNADE.owned`.
        filter_items: Items never to recommend.
        items: Items to choose from.
        dials: What to prefer in all of the lists.
        unknown: What to do about unknown ids in the filters and dials.
        block_bytes: Scores to hold in each thread; `BLOCK_BYTES` by default.
        n_threads: Blocks to work on at once; None for all available threads.

    Yields:
        For each block, in order: the number of rows done, and their recommendations.
    """
    only, never = answers.filters(histories.shape[0], items, filter_items, unknown)
    reranking = answers.reranking(dials, n, unknown)
    is_filtered = only is not None or never.columns.size > 0
    include_seen = not filter_already_liked_items or owned is not None
    network = answers.scorer.network
    n_users, n_items = histories.shape
    pays = n_users * n_items >= (_QUICK_PAYS if "torch" in sys.modules else _TORCH_PAYS)
    quick = answers.quick if pays and has_fast_int8() else None
    answers.scorer.relative_rating.prepare(histories.nnz)

    def recommend(rows: slice) -> tuple[int, AnswerTable]:
        counts = histories[rows]
        ratings = answers.scorer.relative_rating.transform(counts)
        direct, hidden = network.direct_terms(ratings), (quick or network).hidden(ratings)
        left_out = dislikes_alone(ratings) if include_seen else ratings
        row_of = rows_of(left_out)

        def added(some: slice) -> NDArray[np.float32]:
            scores = np.asarray(rows_between(direct, some).toarray())
            own_pairs = slice(*left_out.indptr[[some.start, some.stop]])
            scores[row_of[own_pairs] - some.start, left_out.indices[own_pairs]] = -np.inf
            if filter_already_liked_items and owned is not None:
                owned_here = owned[rows.start + some.start : rows.start + some.stop]
                scores[rows_of(owned_here), owned_here.indices] = -np.inf
            for row, own in enumerate(scores if is_filtered else (), rows.start + some.start):
                rule_out(own, None if only is None else only.of(row), never.of(row))
            if include_seen:
                answers.score_repeats(ratings[some], counts[some].data, hidden[some], scores)
            return scores

        found = answers.best(
            likes_alone(ratings),
            hidden,
            added,
            n,
            include_seen=include_seen,
            reranking=reranking,
            quick=quick,
            shifts=answers.dislike_shifts(ratings),
        )
        return rows.stop, found._replace(row=found.row + rows.start)

    n_arrays = 1 if reranking is None else 3  # scores; the direct path, and it with the shift
    parts = blocks(n_users, n_arrays * n_items, block_bytes)
    n_threads = available_threads() if n_threads is None else n_threads
    if n_threads == 1:
        with limited_threads(1) if quick else nullcontext():  # torch may be new to the limits
            yield from map(recommend, parts)
        return
    yield from map(recommend, islice(parts, 1))  # computes what all blocks share
    if rest := list(parts):
        with limited_threads(1), ThreadPoolExecutor(n_threads, initializer=one_thread) as pool:
            yield from pool.map(recommend, rest)


def by_row(found: Iterable[AnswerTable], ids: NDArray[Any], n_rows: int, n: int) -> Ranked:
    """Item ids and scores of all blocks by row, in the shapes of `stack`."""
    parts = list(found)
    if not parts:
        return stack([], ids, n)
    row, column, score = (np.concatenate(part) for part in list(zip(*parts, strict=True))[:3])
    lengths = np.bincount(row, minlength=n_rows)
    if (lengths == lengths[0]).all():
        return ids[column].reshape(n_rows, -1), score.reshape(n_rows, -1)
    ends = np.cumsum(lengths)[:-1]
    return stack(list(zip(np.split(ids[column], ends), np.split(score, ends), strict=True)), ids, n)


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
    done; `filters` are keywords of `recommend_all`.

    Raises:
        DataError: If the file cannot be written.
    """
    ids = answers.catalogue.ids
    types = {
        "user_id": sql_type(user_ids),
        "item_id": sql_type(ids),
        "rank": "INTEGER",
        "score": "FLOAT",
        "probability": "FLOAT",
    }

    def batches() -> Iterator[dict[str, NDArray[Any]]]:
        for n_done, found in recommend_all(answers, histories, n, **filters):
            yield as_columns(user_ids, found, ids)
            if progress is not None:
                progress(n_done)

    return write_table(path, types, batches())


def write_table(
    path: Path, types: Mapping[str, str], batches: Iterable[Mapping[str, NDArray[Any]]]
) -> int:
    """Write batches of columns to a Parquet file; returns the number of rows.

    Columns have the names and SQL types of `types`, in its order; NaN becomes NULL in a column
    called `probability`. The file is replaced when the new one is complete.

    Raises:
        DataError: If the file cannot be written.
    """
    import duckdb  # late: recommending does without it

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        with (
            temporary_folder(f".{path.name}", path.parent) as folder,
            duckdb.connect(str(folder / "rows.duckdb"), config=OFFLINE) as connection,
        ):
            declared = ", ".join(f"{name} {kind}" for name, kind in types.items())
            connection.execute(f"CREATE TABLE rows ({declared})")
            n_written = 0
            for columns in batches:
                if len(columns["rank"]):
                    connection.register("columns", {name: columns[name] for name in types})
                    connection.execute(
                        "INSERT INTO rows SELECT * REPLACE (CASE WHEN isnan(probability) THEN NULL "
                        "ELSE probability END AS probability) FROM columns"
                    )
                    connection.unregister("columns")
                n_written += len(columns["rank"])
            whole = folder / "rows.parquet"
            quoted = str(whole).replace("'", "''")
            connection.execute(f"COPY rows TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
            whole.replace(path)
    except (OSError, duckdb.IOException) as error:
        raise DataError(f"cannot write {path}: {error}") from error
    return n_written


def as_columns(
    user_ids: NDArray[Any], found: AnswerTable, item_ids: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Recommendations for many users as the `COLUMNS` of a table, one row for each.

    Ids that are not numbers become text; the probability is NaN where there is none.
    """
    return {
        "user_id": as_written(user_ids[found.row]),
        "item_id": as_written(item_ids[found.column]),
        "rank": found.rank,
        "score": found.score,
        "probability": found.probability,
    }


def sql_type(ids: NDArray[Any]) -> str:
    """The SQL type of ids: numbers stay numbers, everything else is text."""
    return {"i": "BIGINT", "u": "UBIGINT", "f": "DOUBLE"}.get(ids.dtype.kind, "VARCHAR")


def as_written(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids as they are written: numbers, or text."""
    if ids.dtype.kind in "iuf":
        return ids
    return np.array([str(value) for value in ids.tolist()], dtype=object)
