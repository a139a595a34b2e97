"""Training on the shards of a prepared folder, in one process or in several that share them.

`torchrun` starts the processes, or Spark does (`train_on_spark`); each calls `train_prepared`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import vstack

from cfnade.beyond.readout import NO_READOUT, RECENCY, Readout
from cfnade.checkpoints import open_checkpoints, remove_checkpoints
from cfnade.checks import check_at_least
from cfnade.data.ingest.items_table import with_items_table
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ConfigError, MissingExtraError, TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.fit_record import FitRecord
from cfnade.fit.plan import ALL_EVENTS, FitPlan
from cfnade.fit.settings import FitSettings, to_json
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.model.batches import Exchange
from cfnade.model.config import Precision
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.progress import Callbacks
from cfnade.scale.cluster import own_folder, reason_of
from cfnade.scale.prepared import Prepared
from cfnade.scale.prepared_part import Finder, Found
from cfnade.storage.folder import Artifact, check_place, save_artifact
from cfnade.threads import available_threads, limited_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cfnade.model.training import Epoch, Trained, Validate

logger = logging.getLogger(__name__)

_WITH_TIMES = (*RECENCY, "repeats")
_REFUSED = {
    "relative_rating": "it is part of the prepared folder",
    "validation_share": "use `scale prepare --validation-share`",
    "validation_by": "use `scale prepare --split`",
    "memory_limit": "only one row group per shard is in memory",
    "choose_by": "epochs are chosen by MPR",
    "recipe__trials": "it trains once",
    "recipe__start": "factors need all users in memory",
    **{f"readout__{field.name}": "there is no direct path" for field in fields(Readout)},
    **{f"readout__{name}": "it has no times" for name in _WITH_TIMES},
}
"""Settings that cannot be changed here, and why."""


_TRAINING = "training"
_GIVEN_HALF_LIVES = ("history_half_life", "trend_half_life")


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
    items: Any = None,
    resume: bool = False,
    callbacks: Callbacks | None = None,
) -> TrainedModel:
    """Train on a prepared folder and save the model; all processes call this alike.

    Network, objective and settings are those of `ImplicitCFNADE.fit`, but there is no direct path,
    which needs all users at once. If the folder has times, the readout is found on users with later
    events, and the network is trained again on all events, for as many epochs.

    The first process keeps a checkpoint beside the model (OUT.checkpoint), which all processes must
    see in order to resume.

    Args:
        folder: A prepared folder that every process can read.
        out: Folder to save the model in.
        settings: Keywords of `ImplicitCFNADE`.
        items: What is known about items, as for `ImplicitCFNADE.fit`; read by the first process.
        resume: Continue from the checkpoint, if there is one. Processes restarted by `torchrun`
            always do.
        callbacks: For progress, in the first process.

    Raises:
        ConfigError: If a setting is invalid here.
        DataError: If the folder cannot be used.
        TrainingError: If the loss is not finite, or another process is lost.
        MissingExtraError: If torch or pyarrow is not installed.
    """
    try:
        import cfnade.model.training  # noqa: F401
        from cfnade.scale import process_group as processes
    except ImportError as error:
        raise MissingExtraError("torch", "train", "training") from error
    prepared, out = Prepared.open(folder), own_folder(out)
    check_place(out)
    kept = out.with_name(out.name + ".checkpoint")
    estimator = ImplicitCFNADE().set_params(**(settings or {}))
    _check(estimator.get_params(), prepared)
    chosen = FitSettings.of(estimator.get_params(deep=False))
    before = prepared.before
    readout = NO_READOUT if before is None else replace(chosen.recipe.readout, direct=False)
    recipe = replace(chosen.recipe, start="random", readout=readout)
    catalogue = prepared.catalogue
    if items is not None and processes.process_number() == 0:  # the others need no features
        catalogue = with_items_table(catalogue, items)
    threads = available_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    n_threads = limited_threads(chosen.n_threads or max(1, threads))
    with n_threads, processes.joined() as exchange, ExitStack() as stack:
        is_again = processes.is_started_again(exchange)
        wanted = resume or (is_again and (kept / _TRAINING).exists())
        resume = bool(processes.from_first(exchange, [wanted])[0])  # all follow the first
        if exchange.is_first:
            stack.enter_context(open_checkpoints(kept, resume=resume))
        shown = (exchange.is_first and callbacks) or Callbacks()
        runs = _Runs(replace(chosen, recipe=recipe), exchange, shown, kept, resume)
        again = {} if before is None else {ALL_EVENTS: 1.0}
        shown.plan({_TRAINING: 1.0, **again}, 0)
        first = before or prepared
        trained, plan = runs.run(_TRAINING, first, _validator(first, exchange))
        finder, found = Finder(prepared, catalogue.features, chosen.n_threads), None
        if exchange.is_first:
            found = finder.find(trained.network, plan)
        mpr = trained.epochs[trained.best_epoch - 1].validation_mpr if trained.best_epoch else None
        if before is not None:
            trained, _ = runs.run(ALL_EVENTS, prepared, None, trained.best_epoch)
        test_mpr = None
        if prepared.summary.get("n_test_pairs") and before is None and items is None:
            own_shards = prepared.shards[processes.process_number() :: processes.n_processes()]
            own = prepared.held_out("test", own_shards)
            test_mpr = _mpr(trained.network, prepared.relative_rating, own, exchange)
        scorer = None
        if found is not None:
            scorer = finder.add(trained.network, found, plan)
            mpr = mpr if found.mpr is None else found.mpr
            if test_mpr is None and prepared.summary.get("n_test_pairs"):
                test_mpr = finder.test_mpr(scorer, found, plan)
        mpr, test_mpr = (processes.number_of_first(exchange, number) for number in (mpr, test_mpr))
        outcome = TrainedModel(
            trained.best_epoch,
            mpr,
            test_mpr,
            runs.n_resumed,
            runs.n_bytes / max(1, runs.n_updates),
            runs.seconds,
        )
        if found is not None and scorer is not None:
            info = _info(prepared, estimator, outcome, found, plan)
            artifact = Artifact(scorer.network, scorer.relative_rating, catalogue, info)
            save_artifact(artifact, out)
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
    items: Any = None,
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
        given = {"items": items, "resume": resume}
        outcome = distributor.run(train_prepared, *folders, dict(settings or {}), **given)
    except (PySparkException, Py4JError, RuntimeError) as error:
        raise TrainingError(
            f"training on Spark failed ({reason_of(error)}); see the executors' logs, and "
            "continue from the checkpoint with resume"
        ) from error
    assert isinstance(outcome, TrainedModel)
    return outcome


class _Runs:
    """Trains on the shards of folders, and adds up what that took."""

    def __init__(
        self,
        settings: FitSettings,
        exchange: Exchange,
        shown: Callbacks,
        kept: Path,
        resume: bool,
    ) -> None:
        self._settings, self._exchange, self._shown = settings, exchange, shown
        self._kept, self._resume = kept, resume
        self.n_updates, self.n_resumed, self.seconds = 0, 0, 0.0
        self.n_bytes = 0

    def run(
        self,
        name: str,
        prepared: Prepared,
        validate: Validate | None,
        n_epochs: int | None = None,
    ) -> tuple[Trained[NumpyNetwork], FitPlan]:
        """Train once; also returns the plan, which has `n_epochs` if they are given."""
        from cfnade.model.training import train
        from cfnade.scale import process_group as processes
        from cfnade.scale.shards import ShardedRows

        exchange, shown, chosen = self._exchange, self._shown, self._settings
        place = {"process": processes.process_number(), "n_processes": processes.n_processes()}
        rows = ShardedRows(prepared, chosen.recipe.alpha, **place)
        sizes = (rows.n_users, prepared.n_items, int(rows.n_watchers.sum()))
        plan = FitPlan.of_size(*sizes, chosen, prepared.clock)
        is_rounded = processes.from_first(exchange, [plan.training.precision == "bfloat16"])[0]
        precision: Precision = "bfloat16" if is_rounded else "float32"  # machines may differ
        n_epochs = plan.training.max_epochs if n_epochs is None else n_epochs
        training = replace(plan.training, precision=precision, max_epochs=n_epochs)
        plan = replace(plan, training=training)
        checkpoint = self._kept / name
        is_there = self._resume and checkpoint.exists()
        resume = bool(processes.from_first(exchange, [is_there])[0])
        shown.plan({}, training.max_epochs)
        shown.begin(name)
        epochs: list[Epoch] = []  # of this run

        def on_epoch(epoch: Epoch) -> None:
            epochs.append(epoch)
            if shown.on_epoch is not None:
                shown.on_epoch(epoch)

        n_bytes = exchange.n_bytes
        trained = train(
            plan.model,
            training,
            rows,
            exchange=exchange,
            validate=validate,
            on_epoch=on_epoch,
            on_step=shown.on_step,
            checkpoint=checkpoint,
            resume=resume,
        )
        self.n_bytes += exchange.n_bytes - n_bytes
        self.n_updates += len(epochs) * training.updates_per_epoch(rows.n_users)
        self.n_resumed += len(trained.epochs) - len(epochs)
        self.seconds += trained.epochs[-1].seconds if trained.epochs else 0.0
        return trained, plan


def _check(settings: Mapping[str, Any], prepared: Prepared) -> None:
    """Refuse settings that cannot be changed here."""
    usual, in_effect = ImplicitCFNADE(), ImplicitCFNADE(readout=NO_READOUT)
    in_effect.set_params(recipe__start="random")
    allowed = [usual.get_params(), in_effect.get_params()]
    for name, reason in _REFUSED.items():
        if prepared.before is not None and name.removeprefix("readout__") in _WITH_TIMES:
            continue
        if settings[name] not in [params[name] for params in allowed]:
            raise ConfigError(
                f"{name} cannot be set on a prepared folder: {reason}; leave out {name}"
            )
    for name in _GIVEN_HALF_LIVES:
        given = settings[f"readout__{name}"]
        if given and given not in prepared.half_lives:
            known = ", ".join(f"{half_life:g}" for half_life in (0.0, *prepared.half_lives))
            raise ConfigError(
                f"readout__{name} must be one that was prepared ({known}), got {given!r}"
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


def _info(
    prepared: Prepared,
    estimator: ImplicitCFNADE,
    outcome: TrainedModel,
    found: Found,
    plan: FitPlan,
) -> dict[str, Any]:
    """For `model.json`."""
    facts = ("n_users", "n_items", "n_pairs", "checksum")
    record = FitRecord(
        best_epoch=outcome.best_epoch,
        n_looks=found.n_looks,
        item_l2=plan.training.item_l2,
        readout=found.readout,
        feature_strengths=found.strengths,
        clock=prepared.clock,
        event_weights=prepared.event_weights,
    )
    return {
        "settings": to_json({**estimator.get_params(deep=False), "readout": NO_READOUT}),
        "training": record.to_json(),
        "metrics": {"validation_mpr": outcome.validation_mpr, "test_mpr": outcome.test_mpr},
        "data_fingerprint": {name: prepared.summary[name] for name in facts},
    }
