"""Features of items in a saved model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.errors import ArtifactError
from cfnade.storage.feature_arrays import ARRAYS, pack_features, read_features


def some_features() -> ItemFeatures:
    columns = {
        "genre": Entries([0, 1, 1, 3], ["Drama", "Drama", "Crime", "Ελλάδα"], np.ones(4)),
        "text": Entries([0, 3, 3], ["sea", "sea", "storm"], [1.0, 1.7, 0.1]),
    }
    return ItemFeatures.from_entries(4, columns, {"genre": "list |", "text": "words"})


def test_what_is_packed_is_read_again_to_the_bit():
    features = some_features()
    arrays, texts = pack_features(features)
    again = read_features(arrays, json.loads(json.dumps(texts)))
    for part in ("indptr", "indices", "data"):
        one, other = (getattr(each.matrix, part) for each in (features, again))
        np.testing.assert_array_equal(one, other)
    assert again.matrix.dtype == np.float32 and again.matrix.shape == features.matrix.shape
    assert again.values.tolist() == features.values.tolist()
    assert again.column.tolist() == features.column.tolist()
    assert (again.columns, again.forms) == (features.columns, features.forms)


def test_a_model_without_features_has_no_arrays():
    assert pack_features(None) == ({}, None)
    assert read_features({}, None) is None


@pytest.mark.parametrize("missing", ARRAYS)
def test_an_array_must_not_be_missing(missing):
    arrays, texts = pack_features(some_features())
    del arrays[missing]
    with pytest.raises(ArtifactError, match="not complete"):
        read_features(arrays, texts)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("feature_starts", np.array([0, 2, 4, 4, 8])),
        ("feature_starts", np.array([1, 2, 4, 4, 7])),
        ("feature_starts", np.array([0, 4, 2, 4, 7])),
        ("feature_starts", np.array([], dtype=np.int64)),
        ("feature_starts", np.array([0.0, 2, 4, 4, 7])),
        ("feature_of", np.array([1, 3, 0, 1, 2, 3, 9], dtype=np.uint8)),
        ("feature_of", np.array([1, 1, 0, 1, 2, 3, 4], dtype=np.uint8)),
        ("feature_of", np.array([[1, 3, 0, 1, 2, 3, 4]], dtype=np.uint8)),
        ("feature_weight", np.array([1, 1, 1, 1, 1, np.nan, 1], dtype=np.float32)),
        ("feature_weight", np.array([1, 1, 1, 1, 1, 0, 1], dtype=np.float32)),
        ("feature_weight", np.ones(7)),
        ("feature_column", np.array([0, 0, 0, 1, 2], dtype=np.uint8)),
        ("feature_column", np.array([0, 0, 0, 1], dtype=np.uint8)),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(name, changed):
    arrays, texts = pack_features(some_features())
    with pytest.raises(ArtifactError):
        read_features({**arrays, name: changed}, texts)


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": ["genre", "genre"]},
        {"columns": ["genre"]},
        {"columns": "genre"},
        {"values": ["Drama"]},
        {"values": ["a", "a", "b", "c", "d"]},
        {"values": [1, 2, 3, 4, 5]},
        {"forms": ["words"]},
        {"forms": None},
    ],
)
def test_texts_that_do_not_belong_together_are_refused(changes):
    arrays, texts = pack_features(some_features())
    with pytest.raises(ArtifactError):
        read_features(arrays, {**texts, **changes})
    with pytest.raises(ArtifactError):
        read_features(arrays, None)
