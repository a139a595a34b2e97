"""The exported graph answers as the model does, in a runtime that knows nothing of it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from cfnade.errors import ArtifactError, MissingExtraError
from cfnade.model.inference import NumpyNetwork
from cfnade.storage.encoding import decode_ids
from cfnade.storage.folder import Artifact, load_artifact, save_artifact
from cfnade.storage.onnx_export import export_onnx
from tests.storage.saved import random_artifact, random_histories

onnxruntime = pytest.importorskip("onnxruntime")

N_ITEMS = 15


def session_of(artifact: Artifact, tmp_path) -> onnxruntime.InferenceSession:
    export_onnx(artifact, tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(tmp_path / "model.onnx", options)


def check_equal(artifact: Artifact, session: onnxruntime.InferenceSession, histories) -> None:
    expected = artifact.network.logits(artifact.relative_rating.transform(histories))
    for user in range(histories.shape[0]):
        row = histories[[user]]
        order = np.arange(row.nnz)[::-1]  # the order of a history does not matter
        given = {"items": row.indices[order].astype(np.int64), "counts": row.data[order]}
        (scores,) = session.run(["scores"], given)
        np.testing.assert_allclose(scores, expected[user], atol=1e-5)


@pytest.mark.parametrize("n_neighbours", [0, 4])
@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("input_scale", ["none", "alpha", "history"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "silu", "identity"])
def test_the_graph_gives_the_same_scores(
    rng, tmp_path, activation, input_scale, n_layers, n_neighbours
):
    artifact = random_artifact(
        rng, n_items=N_ITEMS, n_hidden=4, n_layers=n_layers, n_neighbours=n_neighbours,
        activation=activation, input_scale=input_scale, alpha=2.0,
    )  # fmt: skip
    histories = random_histories(rng, 8, N_ITEMS)
    assert histories[[0]].nnz == 0  # an empty history is among them
    check_equal(artifact, session_of(artifact, tmp_path), histories)


def test_counts_between_below_and_above_those_seen_and_of_unwatched_items(rng, tmp_path):
    artifact = random_artifact(rng, n_items=N_ITEMS, n_neighbours=0)
    histories = random_histories(rng, 30, N_ITEMS).toarray()
    histories[1] = 0.05  # below all
    histories[2] = 1e6  # above all
    histories[3:10] *= rng.random((7, N_ITEMS)) * 3  # between
    histories[10, -1] = 2.0  # of an item that nobody watched
    from scipy.sparse import csr_array

    check_equal(artifact, session_of(artifact, tmp_path), csr_array(histories))


def test_a_model_without_any_counts_can_be_exported(rng, tmp_path):
    artifact = random_artifact(rng, n_items=N_ITEMS, n_neighbours=0)
    artifact.relative_rating.fit(random_histories(rng, 3, N_ITEMS) * 0)
    check_equal(artifact, session_of(artifact, tmp_path), random_histories(rng, 5, N_ITEMS))


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_a_model_of_16_bits_is_exported_as_it_answers(rng, tmp_path, dtype):
    save_artifact(random_artifact(rng, n_items=N_ITEMS), tmp_path / "model", dtype)
    small = load_artifact(tmp_path / "model")
    check_equal(small, session_of(small, tmp_path), random_histories(rng, 5, N_ITEMS))


def test_the_ids_of_the_columns_are_in_the_file(rng, tmp_path):
    artifact = random_artifact(rng, n_items=N_ITEMS)
    found = session_of(artifact, tmp_path).get_modelmeta()
    ids = decode_ids(json.loads(found.custom_metadata_map["item_ids"]))
    assert ids.tolist() == artifact.catalogue.ids.tolist()
    assert found.producer_name == "cfnade"


def test_the_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it(rng, tmp_path):
    (tmp_path / "model.onnx").write_text("old")
    export_onnx(random_artifact(rng), tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    with pytest.raises(ArtifactError, match="cannot write"):
        export_onnx(random_artifact(rng), tmp_path / "model.onnx" / "below")


def test_what_is_missing_without_the_extra_is_told(rng, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"needs onnx; .* pip install 'cfnade\[onnx\]'"):
        export_onnx(random_artifact(rng), tmp_path / "model.onnx")


def test_the_trend_of_each_item_is_in_the_graph(rng, tmp_path):
    artifact = random_artifact(rng, n_items=N_ITEMS)
    added = np.linspace(-4, 4, N_ITEMS, dtype=np.float32)
    network = NumpyNetwork(artifact.network.config, {**artifact.network.weights, "trend": added})
    trendy = replace(artifact, network=network)
    histories = random_histories(rng, 8, N_ITEMS)
    check_equal(trendy, session_of(trendy, tmp_path), histories)
    ratings = artifact.relative_rating.transform(histories)
    assert np.abs(network.logits(ratings) - artifact.network.logits(ratings)).max() > 3.9
