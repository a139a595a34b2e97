"""Training on the shards of a prepared folder, in one process or in several that share them.

`torchrun` starts the processes, or Spark does (`train_on_spark`); each calls `train_prepared`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import vstack

from cfnade.beyond.readout import NO_READOUT, Readout
from cfnade.checkpoints import open_checkpoints, remove_checkpoints
from cfnade.checks import check_at_least
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, MissingExtraError, TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.plan import FitPlan
from cfnade.fit.settings import FitSettings, to_json
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.model.batches import Exchange
from cfnade.model.config import Precision
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.progress import Callbacks
from cfnade.scale.cluster import own_folder, reason_of
from cfnade.scale.prepared import Prepared
from cfnade.storage.folder import Artifact, check_place, save_artifact
from cfnade.threads import available_threads, limited_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cfnade.model.training import Epoch, Validate

logger = logging.getLogger(__name__)

_REFUSED = {
    "relative_rating": "it is part of the prepared folder",
    "validation_share": "use `scale prepare --validation-share`",
    "validation_by": "the folder is split by pairs",
    "memory_limit": "only one row group per shard is in memory",
    "choose_by": "epochs are chosen by MPR",
    "recipe__trials": "it trains once",
    "recipe__start": "factors need all users in memory",
    **{f"readout__{field.name}": "there is no readout" for field in fields(Readout)},
}
"""Settings that cannot be changed here, and why."""


@dataclass(frozen=True)
class TrainedModel:
    """The result of a training, the same in every process."""

    best_epoch: int
    """Epochs that the network was trained for."""

    validation_mpr: float | None
    """Of that epoch, in percent; None without a validation part."""

    test_mpr: float | None
    """Of the network on the test part, in percent; None without one."""

    resumed_after: int
    """Epochs of the checkpoint; 0 if the run did not resume."""

    bytes_per_update: float
    """Mean number of bytes that each process sent per update in this run; 0 alone."""

    seconds: float
    """Of all epochs, including those before a resume."""


def train_prepared(
    folder: str | Path,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    callbacks: Callbacks | None = None,
) -> TrainedModel:
    """Train on a prepared folder and save the model; all processes call this alike.

    Network, objective and settings are those of `ImplicitCFNADE.fit`. There is no readout: the
    direct path needs all users at once. The first process keeps a checkpoint beside the model
    (OUT.checkpoint), which all processes must see in order to resume.

    Args:
        folder: A prepared folder that every process can read.
        out: Folder to save the model in.
        settings: Keywords of `ImplicitCFNADE`.
        resume: Continue from the checkpoint. Processes restarted by `torchrun` always do.
        callbacks: For progress, in the first process.

    Raises:
        ConfigError: If a setting is invalid here.
        DataError: If the folder cannot be used.
        TrainingError: If the loss is not finite, or another process is lost.
        MissingExtraError: If torch or pyarrow is not installed.
    """
    try:
        from cfnade.model.training import train
        from cfnade.scale import process_group as processes
        from cfnade.scale.shards import ShardedRows
    except ImportError as error:
        raise MissingExtraError("torch", "train", "training") from error
    prepared, out = Prepared.open(folder), own_folder(out)
    check_place(out)
    kept = out.with_name(out.name + ".checkpoint")
    checkpoint = kept / "training"
    estimator = ImplicitCFNADE().set_params(**(settings or {}))
    _check(estimator.get_params())
    chosen = FitSettings.of(estimator.get_params(deep=False))
    recipe = replace(chosen.recipe, start="random", readout=NO_READOUT)
    threads = available_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    n_threads = limited_threads(chosen.n_threads or max(1, threads))
    with n_threads, processes.joined() as exchange, ExitStack() as stack:
        place = {"process": processes.process_number(), "n_processes": processes.n_processes()}
        rows = ShardedRows(prepared, recipe.alpha, **place)
        sizes = (rows.n_users, prepared.n_items, int(rows.n_watchers.sum()))
        plan = FitPlan.of_size(*sizes, replace(chosen, recipe=recipe))
        is_rounded = processes.from_first(exchange, [plan.training.precision == "bfloat16"])[0]
        precision: Precision = "bfloat16" if is_rounded else "float32"  # machines may differ
        plan = replace(plan, training=replace(plan.training, precision=precision))
        is_again = processes.is_started_again(exchange)
        wanted = resume or (is_again and checkpoint.exists())
        resume = bool(processes.from_first(exchange, [wanted])[0])  # all follow the first
        if exchange.is_first:
            stack.enter_context(open_checkpoints(kept, resume=resume))
        shown = (exchange.is_first and callbacks) or Callbacks()
        shown.plan({"training": 1.0}, plan.training.max_epochs)
        shown.begin("training")
        epochs: list[Epoch] = []  # of this run

        def on_epoch(epoch: Epoch) -> None:
            epochs.append(epoch)
            if shown.on_epoch is not None:
                shown.on_epoch(epoch)

        n_bytes = exchange.n_bytes
        trained = train(
            plan.model,
            plan.training,
            rows,
            exchange=exchange,
            validate=_validator(prepared, exchange),
            on_epoch=on_epoch,
            on_step=shown.on_step,
            checkpoint=checkpoint,
            resume=resume,
        )
        n_bytes = exchange.n_bytes - n_bytes
        n_updates = len(epochs) * plan.training.updates_per_epoch(rows.n_users)
        test_mpr = None
        if prepared.summary.get("n_test_pairs"):
            pieces = prepared.held_out("test", rows.own_paths)
            test_mpr = _mpr(trained.network, prepared.relative_rating, pieces, exchange)
        outcome = TrainedModel(
            trained.best_epoch,
            trained.epochs[trained.best_epoch - 1].validation_mpr if trained.best_epoch else None,
            test_mpr,
            len(trained.epochs) - len(epochs),
            n_bytes / max(1, n_updates),
            trained.epochs[-1].seconds if trained.epochs else 0.0,
        )
        if exchange.is_first:
            save_artifact(_artifact(prepared, estimator, trained.network, outcome), out)
            stack.close()
            remove_checkpoints(kept)
    return outcome


def train_on_spark(
    session: SparkSession,
    folder: str | Path,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    n_processes: int,
    resume: bool = False,
) -> TrainedModel:
    """Run `train_prepared` in tasks of a Spark cluster, with Spark's `TorchDistributor`.

    All tasks start together, so the session needs `n_processes` free cores. Every executor must be
    able to read `folder` and to write `out`.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.ml.torch.distributor import TorchDistributor

    prepared = Prepared.open(folder)  # raises here rather than in a task
    check_at_least(1, n_processes=n_processes)
    distributor = TorchDistributor(num_processes=n_processes, local_mode=False, use_gpu=False)
    folders = (str(prepared.folder), str(own_folder(out)))
    try:
        outcome = distributor.run(train_prepared, *folders, dict(settings or {}), resume=resume)
    except (PySparkException, Py4JError, RuntimeError) as error:
        raise TrainingError(
            f"training on Spark failed ({reason_of(error)}); see the executors' logs, and "
            "continue from the checkpoint with resume"
        ) from error
    assert isinstance(outcome, TrainedModel)
    return outcome


def _check(settings: Mapping[str, Any]) -> None:
    """Refuse settings that cannot be changed here."""
    usual, in_effect = ImplicitCFNADE(), ImplicitCFNADE(readout=NO_READOUT)
    in_effect.set_params(recipe__start="random")
    allowed = [usual.get_params(), in_effect.get_params()]
    for name, reason in _REFUSED.items():
        if settings[name] not in [params[name] for params in allowed]:
            raise ConfigError(
                f"{name} cannot be set on a prepared folder: {reason}; leave out {name}"
            )


def _validator(prepared: Prepared, exchange: Exchange) -> Validate | None:
    """MPR on the validation part; each process judges its share. None if there is no such part."""
    from cfnade.model.training import Look
    from cfnade.scale.process_group import n_processes, process_number

    pieces = list(prepared.held_out("validation"))
    if not pieces:
        logger.info("nothing is held out for early stopping; running all epochs")
        return None
    histories, held_out = (vstack(part, format="csr") for part in zip(*pieces, strict=True))
    if held_out.shape[0] < n_processes():
        raise ConfigError(
            f"{held_out.shape[0]} validation users are too few for {n_processes()} processes; "
            "prepare with more --validation-users, or with --validation-share 0"
        )
    own = slice(process_number(), None, n_processes())
    pieces = [(as_count_matrix(histories[own]), as_count_matrix(held_out[own]))]
    return lambda network: Look(_mpr(network, prepared.relative_rating, pieces, exchange))


def _mpr(
    network: NumpyNetwork,
    ratings: RelativeRating,
    pieces: Iterable[tuple[CountMatrix, CountMatrix]],
    exchange: Exchange,
) -> float:
    """MPR on the histories and held-out counts of all processes, of which this has some."""
    from cfnade.scale.process_group import weighted_mean

    scorer, total, weight = NetworkScorer(network, ratings), 0.0, 0.0
    for histories, held_out in pieces:
        relevance = ratings.transform(held_out)
        own = float(relevance.sum())  # MPR is a mean over held-out pairs with these weights
        total += own * mean_percentage_ranking(scorer, histories, held_out, relevance)
        weight += own
    return weighted_mean(exchange, total, weight)


def _artifact(
    prepared: Prepared, estimator: ImplicitCFNADE, network: NumpyNetwork, outcome: TrainedModel
) -> Artifact:
    facts = ("n_users", "n_items", "n_pairs", "checksum")
    readout, best_epoch = asdict(NO_READOUT), outcome.best_epoch
    info = {
        "settings": to_json({**estimator.get_params(deep=False), "readout": NO_READOUT}),
        "training": {
            "best_epoch": best_epoch,
            "readout": readout,
            "event_weights": prepared.event_weights,
            "partial_fits": [],
        },
        "metrics": {"validation_mpr": outcome.validation_mpr, "test_mpr": outcome.test_mpr},
        "data_fingerprint": {name: prepared.summary[name] for name in facts},
    }
    return Artifact(network, prepared.relative_rating, prepared.catalogue, info)
