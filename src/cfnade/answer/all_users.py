"""Recommendations for every row of a matrix of counts, in blocks, by several threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.filters import Items, Ranked, rule_out, stack
from cfnade.answer.recommend import Answers, AnswerTable, rows_of
from cfnade.data.catalogue import Unknown
from cfnade.data.interactions import CountMatrix
from cfnade.scorer import blocks
from cfnade.threads import available_threads, limited_threads


def recommend_all(
    answers: Answers,
    histories: CountMatrix,
    n: int = 10,
    *,
    filter_already_liked_items: bool = True,
    filter_items: Items | None = None,
    items: Items | None = None,
    unknown: Unknown = "raise",
    block_bytes: int | None = None,
    n_threads: int | None = None,
) -> Iterator[tuple[int, AnswerTable]]:
    """Recommend for each row of counts, (n_users, n_items), a block of rows at a time.

    Filters are those of `ImplicitCFNADE.recommend`.

    Args:
        answers: Of the model.
        histories: Counts.
        n: Most items for each row.
        filter_already_liked_items: Leave out items of the history.
        filter_items: Items never to recommend.
        items: Items to choose from.
        unknown: What to do about unknown ids in the filters.
        block_bytes: Scores to hold in each thread; `BLOCK_BYTES` by default.
        n_threads: Blocks to work on at once; None for all available threads.

    Yields:
        For each block, in order: the number of rows done, and their recommendations.
    """
    only, never = answers.filters(histories.shape[0], items, filter_items, unknown)
    is_filtered = only is not None or never.columns.size > 0
    network = answers.scorer.network

    def recommend(rows: slice) -> tuple[int, AnswerTable]:
        ratings = answers.scorer.relative_rating.transform(histories[rows])
        hidden, added = network.hidden(ratings), network.direct(ratings)
        if filter_already_liked_items:
            added[rows_of(ratings), ratings.indices] = -np.inf
        for row, own in enumerate(added if is_filtered else (), start=rows.start):
            rule_out(own, None if only is None else only.of(row), never.of(row))
        found = answers.best(ratings, hidden, added, n, include_seen=not filter_already_liked_items)
        return rows.stop, found._replace(row=found.row + rows.start)

    n_users, n_items = histories.shape
    parts = blocks(n_users, 2 * n_items, block_bytes)  # scores, and the direct path
    yield from map(recommend, islice(parts, 1))  # computes what all blocks share
    n_threads = available_threads() if n_threads is None else n_threads
    if n_threads == 1:
        yield from map(recommend, parts)
    elif rest := list(parts):
        with limited_threads(1), ThreadPoolExecutor(n_threads) as pool:
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
