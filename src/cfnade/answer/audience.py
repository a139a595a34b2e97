"""The users of a table with the highest scores of an item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.answer.all_users import as_written, sql_type, write_table
from cfnade.answer.filters import top_items
from cfnade.answer.recommend import Answers
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import dislikes_alone, likes_alone
from cfnade.scorer import blocks


class Audience(NamedTuple):
    """Users for an item, highest score first."""

    users: NDArray[Any]
    """Rows of the histories, or ids of the users, (at most n,)."""
    scores: NDArray[np.float32]
    """Of the item for each user: logits, (at most n,)."""
    probabilities: NDArray[np.float64]
    """Calibrated, (at most n,); NaN without a calibrator and for users who have the item."""


def find_audiences(
    answers: Answers,
    histories: CountMatrix,
    columns: Sequence[int],
    n: int = 10,
    *,
    include_owners: bool = False,
    owned: CountMatrix | None = None,
) -> list[Audience]:
    """Find the n users with the highest score of each of some items, a block of users at a time.

    An item needs only its own row of V and column of the direct path, so a user costs little more
    than a hidden layer.

    Args:
        answers: Of the model.
        histories: Counts, (n_users, n_items). Those below 0 are dislikes: such users are left out.
        columns: Columns of the items, (n_asked,).
        n: Most users for each.
        include_owners: Keep users who have the item already.
        owned: Pairs that count as such instead of those of the histories, (n_users, n_items); see
            `ImplicitCFNADE.owned`.

    Returns:
        One for each item; users are rows of the histories.
    """
    network, asked = answers.scorer.network, np.array(columns, dtype=np.int64)
    V, d = network.weights["output_weight"][asked], network.bias[asked]
    include_seen = include_owners or owned is not None
    B = None if network.direct_weight is None else network.direct_weight[:, asked]
    nobody = (np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int64))
    best = [nobody for _ in asked]  # rows, scores, lengths of the histories
    for rows in blocks(histories.shape[0], 3 * network.config.n_hidden + asked.size):
        ratings = answers.scorer.relative_rating.transform(histories[rows])
        scores = network.hidden(ratings) @ V.T + d  # (n_block, n_asked)
        likes = likes_alone(ratings)
        if B is not None:
            ones = np.ones(likes.nnz, dtype=np.float32)
            scores += (csr_array((ones, likes.indices, likes.indptr), likes.shape) @ B).toarray()
        if include_seen:
            _score_repeats(answers, histories[rows], asked, scores)
        left_out = dislikes_alone(ratings) if include_seen else ratings
        scores[left_out[:, asked].nonzero()] = -np.inf
        if owned is not None and not include_owners:
            scores[owned[rows][:, asked].nonzero()] = -np.inf
        lengths = np.diff(likes.indptr)
        for place, own in enumerate(np.ascontiguousarray(scores.T)):
            found = best[place]
            together = np.concatenate([found[1], own])
            (top,) = top_items(together[None], n)
            user = np.concatenate([found[0], np.arange(rows.start, rows.stop)])[top]
            best[place] = (user, together[top], np.concatenate([found[2], lengths])[top])
    audiences = []
    for column, (users, scores, lengths) in zip(asked, best, strict=True):
        probabilities = np.full(users.size, np.nan)
        if answers.calibrator is not None:
            shifts = answers.dislike_shifts(
                answers.scorer.relative_rating.transform(histories[users])
            )
            probabilities = answers.calibrator.probability(scores, lengths, shifts)
            probabilities[histories[users][:, [column]].nonzero()[0]] = np.nan
        audiences.append(Audience(users, scores, probabilities))
    return audiences


def _score_repeats(
    answers: Answers,
    histories: CountMatrix,
    asked: NDArray[np.int64],
    scores: NDArray[np.floating],
) -> None:
    """Give users who have an item the score of a repeat, if there is a model of them.

    Scores are of the asked items, (n_users, n_asked), and changed in place.
    """
    likes = likes_alone(histories)
    repeats = answers.scorer.repeat_scores(likes)
    if repeats is None:
        return
    place_of = np.full(histories.shape[1], -1)
    place_of[asked] = np.arange(asked.size)
    place = place_of[likes.indices]
    rows = np.repeat(np.arange(likes.shape[0]), np.diff(likes.indptr))
    scores[rows[place >= 0], place[place >= 0]] = repeats[place >= 0]


def write_audiences(
    path: Path, item_ids: NDArray[Any], user_ids: NDArray[Any], found: Sequence[Audience]
) -> int:
    """Write audiences of some items, (n_asked,), to a Parquet file; returns the number of rows.

    Columns are `item_id`, `user_id`, `rank` from 1, `score` and `probability`, NULL where there is
    none. Users of the audiences are rows of `user_ids`. Ids that are not numbers become text.

    Raises:
        DataError: If the file cannot be written.
    """
    types = {
        "item_id": sql_type(item_ids),
        "user_id": sql_type(user_ids),
        "rank": "INTEGER",
        "score": "FLOAT",
        "probability": "FLOAT",
    }

    def batches() -> Iterator[dict[str, NDArray[Any]]]:
        for place, (users, scores, probabilities) in enumerate(found):
            yield {
                "item_id": as_written(item_ids[[place] * users.size]),
                "user_id": as_written(user_ids[users]),
                "rank": np.arange(1, users.size + 1),
                "score": scores,
                "probability": probabilities,
            }

    return write_table(path, types, batches())
