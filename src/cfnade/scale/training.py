"""Training on the shards of a prepared folder, in one process or in several that share them.

`torchrun` starts the processes, or Spark's `TorchDistributor` does; each calls `train_prepared`.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfnade.errors import ConfigError, MissingExtraError
from cfnade.evaluation.evaluate import mean_percentage_ranking
from cfnade.fitting import Callbacks, NetworkScorer, plain_settings, settings_of
from cfnade.model.artifact import Artifact, check_place, save_artifact
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.exchange import Exchange
from cfnade.model.inference import NumpyNetwork
from cfnade.recommender import ImplicitCFNADE
from cfnade.scale.prepared import Prepared
from cfnade.threads import available_threads, limited_threads

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedModel:
    """What came of a training; the same in every process."""

    best_epoch: int
    """Epochs that the network was trained for."""

    validation_mpr: float | None
    """Of that epoch, in percent; None without a validation part."""

    bytes_per_update: float
    """Handed over to the other processes by each one, on average; 0 alone."""

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
        from cfnade.scale import exchange as processes
        from cfnade.scale.shards import ShardedRows
    except ImportError as error:
        raise MissingExtraError("torch", "train", "training") from error
    prepared, out = Prepared.open(folder), Path(out)
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
        resume = resume or (processes.n_restarts() > 0 and checkpoint.exists())
        if not resume and exchange.is_first:
            shutil.rmtree(checkpoint, ignore_errors=True)  # of a run that is given up
        trained = train(
            model,
            training,
            rows,
            exchange=exchange,
            validate=_validator(prepared, exchange),
            on_epoch=callbacks.on_epoch if exchange.is_first else None,
            on_step=callbacks.on_step if exchange.is_first else None,
            checkpoint=checkpoint,
            resume=resume,
        )
        n_updates = max(1, training.updates_per_epoch(rows.n_users) * len(trained.epochs))
        outcome = TrainedModel(
            trained.best_epoch,
            trained.epochs[trained.best_epoch - 1].validation_mpr if trained.best_epoch else None,
            getattr(exchange, "n_bytes", 0) / n_updates,
            trained.epochs[-1].seconds if trained.epochs else 0.0,
        )
        if exchange.is_first:
            _save(prepared, out, estimator, trained.network, outcome)
            shutil.rmtree(checkpoint, ignore_errors=True)
    return outcome


def _check(told: Mapping[str, Any]) -> None:
    """Refuse settings that have no meaning on shards."""
    if told["relative_rating"] is not None:
        raise ConfigError("relative_rating is what was prepared; leave it out")
    if told["refit"]:
        raise ConfigError("refit has no meaning on a prepared folder; leave it out")
    if told["direct_gain"] is not None or told["direct_neighbours"] is not None:
        raise ConfigError("there is no direct path on a prepared folder; leave out direct_*")


def _threads_here() -> int:
    """Threads of one of several processes that share a machine."""
    return max(1, available_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _validator(prepared: Prepared, exchange: Exchange) -> Callable[[NumpyNetwork], float] | None:
    """MPR on the validation part, of which each process judges its share; None if there is none."""
    from cfnade.scale.exchange import n_processes, process_number, weighted_mean

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

    def validate(network: NumpyNetwork) -> float:
        scorer = NetworkScorer(network, ratings)
        mpr = mean_percentage_ranking(scorer, histories, held_out, relevance)
        return weighted_mean(exchange, mpr, weight)

    return validate


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
        "settings": {**settings, "direct": False},
        "training": {
            "best_epoch": outcome.best_epoch,
            "readout": {"direct": False, "popularity_tilt": 0.0},
            "partial_fits": [],
        },
        "metrics": {"validation_mpr": outcome.validation_mpr},
        "data_fingerprint": {
            name: summary[name] for name in ("n_users", "n_items", "n_pairs", "checksum")
        },
    }
    save_artifact(Artifact(network, prepared.relative_rating, prepared.catalogue, info), out)
