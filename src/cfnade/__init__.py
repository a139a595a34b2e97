"""Implicit CF-NADE: a neural autoregressive recommender for implicit counts."""

from __future__ import annotations

import os
from importlib.metadata import version

# Threads that wait should sleep. Spinning ones make two threads several times slower than one
# as soon as anything else runs on the machine; this must be set before OpenMP is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from cfnade.answer.dials import Dials
from cfnade.answer.explain import Effect, Explanation, Repeat
from cfnade.beyond.readout import Readout
from cfnade.data.event_splits import split_by_time, split_last
from cfnade.data.events import EventLog
from cfnade.data.ingest import read_interactions, read_item_names, read_items
from cfnade.data.interactions import Interactions
from cfnade.data.rating_table import RatingTable, read_ratings
from cfnade.data.ratings import RelativeRating
from cfnade.data.splitting import hold_out, split_counts
from cfnade.errors import (
    ArtifactError,
    CfnadeError,
    ClusterError,
    ConfigError,
    DataError,
    MissingExtraError,
    TrainingError,
)
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.rating_estimator import CFNADE
from cfnade.fit.settings import Recipe
from cfnade.metrics.evaluate import Evaluation, evaluate
from cfnade.scorer import Scorer

__version__ = version("cfnade")

__all__ = [  # noqa: RUF022 (sorted as Python does)
    "ArtifactError",
    "CFNADE",
    "CfnadeError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "Dials",
    "Effect",
    "Evaluation",
    "EventLog",
    "Explanation",
    "ImplicitCFNADE",
    "Interactions",
    "MissingExtraError",
    "RatingTable",
    "Readout",
    "Recipe",
    "RelativeRating",
    "Repeat",
    "Scorer",
    "TrainingError",
    "evaluate",
    "hold_out",
    "read_interactions",
    "read_item_names",
    "read_items",
    "read_ratings",
    "split_by_time",
    "split_counts",
    "split_last",
]
