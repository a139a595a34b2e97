"""A trained model as a folder: safetensors for arrays, JSON for the rest, nothing executable."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cfnade.data.catalogue import Catalogue
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ArtifactError, CfnadeError
from cfnade.model.config import ModelConfig
from cfnade.model.files import replace_folder
from cfnade.model.ids import decode_ids, encode_ids
from cfnade.model.inference import NumpyNetwork

FORMAT = 1
MODEL, WEIGHTS, RATINGS, ITEMS = (
    "model.json",
    "weights.safetensors",
    "ratings.safetensors",
    "items.json",
)


@dataclass(frozen=True, eq=False)
class Artifact:
    """All that recommending needs."""

    network: NumpyNetwork
    """The trained network."""

    relative_rating: RelativeRating
    """Each item's count distribution: new users' counts become ratings by it."""

    catalogue: Catalogue
    """Ids and names of the items."""

    info: dict[str, Any] = field(default_factory=dict)
    """Settings, metrics and where the model came from, as JSON can hold it."""


def save_artifact(artifact: Artifact, folder: Path) -> None:
    """Write a model; a crash leaves the old one, the new one or none, never half of one.

    Args:
        artifact: What to write.
        folder: Where it goes. A model in its place is replaced; anything else is refused.

    Raises:
        ArtifactError: If the folder holds something that is not a model, or cannot be written.
    """
    check_place(folder)
    ratings = artifact.relative_rating
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ArtifactError(f"cannot write to {folder.parent}: {error}") from error
    try:
        save_file(
            {name: np.ascontiguousarray(w) for name, w in artifact.network.weights.items()},
            new / WEIGHTS,
        )
        save_file(
            {
                "item_starts": ratings.item_starts_,
                "distinct_counts": ratings.distinct_counts_,
                "n_watchers_up_to": ratings.n_watchers_up_to_,
            },
            new / RATINGS,
        )
        names = artifact.catalogue.names
        items = {
            **encode_ids(artifact.catalogue.ids),
            "names": None if names is None else names.tolist(),
        }
        (new / ITEMS).write_text(json.dumps(items, ensure_ascii=False), encoding="utf-8")
        described = {
            "format": FORMAT,
            "cfnade": version("cfnade"),
            "network": asdict(artifact.network.config),
            **artifact.info,
            "sha256": {name: _sha256(new / name) for name in (WEIGHTS, RATINGS, ITEMS)},
        }
        (new / MODEL).write_text(
            json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        new.chmod(0o755)  # mkdtemp is private, a model is as readable as its place allows
        replace_folder(new, folder)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"cannot write the model to {folder}: {error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check_place(folder: Path) -> None:
    """See that a model may be saved there: a place that is free, or holds a model.

    Raises:
        ArtifactError: If it holds anything else.
    """
    is_model = folder.is_dir() and ((folder / MODEL).is_file() or not any(folder.iterdir()))
    if folder.exists() and not is_model:
        raise ArtifactError(f"{folder} exists and is not a saved model; choose another place")


def load_artifact(folder: Path) -> Artifact:
    """Read a model; nothing in the files is ever executed.

    Raises:
        ArtifactError: If there is none, it is damaged, or a later version wrote it.
    """
    described = read_description(folder)
    for name, expected in described["sha256"].items():
        if name not in (WEIGHTS, RATINGS, ITEMS) or not (folder / name).is_file():
            raise ArtifactError(f"{folder} is incomplete: {name} is missing; save the model again")
        if _sha256(folder / name) != expected:
            raise ArtifactError(
                f"{folder / name} is not what was saved (its checksum differs); "
                "copy the model again or train it anew"
            )
    try:
        config = ModelConfig(**described["network"])
        ratings = RelativeRating.from_distributions(**load_file(folder / RATINGS))
        items = json.loads((folder / ITEMS).read_text(encoding="utf-8"))
        names = items["names"]
        artifact = Artifact(
            NumpyNetwork(config, load_file(folder / WEIGHTS)),
            ratings,
            Catalogue(decode_ids(items), None if names is None else np.array(names, dtype=object)),
            {k: v for k, v in described.items() if k not in ("format", "network", "sha256")},
        )
    except (OSError, KeyError, TypeError, ValueError, SafetensorError, CfnadeError) as error:
        raise ArtifactError(f"the model in {folder} cannot be read: {error}") from error
    return artifact


def read_description(folder: Path) -> dict[str, Any]:
    """What `model.json` says, without loading any weights.

    Raises:
        ArtifactError: If there is none, it is damaged, or a later version wrote it.
    """
    try:
        described = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"there is no model in {folder} (no {MODEL})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{folder / MODEL} is damaged: {error}") from error
    if not isinstance(described, dict) or not isinstance(described.get("sha256"), dict):
        raise ArtifactError(f"{folder / MODEL} does not describe a model")
    if described.get("format") != FORMAT:
        raise ArtifactError(
            f"the model in {folder} has format {described.get('format')}, this version of cfnade "
            f"reads {FORMAT}; update cfnade or save the model again"
        )
    return described


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
