"""Commands for several machines: `scale prepare`, `scale train` and `scale score`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cfnade.cli import console, options
from cfnade.cli.cmd_recommend import Exclude, IncludeSeen, ModelOnDisk, N, Only
from cfnade.cli.dial_options import DialOptions
from cfnade.errors import ConfigError
from cfnade.estimator import ImplicitCFNADE
from cfnade.progress import fit_progress
from cfnade.scale.cluster import format_of, own_folder, read_frame, spark_errors, spark_session
from cfnade.scale.prepare import PrepareConfig, prepare
from cfnade.scale.prepared import SUMMARY
from cfnade.scale.shard_training import train_on_spark, train_prepared
from cfnade.scale.spark_scoring import PARTITIONS, score, score_prepared
from cfnade.storage.folder import check_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cfnade.data.event_splits import SplitBy

Source = Annotated[
    str, typer.Argument(metavar="DATA", help="Files, a folder or a glob for Spark, or a table.")
]
Prepared = Annotated[
    Path, typer.Argument(metavar="PREPARED", help="Folder written by `scale prepare`.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="csv|parquet|orc|json|table",
        help="Format of DATA: one of these, or any that Spark reads.",
        show_default="by the file name",
    ),
]


@dataclass(frozen=True)
class SparkOptions:
    """The cluster to run on."""

    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The cluster, such as spark://host:7077.",
            show_default="from spark-submit, or this machine",
        ),
    ] = None
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark setting; repeatable.")
    ] = None

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A Spark session for one command; errors of Spark end in one line."""
        settings = options.parse_pairs(self.conf, "--conf", "spark.executor.memory=8g")
        session = spark_session(self.master, settings)
        session.sparkContext.setLogLevel("ERROR")
        try:
            with spark_errors():
                yield session
        finally:
            session.stop()


commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Prepare, train and score on Spark and in several processes.",
)


@options.command(
    commands,
    "prepare",
    example="cfnade scale prepare plays.parquet --out prepared --master spark://host:7077",
)
def prepare_command(
    data: Source,
    out: Annotated[Path, typer.Option(help="Folder to write, visible to all machines.")],
    *,
    table: options.TableOptions,
    split: options.Split = None,
    test_share: options.TestShare = 0.0,
    validation_share: Annotated[
        float, typer.Option(help="Share of items, or of the events, to hold out for validation.")
    ] = 0.1,
    validation_users: Annotated[
        int, typer.Option(help="Approximate number of users who are judged.")
    ] = 10_000,
    shards: Annotated[
        int, typer.Option(help="Number of files: at least one per training process.")
    ] = 16,
    seed: options.Seed = 0,
    file_format: Format = None,
    spark: SparkOptions,
    json_file: options.Json = None,
) -> None:
    """Turn events or counts into shards for training, on Spark."""
    if table.target_event is not None:
        raise ConfigError(
            "training on shards predicts any event: leave out --target-event, or use `cfnade fit`"
        )
    config = PrepareConfig(
        min_user_items=table.min_user_items,
        min_item_users=table.min_item_users,
        split=cast("SplitBy | None", split),
        test_share=test_share,
        validation_share=validation_share,
        validation_users=validation_users,
        seed=seed,
        shards=shards,
        event_weights=options.parse_event_weights(table.event_weights),
    )
    out = own_folder(out)
    with spark.session() as session:
        frame = read_frame(session, data, file_format)
        facts = prepare(frame, out, config, table, from_text=_is_text(data, file_format))
    shown = {name: value for name, value in facts.items() if name != "settings"}
    console.report(console.facts_table(str(out), shown), facts, json_file)


@options.command(
    commands,
    "train",
    example="torchrun --nproc-per-node=4 -m cfnade scale train prepared --out model",
)
def train_command(
    prepared: Prepared,
    out: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    *,
    items: options.ItemsTables = None,
    recipe: options.Recipe = "default",
    settings: options.Set = None,
    seed: options.Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    spark_processes: Annotated[
        int | None,
        typer.Option(help="Let Spark start this many processes instead of torchrun.", min=1),
    ] = None,
    spark: SparkOptions,
) -> None:
    """Train a model on a prepared folder, in one process or in several started by torchrun.

    A checkpoint beside the model (OUT.checkpoint) serves --resume; processes that torchrun
    restarts (--max-restarts) continue from it by themselves.
    """
    out = own_folder(out)
    check_place(out)
    changes = {"random_state": seed, "recipe": recipe, **options.parse_settings(settings)}
    model = ImplicitCFNADE().set_params(**changes)
    chosen = model.get_params(deep=False)
    if spark_processes is not None:
        with spark.session() as session:
            outcome = train_on_spark(
                session,
                prepared,
                out,
                chosen,
                n_processes=spark_processes,
                items=items,
                resume=resume,
            )
    else:
        if spark.master is not None or spark.conf:
            raise ConfigError("--master and --conf need --spark-processes")
        with fit_progress() as callbacks:
            outcome = train_prepared(
                prepared, out, chosen, items=items, resume=resume, callbacks=callbacks
            )
    if os.environ.get("RANK", "0") != "0":
        return
    judged = "".join(
        f", {part} MPR {mpr:.2f} %"
        for part, mpr in (("validation", outcome.validation_mpr), ("test", outcome.test_mpr))
        if mpr is not None
    )
    again = f" (resumed after epoch {outcome.resumed_after})" if outcome.resumed_after else ""
    sent = f", {outcome.bytes_per_update / 1e6:.2f} MB sent per update"
    typer.echo(
        f"trained for {outcome.best_epoch} epochs{again} in {outcome.seconds:.1f} s{judged}"
        f"{sent if outcome.bytes_per_update else ''}; saved to {out}"
    )


@options.command(
    commands,
    "score",
    example="cfnade scale score model --data plays.parquet --out recommended "
    "--master spark://host:7077",
)
def score_command(
    model: options.Model,
    data: Annotated[
        str, typer.Option(help="Histories: as for `scale prepare`, or a prepared folder.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of Parquet files, visible to all machines.")],
    *,
    columns: options.ColumnOptions,
    n: N = 10,
    exclude: Exclude = None,
    only: Only = None,
    include_seen: IncludeSeen = False,
    dials: DialOptions,
    partitions: Annotated[
        int, typer.Option(help="Number of tasks to split the users of a table into.", min=1)
    ] = PARTITIONS,
    file_format: Format = None,
    spark: SparkOptions,
    json_file: options.Json = None,
) -> None:
    """Recommend for all users of a table, on Spark."""
    out = own_folder(out)
    known = ModelOnDisk(model)
    filters = known.filters(exclude, only, include_seen=include_seen)
    asked = {"n": n, **filters, "dials": dials.read(known.lookup)}
    with spark.session() as session:
        if (Path(data) / SUMMARY).exists():
            if columns != options.ColumnOptions():
                raise ConfigError("a prepared folder has no columns to choose; leave them out")
            scored = score_prepared(session, data, model, out, asked)
        else:
            frame, is_text = read_frame(session, data, file_format), _is_text(data, file_format)
            scored = score(
                frame, model, out, asked, columns, from_text=is_text, partitions=partitions
            )
    facts: dict[str, Any] = {"folder": str(out), **scored}
    console.report(console.facts_table("recommendations", facts), facts, json_file)


def _is_text(data: str, file_format: str | None) -> bool:
    return (file_format or format_of(data)) == "csv"
