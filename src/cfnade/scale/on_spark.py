"""Training started from a Spark session: Spark's `TorchDistributor` runs it on the executors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfnade.errors import ConfigError, TrainingError
from cfnade.scale.failures import reason_of
from cfnade.scale.folders import own_folder
from cfnade.scale.prepared import Prepared
from cfnade.scale.shard_training import TrainedModel, train_prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def train_on_spark(
    session: SparkSession,
    folder: str | Path,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    n_processes: int,
    resume: bool = False,
) -> TrainedModel:
    """Run `train_prepared` in so many tasks of a Spark cluster.

    Args:
        session: Where to; it must have as many free cores, as all tasks start together.
        folder: What `prepare` wrote, where every executor can read it.
        out: Folder to save the model in, where they can write.
        settings: Keywords of `ImplicitCFNADE`.
        n_processes: How many.
        resume: Go on from the checkpoint.

    Returns:
        How it went.

    Raises:
        ConfigError, DataError, TrainingError: As for `train_prepared`.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.ml.torch.distributor import TorchDistributor

    prepared = Prepared.open(folder)  # what is wrong with it is told here, not by a task
    if n_processes < 1:
        raise ConfigError(f"n_processes must be at least 1, got {n_processes}")
    distributor = TorchDistributor(num_processes=n_processes, local_mode=False, use_gpu=False)
    try:
        outcome = distributor.run(
            train_prepared,
            str(prepared.folder),
            str(own_folder(out)),
            dict(settings or {}),
            resume=resume,
        )
    except (PySparkException, Py4JError, RuntimeError) as error:
        raise TrainingError(
            f"training on Spark failed ({reason_of(error)}); the executors' logs "
            "tell why; go on from the checkpoint with resume"
        ) from error
    assert isinstance(outcome, TrainedModel)
    return outcome
