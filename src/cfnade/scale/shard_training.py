"""Training on the shards of a prepared folder, in one process or in several that share them.

`torchrun` starts the processes, or Spark's `TorchDistributor` does; each calls `train_prepared`.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.errors import ConfigError, MissingExtraError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.pipeline import Callbacks, plain_settings, settings_of
from cfnade.metrics.evaluate import mean_percentage_ranking
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.exchange import Exchange
from cfnade.model.inference import NetworkScorer, NumpyNetwork
from cfnade.scale.folders import own_folder
from cfnade.scale.prepared import Prepared
from cfnade.storage.folder import Artifact, check_place, save_artifact
from cfnade.threads import available_threads, limited_threads

if TYPE_CHECKING:
    from cfnade.model.training import Epoch, Validate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedModel:
    """What came of a training; the same in every process."""

    best_epoch: int
    """Epochs that the network was trained for."""

    validation_mpr: float | None
    """Of that epoch, in percent; None without a validation part."""

    test_mpr: float | None
    """Of the network on the test part, in percent; None without one."""

    resumed_after: int
    """Epochs that were done before, by the checkpoint; 0 if it began anew."""

    bytes_per_update: float
    """Handed over to the other processes by each one, on average, in this run; 0 alone."""

    seconds: float
    """Of all epochs, resumed ones included."""


def train_prepared(
    folder: str | Path,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    callbacks: Callbacks | None = None,
) -> TrainedModel:
    """Train on a prepared folder and save the model; to be called by all processes alike.

    The network, its objective and the settings are those of `ImplicitCFNADE.fit`. There is no
    readout: the direct item-item path needs all users at once. While it trains, the first process
    keeps a checkpoint beside the model (OUT.checkpoint), which all must see in order to resume.

    Args:
        folder: What `prepare` wrote, where every process can read it.
        out: Folder to save the model in.
        settings: Keywords of `ImplicitCFNADE`.
        resume: Go on from the checkpoint. Processes that `torchrun` has restarted do so anyway.
        callbacks: For progress; called in the first process.

    Returns:
        How it went.

    Raises:
        ConfigError: If a setting has no meaning here.
        DataError: If the folder cannot be used.
        TrainingError: If the loss is no longer finite, or another process is gone.
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
    checkpoint = out.with_name(out.name + ".checkpoint")
    estimator = ImplicitCFNADE().set_params(**(settings or {}))
    told = plain_settings({**estimator.get_params(), "seed": estimator.random_state})
    _check(told)
    model = ModelConfig(n_items=prepared.n_items, **settings_of(ModelConfig, told))
    training = TrainingConfig(**settings_of(TrainingConfig, told))
    callbacks = callbacks or Callbacks()
    with limited_threads(told["n_threads"] or _threads_here()), processes.joined() as exchange:
        rows = ShardedRows(
            prepared,
            model.alpha,
            process=processes.process_number(),
            n_processes=processes.n_processes(),
        )
        is_again = processes.is_started_again(exchange)
        wanted = resume or (is_again and checkpoint.exists())
        resume = bool(processes.from_first(exchange, [wanted])[0])  # all do what the first does
        if not resume and exchange.is_first:
            shutil.rmtree(checkpoint, ignore_errors=True)  # of a run that is given up
        progress = _Progress(callbacks if exchange.is_first else Callbacks())
        n_bytes = getattr(exchange, "n_bytes", 0)
        trained = train(
            model,
            training,
            rows,
            exchange=exchange,
            validate=_validator(prepared, exchange),
            on_epoch=progress.on_epoch,
            on_step=progress.on_step,
            checkpoint=checkpoint,
            resume=resume,
        )
        n_bytes = getattr(exchange, "n_bytes", 0) - n_bytes
        outcome = TrainedModel(
            trained.best_epoch,
            trained.epochs[trained.best_epoch - 1].validation_mpr if trained.best_epoch else None,
            _test_mpr(prepared, rows.own_paths, trained.network, exchange),
            len(trained.epochs) - progress.n_epochs,
            n_bytes / max(1, progress.n_updates),
            trained.epochs[-1].seconds if trained.epochs else 0.0,
        )
        if exchange.is_first:
            _save(prepared, out, estimator, trained.network, outcome)
            shutil.rmtree(checkpoint, ignore_errors=True)
    return outcome


class _Progress:
    """Counts what this run does of a training, and passes it on."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self.n_epochs = self.n_updates = 0

    def on_epoch(self, epoch: Epoch) -> None:
        """After each one."""
        self.n_epochs += 1
        if self._callbacks.on_epoch is not None:
            self._callbacks.on_epoch(epoch)

    def on_step(self, number: int, n_steps: int) -> None:
        """After each update."""
        self.n_updates += 1
        if self._callbacks.on_step is not None:
            self._callbacks.on_step(number, n_steps)


def _check(told: Mapping[str, Any]) -> None:
    """Refuse settings that have no meaning on shards."""
    if told["relative_rating"] is not None:
        raise ConfigError("relative_rating is what was prepared; leave it out")
    if told["refit"]:
        raise ConfigError("refit has no meaning on a prepared folder; leave it out")
    usual = ImplicitCFNADE().get_params()
    for name in ("validation_share", "validation_users"):
        if told[name] != usual[name]:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{name} is what was prepared; leave it out, and prepare with {option}"
            )
    if told["validation_by"] != "pairs":
        raise ConfigError(
            "validation_by has no meaning on a prepared folder, parted by pairs; leave it out"
        )
    if told["memory_limit"] is not None:
        raise ConfigError(
            "memory_limit has no meaning on a prepared folder, of which a row group a shard is in "
            "memory; leave it out"
        )
    if told["choose_by"] is not None:
        raise ConfigError("a prepared folder is judged by MPR; leave choose_by out")
    if told["n_networks"] not in (None, 1):
        raise ConfigError("one network is trained on a prepared folder; leave n_networks out")
    if told["start_from_factors"]:
        raise ConfigError("start_from_factors needs all users in memory; leave it out")
    readout = ("direct_gain", "direct_neighbours", "direct_l2", "popularity_tilt")
    for name in (*readout, "factor_alpha", "factor_gain"):
        if told[name] is not None and (told[name] or name != "popularity_tilt"):
            raise ConfigError(f"there is no readout on a prepared folder; leave out {name}")


def _threads_here() -> int:
    """Threads of one of several processes that share a machine."""
    return max(1, available_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _validator(prepared: Prepared, exchange: Exchange) -> Validate | None:
    """MPR on the validation part, of which each process judges its share; None if there is none."""
    from cfnade.model.training import Look
    from cfnade.scale.process_group import n_processes, process_number, weighted_mean

    histories, held_out = prepared.held_out("validation")
    if held_out.nnz == 0:
        logger.info("nothing is held out to stop early on; running all epochs")
        return None
    if held_out.shape[0] < n_processes():
        raise ConfigError(
            f"{held_out.shape[0]} validation users are too few for {n_processes()} processes; "
            "prepare with more --validation-users, or with --validation-share 0"
        )
    own = slice(process_number(), None, n_processes())
    histories, held_out = histories[own], held_out[own]
    ratings = prepared.relative_rating
    relevance = ratings.transform(held_out)
    weight = float(relevance.sum())  # MPR is a mean over held-out pairs with these weights

    def validate(network: NumpyNetwork) -> Look:
        scorer = NetworkScorer(network, ratings)
        mpr = mean_percentage_ranking(scorer, histories, held_out, relevance)
        return Look(weighted_mean(exchange, mpr, weight))

    return validate


def _test_mpr(
    prepared: Prepared, shards: Iterable[Path], network: NumpyNetwork, exchange: Exchange
) -> float | None:
    """MPR on the test part, by all that is not of it; each process judges its own shards."""
    from cfnade.scale.process_group import weighted_mean

    if not prepared.summary.get("n_test_pairs"):
        return None
    ratings = prepared.relative_rating
    scorer, total, weight = NetworkScorer(network, ratings), 0.0, 0.0
    for histories, held_out in prepared.test_histories(shards):
        relevance = ratings.transform(held_out)
        own = float(relevance.sum())
        if own > 0:
            total += own * mean_percentage_ranking(scorer, histories, held_out, relevance)
            weight += own
    mpr = weighted_mean(exchange, total / weight if weight else 0.0, weight)
    return None if math.isnan(mpr) else mpr  # only items that nobody has in training were held out


def _save(
    prepared: Prepared,
    out: Path,
    estimator: ImplicitCFNADE,
    network: NumpyNetwork,
    outcome: TrainedModel,
) -> None:
    settings = {k: v for k, v in estimator.get_params().items() if k != "relative_rating"}
    summary = prepared.summary
    info = {
        "settings": {
            **settings,
            "direct": False,
            "factors": False,
            "n_networks": 1,
            "start_from_factors": False,
        },
        "training": {
            "best_epoch": outcome.best_epoch,
            "readout": {"direct": False, "factors": False, "popularity_tilt": 0.0},
            "partial_fits": [],
        },
        "metrics": {"validation_mpr": outcome.validation_mpr, "test_mpr": outcome.test_mpr},
        "data_fingerprint": {
            name: summary[name] for name in ("n_users", "n_items", "n_pairs", "checksum")
        },
    }
    save_artifact(Artifact(network, prepared.relative_rating, prepared.catalogue, info), out)
