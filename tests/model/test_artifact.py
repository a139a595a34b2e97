from __future__ import annotations

import datetime
import decimal
import json
import uuid

import numpy as np
import pytest

from cfnade.data.catalogue import Catalogue
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ArtifactError
from cfnade.model.artifact import Artifact, load_artifact, read_description, save_artifact
from cfnade.model.config import ModelConfig
from cfnade.model.ids import decode_ids, encode_ids
from cfnade.model.inference import NumpyNetwork


@pytest.fixture
def artifact(counts, rng) -> Artifact:
    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    weights = {
        "like_weight": normal(20, 4),
        "dislike_weight": normal(20, 4),
        "hidden_bias": normal(4),
        "output_weight": normal(20, 4),
        "output_bias": normal(20),
    }
    names = np.array([f"Film é {i}" for i in range(20)], dtype=object)
    return Artifact(
        NumpyNetwork(ModelConfig(n_items=20, n_hidden=4, direct=False), weights),
        RelativeRating().fit(counts),
        Catalogue(np.array([f"f{i}" for i in range(20)], dtype=object), names),
        {"settings": {"alpha": 30.0}},
    )


def test_save_and_load_change_nothing(artifact, counts, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    loaded = load_artifact(tmp_path / "model")
    ratings = artifact.relative_rating.transform(counts)
    np.testing.assert_array_equal(loaded.network.logits(ratings), artifact.network.logits(ratings))
    np.testing.assert_array_equal(
        loaded.relative_rating.transform(counts).toarray(), ratings.toarray()
    )
    assert loaded.catalogue.ids.tolist() == artifact.catalogue.ids.tolist()
    assert loaded.catalogue.names.tolist() == artifact.catalogue.names.tolist()
    assert loaded.info["settings"] == {"alpha": 30.0}


def test_the_folder_holds_safetensors_and_json_only(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "items.json", "model.json", "ratings.safetensors", "weights.safetensors",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # nothing left beside it


def test_the_description_is_read_without_the_weights(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    (tmp_path / "model" / "weights.safetensors").unlink()
    assert read_description(tmp_path / "model")["network"]["n_hidden"] == 4


def test_a_model_in_the_same_place_is_replaced_and_anything_else_refused(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    save_artifact(artifact, tmp_path / "model")
    load_artifact(tmp_path / "model")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("keep me")
    with pytest.raises(ArtifactError, match="not a saved model"):
        save_artifact(artifact, tmp_path / "letters")
    assert (tmp_path / "letters" / "dear.txt").read_text() == "keep me"


@pytest.mark.parametrize("name", ["weights.safetensors", "ratings.safetensors", "items.json"])
def test_a_changed_or_missing_file_is_refused(artifact, tmp_path, name):
    save_artifact(artifact, tmp_path / "model")
    path = tmp_path / "model" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="checksum differs"):
        load_artifact(tmp_path / "model")
    path.unlink()
    with pytest.raises(ArtifactError, match=f"{name} is missing"):
        load_artifact(tmp_path / "model")


def test_a_missing_damaged_or_newer_model_is_refused_in_one_line(artifact, tmp_path):
    with pytest.raises(ArtifactError, match="there is no model in"):
        load_artifact(tmp_path / "none")
    save_artifact(artifact, tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    described = json.loads(path.read_text())
    for text, message in [
        ("{", "damaged"),
        ("[]", "does not describe a model"),
        (json.dumps({**described, "format": 99}), "has format 99, this version of cfnade reads 1"),
        (json.dumps({**described, "network": {"n_items": 0}}), "cannot be read"),
    ]:
        path.write_text(text)
        with pytest.raises(ArtifactError, match=message):
            load_artifact(tmp_path / "model")


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 1, 2]),
        np.array([3, 1, 2], dtype=np.int32),
        np.array([2**63, 5], dtype=np.uint64),
        np.array([0.5, 2.0]),
        np.array(["007", "a b", "ü"], dtype=object),
        np.array(["x", "yz"]),
        np.array([7, "7", 7.5, True], dtype=object),
        np.array([uuid.UUID(int=5), uuid.UUID(int=7)], dtype=object),
        np.array([datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3)], dtype=object),
        np.array(["2020-01-02", "2021-05-06"], dtype="datetime64[us]"),
        np.array([decimal.Decimal("1.50"), 2**70], dtype=object),
        np.array([b"\x00\xff", b""], dtype=object),
        np.array([], dtype=object),
    ],
    ids=lambda ids: f"{ids.dtype}{len(ids)}",
)
def test_ids_of_any_type_come_back_unchanged(ids):
    back = decode_ids(json.loads(json.dumps(encode_ids(ids))))
    assert back.dtype == ids.dtype
    assert back.tolist() == ids.tolist()
    assert [type(a) for a in back.tolist()] == [type(a) for a in ids.tolist()]


def test_ids_that_cannot_be_kept_are_told():
    with pytest.raises(ArtifactError, match="ids of type tuple cannot be saved"):
        ids = np.empty(1, dtype=object)
        ids[0] = (1, 2)
        encode_ids(ids)
