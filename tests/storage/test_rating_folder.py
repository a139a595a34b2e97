from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.data.rating_table import read_ratings
from cfnade.errors import ArtifactError
from cfnade.storage.folder import inspect_artifact
from cfnade.storage.rating_folder import (
    RatingArtifact,
    load_rating_artifact,
    save_rating_artifact,
)
from tests.model.test_rating_inference import random_numpy_rating_network
from tests.networks import random_model


@pytest.fixture
def saved():
    levels = csr_array(np.array([[1, 0, 3, 0, 2], [0, 2, 0, 0, 3]], dtype=np.uint8))
    return RatingArtifact(random_numpy_rating_network(), read_ratings(levels), {"note": 7})


def forge(folder, name, change):
    """Change an array and make all checksums right again."""
    import hashlib

    path = folder / "ratings.safetensors"
    arrays = load_file(path)
    arrays[name] = change(arrays[name])
    save_file(arrays, path)
    described = json.loads((folder / "model.json").read_text())
    content = path.read_bytes()
    described["files"][path.name] = {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    del described["sha256"]
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    described["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(described))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16"])
def test_a_model_comes_back(saved, tmp_path, dtype):
    save_rating_artifact(saved, tmp_path / "model", dtype)
    found = load_rating_artifact(tmp_path / "model")
    assert found.network.config == saved.network.config and found.info["note"] == 7
    assert (found.table.levels - saved.table.levels).nnz == 0
    assert found.table.scale.tolist() == saved.table.scale.tolist()
    assert found.table.item_ids.tolist() == saved.table.item_ids.tolist()
    for name, weight in saved.network.weights.items():
        np.testing.assert_allclose(found.network.weights[name], weight, atol=2e-3)
    described = inspect_artifact(tmp_path / "model", verify=True)
    assert described["kind"] == "ratings" and described["items"]["n_items"] == 5
    assert {file["state"] for file in described["files"].values()} == {"ok"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("items", lambda a: a + 1000),
        ("items", lambda a: a - 1000),
        ("items", lambda a: a[:-1].copy()),
        ("starts", lambda a: a[::-1].copy()),
        ("starts", lambda a: a + 1),
        ("starts", lambda a: a * (a < a[-1])),  # the last row ends before it begins
        ("starts", lambda a: np.where(a < a[-1], a, -1)),
        ("starts", lambda a: np.where(a < a[-1], a, a - 1)),  # a rating is in no row
        ("levels", lambda a: np.zeros_like(a)),
        ("levels", lambda a: np.full_like(a, 200)),
        ("scale", lambda a: a[::-1].copy()),
        ("scale", lambda a: np.full_like(a, np.nan)),
        ("scale", lambda a: a[:2].copy()),
        ("levels", lambda a: a.astype(np.int64)),
    ],
)
def test_forged_ratings_are_refused(saved, tmp_path, name, change):
    save_rating_artifact(saved, tmp_path / "model", "float32")
    forge(tmp_path / "model", name, change)
    with pytest.raises(ArtifactError, match=r"cannot be read|damaged"):
        load_rating_artifact(tmp_path / "model")


def test_each_kind_of_model_names_the_class_that_reads_the_other(saved, tmp_path):
    save_rating_artifact(saved, tmp_path / "stars", "float32")
    with pytest.raises(ArtifactError, match=r"use CFNADE\.load"):
        ImplicitCFNADE.load(tmp_path / "stars")
    random_model().save(tmp_path / "counts")
    with pytest.raises(ArtifactError, match=r"use ImplicitCFNADE\.load"):
        load_rating_artifact(tmp_path / "counts")


def test_a_weight_that_is_not_finite_is_refused(saved, tmp_path):
    saved.network.weights["hidden_bias"][0] = np.nan
    with pytest.raises(ArtifactError, match="NaN or infinite"):
        save_rating_artifact(saved, tmp_path / "model", "float32")
        load_rating_artifact(tmp_path / "model")
