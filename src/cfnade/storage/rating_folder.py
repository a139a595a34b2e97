"""A trained model of ratings as a folder, of the same files as one of counts: docs/artifact.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cfnade.data.rating_table import MOST_LEVELS, RatingTable
from cfnade.errors import ArtifactError
from cfnade.model.config import RatingConfig
from cfnade.model.rating_inference import NumpyRatingNetwork
from cfnade.storage.encoding import WeightType, decode_ids, pack_ids, pack_weights
from cfnade.storage.folder import SavedParts, load_parts, save_parts
from cfnade.storage.untrusted import are_runs

KIND = "ratings"
_TYPES = {"starts": "<i8", "items": "<i8", "levels": "|u1", "scale": "<f8"}


class RatingArtifact(NamedTuple):
    """A saved model of ratings: its network, the ratings to predict from, and `model.json`."""

    network: NumpyRatingNetwork
    table: RatingTable
    info: dict[str, Any]


def save_rating_artifact(saved: RatingArtifact, folder: Path, dtype: WeightType) -> None:
    """Write a model; see `save_artifact`."""
    network, table, info = saved
    levels = table.levels
    values = (levels.indptr, levels.indices, levels.data, table.scale)
    arrays = {n: v.astype(kind) for v, (n, kind) in zip(values, _TYPES.items(), strict=True)}
    items = {**pack_ids(table.item_ids), "names": None, "users": pack_ids(table.user_ids)}
    weights = pack_weights(network.weights, dtype)
    parts = SavedParts(asdict(network.config), weights, arrays, items, {**info, "kind": KIND})
    save_parts(parts, folder)


def load_rating_artifact(folder: Path, *, verify: bool = True) -> RatingArtifact:
    """Read a model; see `load_artifact`."""
    return load_parts(folder, _artifact, verify=verify)


def _artifact(parts: SavedParts) -> RatingArtifact:
    if parts.info.get("kind") != KIND:
        raise ArtifactError("it is not a model of ratings; use ImplicitCFNADE.load")
    if set(parts.network) != {setting.name for setting in fields(RatingConfig)}:
        raise ArtifactError("the settings of its network are not those of this version")
    config, users = RatingConfig(**parts.network), parts.items.get("users")
    if not isinstance(users, dict) or config.n_layers > len(parts.weights):
        raise ArtifactError("there are no user ids, or fewer weights than layers")
    network = NumpyRatingNetwork(config, parts.weights)
    if not all(np.isfinite(weight).all() for weight in parts.weights.values()):
        raise ArtifactError("a weight is NaN or infinite")
    table = _table(parts.arrays, decode_ids(users), decode_ids(parts.items))
    if config.n_levels != len(table.scale) or config.n_columns not in table.levels.shape:
        raise ArtifactError("the network and the ratings do not have the same scale and ids")
    return RatingArtifact(network, table, parts.info)


def _table(
    arrays: Mapping[str, NDArray[Any]], user_ids: NDArray[Any], item_ids: NDArray[Any]
) -> RatingTable:
    """The ratings of a file; scipy would read whatever place a forged number leads to."""
    if {name: array.dtype.str for name, array in arrays.items()} != _TYPES:
        raise ArtifactError("the ratings are not the four arrays they should be")
    starts, items, values, scale = (arrays[name] for name in _TYPES)
    if starts.ndim != 1 or not are_runs(starts, items, values):
        raise ArtifactError("the ratings are damaged: rows must follow each other and fill them")
    try:
        levels = csr_array((values, items, starts), (len(user_ids), len(item_ids)))
        levels.check_format(full_check=True)
    except ValueError as error:
        raise ArtifactError(f"the ratings are damaged: {error}") from error
    is_scale = scale.ndim == 1 and 2 <= len(scale) <= MOST_LEVELS and np.isfinite(scale).all()
    are_on_it = ((values >= 1) & (values <= len(scale))).all()
    if not (is_scale and (np.diff(scale) > 0).all() and are_on_it):
        raise ArtifactError("the ratings are damaged: a value is not on the scale")
    return RatingTable(levels, scale, user_ids, item_ids)
