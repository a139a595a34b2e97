"""Batch scoring on Spark: recommendations for every history; executors need numpy, not torch.

The model's folder is shipped once to each executor and memory-mapped there, so that its Python
workers share the weights; a batch of users at a time goes through `recommend_all`.
"""

from __future__ import annotations

import logging
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfnade.answer.all_users import COLUMNS, as_columns, recommend_all
from cfnade.answer.recommend import Answers
from cfnade.beyond.history_reader import HistoryReader
from cfnade.beyond.recency import rounded
from cfnade.data.catalogue import Catalogue
from cfnade.data.ingest.columns import Columns
from cfnade.data.interactions import as_count_matrix, places_among
from cfnade.errors import DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.folders import new_folder
from cfnade.scale.cluster import for_spark, own_folder
from cfnade.scale.prepared import USERS, Prepared, lists_to_rows, parquet
from cfnade.scale.source import check_frame
from cfnade.threads import limited_threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

PARTITIONS = 200
"""Default number of partitions of users; a lost executor's partitions are repeated."""

OWNED = "owned"
"""Column of the items with the event to predict: the only ones that are not candidates."""


def score(
    frame: DataFrame,
    model: str | Path,
    out: str | Path,
    asked: Mapping[str, Any] | None = None,
    columns: Columns | None = None,
    *,
    from_text: bool = False,
    partitions: int = PARTITIONS,
) -> dict[str, int]:
    """Recommend for every user of a table.

    Histories are those of `ImplicitCFNADE.histories`: if the model weighs recent events more, or
    kinds of events, the columns of times and kinds are used.

    Args:
        frame: One row per event, or rows with counts, from any source of Spark.
        model: Folder of a saved model, on the driver.
        out: Folder of Parquet files with the columns `user_id`, `item_id`, `rank` (from 1),
            `score` and `probability` (null where there is none); where the executors can write.
        asked: How many items, and which: keywords of `recommend_all`.
        columns: Which columns hold what; those not named are recognised.
        from_text: Whether all values are text, as in a CSV.
        partitions: Of users; one task each.

    Returns:
        `n_users` with a recommendation, `n_recommendations`, and `n_unknown_pairs`, left out
        because the model does not know the item.

    Raises:
        DataError: If the data cannot be used, the model knows none of its items, or one of its
            kinds of events not, or the folder holds something else.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    loaded = ImplicitCFNADE.load(model)  # verified here, once
    catalogue, reader = loaded.catalogue_, loaded.answers_.reader
    checked = check_frame(
        frame,
        columns,
        from_text=from_text,
        with_times=reader.half_life > 0,
        with_kinds=bool(reader.kinds),
    )
    weights, target = reader.weights_for(checked.kinds)
    half_life = reader.half_life_for(checked.clock)
    leaves_candidates = reader.target is not None and loaded.answers_.scores_history
    known = _as_frame(frame.sparkSession, catalogue, dict(checked.rows.dtypes)["item_id"])
    seen = Observation()
    n_unknown = F.count_if(F.col("code").isNull()).alias("n_unknown")
    pairs = (
        checked.pairs(partitions, weights=weights, half_life=half_life, target=target)
        .withColumn("item_id", F.col("item_id").cast(known.schema["item_id"].dataType))
        .join(F.broadcast(known), "item_id", "left")
        .observe(seen, n_unknown, F.count(F.lit(1)).alias("n_pairs"))
    )
    is_known = F.col("code").isNotNull()
    in_history = F.when(is_known & (F.col("n") != 0), F.struct("code", "n"))
    lists = [F.sort_array(F.collect_list(in_history)).alias("known")]
    if leaves_candidates:
        lists.append(F.collect_list(F.when(is_known & F.col("is_owned"), F.col("code"))))
        lists[-1] = F.sort_array(lists[-1]).alias(OWNED)
    histories = pairs.groupBy("user_id").agg(*lists)
    histories = histories.selectExpr(
        "user_id",
        "known.code AS items",
        "known.n AS counts",
        *([OWNED] if leaves_candidates else []),
    )
    written = _recommend(histories, model, out, asked, catalogue, is_recent=half_life > 0)
    unknown, n_pairs = seen.get["n_unknown"], seen.get["n_pairs"]
    if unknown == n_pairs:
        raise DataError(
            f"the model knows none of the items: its own look like {catalogue.ids[0]!r}; the "
            f"recommendations in {out} are for empty histories"
        )
    if unknown:
        logger.warning("%d of %d pairs have items that the model lacks", unknown, n_pairs)
    return {**written, "n_unknown_pairs": unknown}


def score_prepared(
    session: SparkSession,
    folder: str | Path,
    model: str | Path,
    out: str | Path,
    asked: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Recommend for every user of a prepared folder, by all of their items, held out or not.

    Nothing is exchanged between machines. A shard is one task, or several if it is large.
    Arguments and result are as in `score`; `folder` is what `prepare` wrote.
    Raises `DataError` if the model lacks an item, or weighs events in another way.
    """
    loaded, prepared = ImplicitCFNADE.load(model), Prepared.open(folder)
    _check_reading(loaded.answers_.reader, prepared)
    catalogue = loaded.catalogue_
    column_of = places_among(prepared.catalogue.ids, catalogue.ids, catalogue.column_of)
    if (column_of < 0).any():
        raise DataError(
            f"{np.count_nonzero(column_of < 0)} of {prepared.n_items} prepared items are not in "
            "the model; score the original table, or train the model again"
        )
    histories = session.read.parquet(for_spark(prepared.folder / USERS)).selectExpr(
        "user AS user_id",
        "concat(items, validation_items, test_items) AS items",
        "concat(counts, validation_counts, test_counts) AS counts",
    )
    cost, most = "spark.sql.files.openCostInBytes", "spark.sql.files.maxPartitionBytes"
    before = session.conf.get(cost)
    session.conf.set(cost, str(session.conf.get(most)))  # at most one file per task
    try:
        written = _recommend(histories, model, out, asked, catalogue, column_of)
        return {**written, "n_unknown_pairs": 0}
    finally:
        session.conf.set(cost, str(before))


def _check_reading(reader: HistoryReader, prepared: Prepared) -> None:
    """Warn of what the model would read but a prepared folder lacks; refuse other weights."""
    reader.half_life_for(None)
    weights = prepared.event_weights or {}
    if prepared.clock and prepared.summary["n_test_pairs"] and min(weights.values(), default=0) < 0:
        raise DataError(
            f"{prepared.folder} adds up events before and after the split apart, which differs for "
            "weights below 0; score the original table"
        )
    if prepared.event_weights is None:
        reader.weights_for(())
    elif prepared.event_weights != reader.weights:
        raise DataError(
            f"{prepared.folder} was prepared with the event weights {prepared.event_weights}, the "
            f"model has {reader.weights}; score the original table"
        )
    elif reader.target is not None:
        logger.warning(
            "a prepared folder does not say which pairs have the event %r: all items of a "
            "history are left out",
            reader.target,
        )


def _as_frame(session: SparkSession, catalogue: Catalogue, kind: str) -> DataFrame:
    """`item_id` and `code`, its column; ids are text if the types differ."""
    import pyarrow as pa

    ids = catalogue.ids.tolist()
    is_text = kind == "string" or not all(isinstance(item, int) for item in ids)
    written = pa.array([str(item) for item in ids] if is_text else ids)
    codes = pa.array(np.arange(len(ids), dtype=np.int32))
    return session.createDataFrame(pa.table({"item_id": written, "code": codes}))


def _recommend(
    histories: DataFrame,
    model: str | Path,
    out: str | Path,
    asked: Mapping[str, Any] | None,
    catalogue: Catalogue,
    column_of: NDArray[np.integer] | None = None,
    *,
    is_recent: bool = False,
) -> dict[str, int]:
    """Write recommendations, and move them into place at the end: a failed job leaves the old."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    out = own_folder(out)
    _check_place(out)
    user_type = histories.schema["user_id"].dataType.simpleString()
    item_type = "bigint" if _are_numbers(catalogue) else "string"
    schema = f"user_id {user_type}, item_id {item_type}, rank int, score float, probability float"
    name = _ship(histories.sparkSession, Path(model))
    task = partial(
        _recommend_batches,
        archive=name,
        asked=asked or {},
        column_of=column_of,
        is_recent=is_recent,
    )
    written = Observation()
    n_users, n_rows = F.count_if(F.col("rank") == 1), F.count(F.lit(1))
    found = histories.mapInArrow(task, schema).observe(
        written, n_users.alias("n_users"), n_rows.alias("n_recommendations")
    )
    with new_folder(out) as new:
        found.write.parquet(for_spark(new), mode="overwrite", compression="zstd")
    return written.get


def _check_place(out: Path) -> None:
    """Refuse to replace anything but recommendations, complete or not."""
    is_ours = out.is_dir() and all(_is_part_of_ours(path) for path in out.iterdir())
    if out.exists() and not is_ours:
        raise DataError(
            f"{out} exists and holds more than recommendations ({', '.join(COLUMNS)}); choose "
            "another place"
        )


def _is_part_of_ours(path: Path) -> bool:
    """Whether Spark wrote this file, with our columns or as a marker."""
    if path.suffix == ".parquet" and path.is_file():
        try:
            return tuple(parquet().read_schema(path).names) == COLUMNS
        except (OSError, ValueError):
            return False
    return path.name in ("_SUCCESS", "_temporary") or path.name.endswith(".crc")


def _ship(session: SparkSession, model: Path) -> str:
    """Ship a folder to the executors; return its name there.

    It is never removed: executors that start later ask for all archives.
    """
    name = f"cfnade-model-{uuid.uuid4().hex}"
    packed = Path(session.sparkContext._temp_dir) / f"{name}.tar"
    with tarfile.open(packed, "w") as archive:
        for path in sorted(model.iterdir()):
            archive.add(path, path.name)
    session.sparkContext.addArchive(f"{packed}#{name}")
    return name


def _recommend_batches(
    batches: Iterable[Any],
    *,
    archive: str,
    asked: Mapping[str, Any],
    column_of: NDArray[np.integer] | None,
    is_recent: bool,
) -> Iterator[Any]:
    """One task: from `user_id`, `items`, `counts` and perhaps `OWNED` to recommendations, in Arrow.

    With `is_recent`, counts are sums of decayed events and are rounded as in `recent_counts`.
    """
    import pyarrow as pa
    from pyspark import SparkFiles

    answers = _answers(SparkFiles.get(archive))
    item_ids = answers.catalogue.ids
    with limited_threads(1):  # one task per core
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if table.num_rows == 0:
                continue
            rows = lists_to_rows(table, "items", "counts", len(item_ids))
            if column_of is not None:
                rows.indices = column_of[rows.indices]
            if is_recent:
                rows.data = np.where(rows.data > 0, rounded(rows.data), rows.data)
            rows.data = np.where(rows.data > 0, rows.data, -1.0)  # else dislikes
            left_out = None
            if OWNED in table.column_names:
                left_out = as_count_matrix(lists_to_rows(table, OWNED, None, len(item_ids)))
            user_ids = table.column("user_id").to_numpy()
            item_type = pa.int64() if _are_numbers(answers.catalogue) else pa.string()
            user_type = table.schema.field("user_id").type
            types = (user_type, item_type, pa.int32(), pa.float32(), pa.float32())
            counts = as_count_matrix(rows, signed=True)
            found_all = recommend_all(answers, counts, **asked, owned=left_out, n_threads=1)
            for _, found in found_all:
                columns = as_columns(user_ids, found, item_ids).values()
                arrays = [
                    pa.array(values, from_pandas=True).cast(kind)
                    for values, kind in zip(columns, types, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, list(COLUMNS))


def _are_numbers(catalogue: Catalogue) -> bool:
    """Whether item ids are numbers, else text."""
    return catalogue.ids.dtype.kind in "iu"


@lru_cache(maxsize=1)
def _answers(folder: str) -> Answers:
    """The answers of the model, mapped once per worker."""
    return ImplicitCFNADE.load(folder, verify=False).answers_
