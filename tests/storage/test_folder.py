from __future__ import annotations

import json
import mmap
import shutil
import stat
import subprocess
import sys
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from cfnade.data.catalogue import Catalogue
from cfnade.data.ratings import RelativeRating
from cfnade.errors import ArtifactError, ConfigError
from cfnade.folders import save_arrays
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.storage import folder as folder_module
from cfnade.storage.folder import (
    WEIGHTS,
    Artifact,
    inspect_artifact,
    load_artifact,
    read_description,
    save_artifact,
)
from tests.storage.saved import random_artifact, random_histories, seal


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
        NumpyNetwork(ModelConfig(n_items=20, n_hidden=4), weights),
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


def test_a_folder_with_anything_foreign_beside_a_model_is_not_replaced(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    (tmp_path / "model" / "thesis.txt").write_text("keep me")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "model.json").write_text('{"name": "of another program"}')
    save_artifact(artifact, tmp_path / "mixed")
    (tmp_path / "mixed" / "items.json").unlink()
    (tmp_path / "mixed" / "items.json").mkdir()
    (tmp_path / "mixed" / "items.json" / "thesis.txt").write_text("keep me")
    for place, why in (
        ("model", "it holds 'thesis.txt'"),
        ("mixed", "it holds 'items.json'"),
        ("web", "no model.json of ours"),
    ):
        with pytest.raises(ArtifactError, match=why):
            save_artifact(artifact, tmp_path / place)
    for kept in ("model/thesis.txt", "mixed/items.json/thesis.txt"):
        assert (tmp_path / kept).read_text() == "keep me"
    assert "another program" in (tmp_path / "web" / "model.json").read_text()


def test_a_list_of_items_of_any_size_is_not_parsed(artifact, tmp_path, monkeypatch):
    save_artifact(artifact, tmp_path / "model")
    n_bytes = (tmp_path / "model" / "items.json").stat().st_size
    monkeypatch.setattr("cfnade.storage.folder._MOST_ITEMS_BYTES", n_bytes - 1)
    with pytest.raises(ArtifactError, match=r"items\.json is too large"):
        load_artifact(tmp_path / "model")


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
        (
            json.dumps({**described, "format": 99}),
            "has format 99, this version of cfnade reads 1 to 2",
        ),
        (json.dumps({**described, "cfnade_version": "9"}), "checksum differs"),
        (path.read_text()[:-20], "damaged"),
    ]:
        path.write_text(text)
        with pytest.raises(ArtifactError, match=message) as refused:
            load_artifact(tmp_path / "model")
        assert "\n" not in str(refused.value)


def test_a_truncated_file_is_refused_even_unverified(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    path = tmp_path / "model" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    for verify in (True, False):
        with pytest.raises(ArtifactError, match="its size is"):
            load_artifact(tmp_path / "model", verify=verify)


def test_arrays_are_views_on_the_mapped_file_and_cannot_be_written(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    loaded = load_artifact(tmp_path / "model")
    ratings = loaded.relative_rating
    for array in [*loaded.network.weights.values(), ratings.distinct_counts_]:
        owner = array
        while isinstance(owner, np.ndarray):
            assert not owner.flags.owndata and not owner.flags.writeable
            owner = owner.base
        assert isinstance(owner.obj if isinstance(owner, memoryview) else owner, mmap.mmap)


def test_a_loaded_model_goes_on_after_its_folder_was_replaced(artifact, counts, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    loaded = load_artifact(tmp_path / "model", verify=False)
    ratings = artifact.relative_rating.transform(counts)
    expected = artifact.network.logits(ratings)
    artifact.network.weights["output_weight"] = np.zeros((20, 4), dtype=np.float32)
    save_artifact(artifact, tmp_path / "model")
    np.testing.assert_array_equal(loaded.network.logits(ratings), expected)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_model_that_is_replaced_while_it_is_inspected_is_not_called_damaged(
    artifact, tmp_path, monkeypatch, is_gone
):
    folder, old = tmp_path / "model", tmp_path / "old"
    save_artifact(artifact, folder)
    plain = folder_module.map_file

    def replace_first(path, **options):
        if path.name == WEIGHTS and path.parent == folder and not old.exists():
            folder.rename(old)
            if is_gone:
                (old / WEIGHTS).unlink()
            artifact.network.weights["output_bias"] += np.float32(1)
            save_artifact(artifact, folder)
        return plain(path, **options)

    monkeypatch.setattr(folder_module, "map_file", replace_first)
    found = inspect_artifact(folder, verify=True)
    assert [file["state"] for file in found["files"].values()] == ["ok"] * 3


@pytest.mark.parametrize("verify", [True, False])
def test_two_models_are_never_mixed_while_one_replaces_the_other(artifact, tmp_path, verify):
    """Weights, ratings and ids of one model have the same last number."""
    script = """
import sys
from pathlib import Path
import numpy as np
from cfnade.storage.folder import load_artifact, save_artifact

folder, number = Path(sys.argv[1]), 0
artifact = load_artifact(folder)
weights = {name: array.copy() for name, array in artifact.network.weights.items()}
artifact.network.weights.update(weights)
print("ready", flush=True)
while True:
    number = (number + 1) % 100
    weights["output_bias"][:] = number
    artifact.catalogue.ids[-1] = number
    save_artifact(artifact, folder)
"""
    artifact.catalogue.ids[-1] = 0
    artifact.network.weights["output_bias"][:] = 0
    save_artifact(artifact, tmp_path / "model")
    command = [sys.executable, "-c", script, str(tmp_path / "model")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            seen, n_loaded = set(), 0
            while n_loaded < 400 or len(seen) <= 5:  # on a busy machine the writer is slow
                loaded = load_artifact(tmp_path / "model", verify=verify)
                n_loaded += 1
                seen.add(loaded.catalogue.ids[-1])
                assert (loaded.network.weights["output_bias"] == loaded.catalogue.ids[-1]).all()
        finally:
            writer.kill()


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json"])
def test_a_crash_leaves_the_old_model_and_nothing_beside_it(artifact, tmp_path, monkeypatch, name):
    save_artifact(artifact, tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()

    def stop(path):
        if path.name == name:
            raise KeyboardInterrupt

    monkeypatch.setattr("cfnade.folders.flush_to_disk", stop)
    with pytest.raises(KeyboardInterrupt):
        save_artifact(artifact, tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    load_artifact(tmp_path / "model")


def test_all_files_are_readable_alike(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    (tmp_path / "plain").write_text("")
    assert modes == {stat.S_IMODE((tmp_path / "plain").stat().st_mode)}


def test_the_same_model_gives_the_same_bytes(artifact, tmp_path):
    for name in ("one", "two"):
        save_artifact(artifact, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_what_json_cannot_hold_is_kept_as_plain_values(artifact, tmp_path):
    artifact.info.update(
        metrics={"mpr": np.float32(2.5), "ndcg": float("nan"), "at": (np.int64(1), 2)},
        data={"path": tmp_path},
    )
    save_artifact(artifact, tmp_path / "model")
    info = load_artifact(tmp_path / "model").info
    assert info["metrics"] == {"mpr": 2.5, "ndcg": None, "at": [1, 2]}
    assert info["data"] == {"path": str(tmp_path)}


def test_what_could_not_be_loaded_again_is_not_saved(artifact, tmp_path):
    good = artifact.network.weights["output_bias"]
    for bad, message in [
        (np.full(20, np.nan, dtype=np.float32), "output_bias holds NaN"),
        (np.zeros(19, dtype=np.float32), "output_bias must be float32 of shape"),
        (good.astype(np.float64), "output_bias must be float32 of shape"),
    ]:
        artifact.network.weights["output_bias"] = bad
        with pytest.raises(ArtifactError, match=message):
            save_artifact(artifact, tmp_path / "model")
    artifact.network.weights["output_bias"] = good
    artifact.info["metrics"] = 12.5
    with pytest.raises(ArtifactError, match="metrics is not an object"):
        save_artifact(artifact, tmp_path / "model")
    deep: list[object] = []
    for _ in range(40):
        deep = [deep]
    for note, message in ((deep, "nested too deep"), (10**308, "JSON with 1000")):
        artifact.info.update(metrics={}, note=note)
        with pytest.raises(ArtifactError, match=message):
            save_artifact(artifact, tmp_path / "model")
    artifact.info["note"] = "x" * (1 << 24)
    with pytest.raises(ArtifactError, match=r"model\.json would have more than"):
        save_artifact(artifact, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_list_of_items_too_large_to_be_loaded_is_not_saved(artifact, tmp_path, monkeypatch):
    monkeypatch.setattr("cfnade.storage.folder._MOST_ITEMS_BYTES", 100)
    with pytest.raises(ArtifactError, match=r"items\.json is too large"):
        save_artifact(artifact, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_inspect_tells_all_and_what_is_wrong_with_a_file(artifact, tmp_path):
    save_artifact(artifact, tmp_path / "model")
    told = inspect_artifact(tmp_path / "model")
    assert told["tensors"]["like_weight"] == {"dtype": "F32", "shape": [20, 4]}
    assert told["items"] == {
        "n_items": 20,
        "dtype": "object",
        "first_ids": ["f0", "f1", "f2"],
        "have_names": True,
        "features": [],
    }
    assert told["settings"] == {"alpha": 30.0}
    folder = tmp_path / "model"
    assert told["total_bytes"] == sum(
        path.stat().st_size for path in folder.iterdir() if path.name != "model.json"
    )

    def states(**options):
        return [f["state"] for f in inspect_artifact(folder, **options)["files"].values()]

    assert states() == ["not verified"] * 3
    assert states(verify=True) == ["ok"] * 3
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(content)
    (folder / "items.json").unlink()
    found = inspect_artifact(folder, verify=True)
    assert found["files"]["weights.safetensors"]["state"] == "checksum differs"
    assert found["files"]["ratings.safetensors"]["state"] == "ok"
    assert "is missing" in found["files"]["items.json"]["state"]
    assert found["items"] is None
    shutil.rmtree(folder)
    with pytest.raises(ArtifactError, match="there is no model"):
        inspect_artifact(folder)


def rounded(weight, dtype):
    """A matrix of weights as it comes back, by the definition in docs/artifact.md."""
    if dtype == "float16":
        return weight.astype(np.float16).astype(np.float32)
    rows = []
    for row in weight:
        scale = np.float32(max(abs(row).max() / np.float32(32767), np.finfo(np.float32).tiny))
        rows.append([np.float32(round(float(w / scale))) * scale for w in row])
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_weights_of_16_bits_come_back_rounded_and_answer_as_such(dtype, tmp_path, rng):
    made = random_artifact(rng, n_items=40, n_hidden=16, n_layers=2)
    weights = {
        name: rounded(weight, dtype) if weight.ndim == 2 and name != "neighbours" else weight
        for name, weight in made.network.weights.items()
    }
    save_artifact(made, tmp_path / "model", dtype)
    loaded = load_artifact(tmp_path / "model")
    assert loaded.network.weights.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(loaded.network.weights[name], weight)
    ratings = made.relative_rating.transform(random_histories(rng, 20, 40))
    expected = NumpyNetwork(made.network.config, weights).logits(ratings)
    np.testing.assert_array_equal(loaded.network.logits(ratings), expected)
    assert (expected != made.network.logits(ratings)).any()
    # float32 keeps what was rounded to the bit
    save_artifact(loaded, tmp_path / "again")
    again = load_artifact(tmp_path / "again", verify=False).network
    np.testing.assert_array_equal(again.logits(ratings), expected)
    assert again.weights["like_weight"].dtype == np.float32


def test_16_bits_halve_the_weights_and_biases_stay_float32(tmp_path, rng):
    made = random_artifact(rng, n_items=300, n_hidden=64)
    sizes = {}
    for dtype, stored in [("float32", "F32"), ("float16", "F16"), ("int16", "I16")]:
        save_artifact(made, tmp_path / dtype, dtype)
        found = inspect_artifact(tmp_path / dtype, verify=True)
        tensors = found["tensors"]
        for name in ("like_weight", "dislike_weight", "output_weight", "neighbour_weight"):
            assert tensors[name]["dtype"] == stored
        assert tensors["hidden_bias"]["dtype"] == tensors["output_bias"]["dtype"] == "F32"
        assert tensors["neighbours"] == {"dtype": "U16", "shape": [300, 2]}
        sizes[dtype] = found["files"]["weights.safetensors"]["bytes"]
    assert sizes["float16"] < 0.51 * sizes["float32"]
    assert sizes["int16"] < 0.53 * sizes["float32"]


@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e20, 1e38])
def test_rows_of_any_size_fit_into_int16(artifact, tmp_path, scale):
    weights = artifact.network.weights
    weights["output_weight"] = weights["output_weight"] / 4 * np.float32(scale)
    save_artifact(artifact, tmp_path / "model", "int16")
    found = load_artifact(tmp_path / "model").network.weights["output_weight"]
    largest = np.abs(weights["output_weight"]).max(axis=1, keepdims=True)
    step = np.maximum(largest / 32767, np.finfo(np.float32).tiny)
    assert (np.abs(found - weights["output_weight"]) <= 0.501 * step).all()


def test_what_float16_cannot_hold_and_unknown_types_are_refused(artifact, tmp_path):
    artifact.network.weights["output_weight"][3, 1] = 70_000.0
    with pytest.raises(ArtifactError, match="cannot be saved as float16: output_weight holds NaN"):
        save_artifact(artifact, tmp_path / "model", "float16")
    for dtype in ("float64", "int8", None):
        with pytest.raises(ConfigError, match="dtype must be one of float32, float16, int16; got"):
            save_artifact(artifact, tmp_path / "model", dtype)
    assert not (tmp_path / "model").exists()
    save_artifact(artifact, tmp_path / "model", "int16")
    found = load_artifact(tmp_path / "model").network.weights["output_weight"][3, 1]
    assert found == pytest.approx(70_000.0)


# Trends ------------------------------------------------------------------------------------------


def with_trend(artifact: Artifact, added: np.ndarray) -> Artifact:
    weights = {**artifact.network.weights, "trend": added}
    return replace(artifact, network=NumpyNetwork(artifact.network.config, weights))


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_the_trend_of_each_item_is_saved_and_added_to_its_scores(artifact, counts, tmp_path, dtype):
    added = np.linspace(-3, 3, 20, dtype=np.float32)
    for name, saved in (("plain", artifact), ("trend", with_trend(artifact, added))):
        save_artifact(saved, tmp_path / name, dtype)
    plain, trend = (load_artifact(tmp_path / name) for name in ("plain", "trend"))
    np.testing.assert_array_equal(trend.network.weights["trend"], added)
    ratings = artifact.relative_rating.transform(counts)
    np.testing.assert_allclose(
        trend.network.logits(ratings), plain.network.logits(ratings) + added, atol=1e-5
    )


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (np.zeros(19, np.float32), "trend must be float32 of shape"),
        (np.zeros((20, 1), np.float32), "trend must be float32 of shape"),
        (np.zeros(20), "trend must be float32"),
        (np.full(20, np.nan, np.float32), "trend holds NaN"),
    ],
)
def test_a_forged_trend_is_refused(artifact, tmp_path, forged, reason):
    folder = tmp_path / "model"
    save_artifact(with_trend(artifact, np.zeros(20, np.float32)), folder)
    save_arrays(folder / WEIGHTS, {**artifact.network.weights, "trend": forged})
    seal(folder)
    with pytest.raises(ArtifactError, match=reason):
        load_artifact(folder)
    weights = {**artifact.network.weights, "trend": forged}
    network = copy(artifact.network)
    network.weights = weights
    with pytest.raises(ArtifactError, match=reason):
        save_artifact(replace(artifact, network=network), tmp_path / "another")


def test_addresses_are_kept_and_forged_ones_are_refused(artifact, tmp_path):
    addresses = {"link": {1: "https://a.example/1"}, "image": {0: "http://b.example/0.png"}}
    catalogue = replace(artifact.catalogue, addresses=addresses)
    save_artifact(replace(artifact, catalogue=catalogue), tmp_path / "model")
    assert load_artifact(tmp_path / "model").catalogue.addresses == addresses
    items = json.loads((tmp_path / "model/items.json").read_text())
    for forged in (["javascript:alert(1)"] * 9, [1] * 9, [None], {"0": None}, None):
        (tmp_path / "model/items.json").write_text(json.dumps({**items, "links": forged}))
        seal(tmp_path / "model")
        with pytest.raises(ArtifactError, match="address"):
            load_artifact(tmp_path / "model")
