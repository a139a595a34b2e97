"""Small saved models for tests, and how to make a changed one look whole again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cfnade.data.catalogue import Catalogue
from cfnade.data.ratings import RelativeRating
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.storage.encoding import weight_shapes
from cfnade.storage.folder import Artifact

KEPT = Path(__file__).parent / "artifacts" / "v1"
"""A trained model of the first format: twelve films in three groups."""


def random_artifact(rng: np.random.Generator, **settings: Any) -> Artifact:
    """Random weights and counts; one item has no watchers, counts are whole and broken."""
    config = ModelConfig(**{"n_items": 9, "n_hidden": 3, "n_neighbours": 2, **settings})
    weights = {
        name: rng.integers(config.n_items, size=shape)
        if name == "neighbours"
        else rng.normal(scale=0.5, size=shape).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
    ids = np.array([f"film {i}" for i in range(config.n_items)], dtype=object)
    return Artifact(
        NumpyNetwork(config, weights),
        RelativeRating().fit(random_histories(rng, 40, config.n_items)),
        Catalogue(ids, np.array([f"Film é {i}" for i in range(config.n_items)], dtype=object)),
        {"settings": {"alpha": config.alpha}, "metrics": {"validation_mpr": 12.5}},
    )


def random_histories(rng: np.random.Generator, n_users: int, n_items: int) -> csr_array:
    """Counts from 0.1 upwards; nobody has watched the last item, the first user nothing."""
    counts = rng.geometric(0.3, (n_users, n_items)) * rng.choice([1.0, 0.1], (n_users, n_items))
    counts[rng.random((n_users, n_items)) < 0.6] = 0.0
    counts[0, :] = counts[:, -1] = 0.0
    return csr_array(counts)


def seal(folder: Path, **changes: Any) -> None:
    """Write the sizes and checksums of the files as they are now, as a forger would."""
    described = json.loads((folder / "model.json").read_text())
    described.update(changes)
    del described["sha256"]
    for name in described["files"] if isinstance(described["files"], dict) else ():
        content = (folder / name).read_bytes()
        described["files"][name] = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    described["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(described))
