"""A prepared folder is read back as it was written, and an unusable one is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.ratings import RelativeRating
from cfnade.errors import DataError
from cfnade.scale.prepared import Prepared

pq = pytest.importorskip("pyarrow.parquet")


def rows_of(folder, part):
    """Literally: one part of every row of every file, as a dense matrix."""
    rows = [
        row
        for path in sorted((folder / "users").glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    dense = np.zeros((len(rows), 30))
    for user, row in enumerate(rows):
        dense[user, row[f"{part}items"]] = row[f"{part}counts"]
    return dense


def test_held_out_parts_come_with_the_histories_of_their_users(folder):
    known, held_out = rows_of(folder, ""), rows_of(folder, "validation_")
    judged = held_out.any(axis=1)
    pieces = list(Prepared.open(folder).held_out("validation"))
    assert 0 < judged.sum() < len(judged) and len(pieces) > 4  # several row groups
    for found, expected in zip(zip(*pieces, strict=True), (known, held_out), strict=True):
        dense = np.vstack([matrix.toarray() for matrix in found])
        np.testing.assert_array_equal(dense, expected[judged])
    assert list(Prepared.open(folder).held_out("test")) == []


def test_columns_and_ratings_are_those_of_the_training_part(folder):
    whole = Prepared.open(folder)
    assert whole.catalogue.ids.tolist() == list(range(30))
    fitted = RelativeRating().fit(csr_array(rows_of(folder, "")))
    for name in ("item_starts_", "distinct_counts_", "n_watchers_up_to_"):
        assert np.array_equal(getattr(whole.relative_rating, name), getattr(fitted, name))


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (None, "not a prepared folder, or an incomplete one"),
        ("{", "cannot be read"),
        ("[1]", "is not of format 1; prepare the data again"),
        (json.dumps({"format": 2}), "is not of format 1; prepare the data again"),
    ],
)
def test_a_folder_that_is_incomplete_or_of_another_format_is_refused(tmp_path, summary, message):
    if summary is not None:
        (tmp_path / "prepared.json").write_text(summary)
    with pytest.raises(DataError, match=message):
        Prepared.open(tmp_path)


def test_missing_parts_are_named(folder, tmp_path):
    copy = Prepared.open(shutil.copytree(folder, tmp_path / "copy"))
    for name in ("users", "items"):
        shutil.rmtree(copy.folder / name)
    with pytest.raises(DataError, match=r"no shards in .*users; prepare the data again"):
        copy.shards  # noqa: B018
    with pytest.raises(DataError, match=r"items cannot be read: .*; prepare the data again"):
        copy.catalogue  # noqa: B018
