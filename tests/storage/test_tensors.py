from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cfnade.errors import ArtifactError
from cfnade.files import map_file
from cfnade.storage.tensors import map_tensors, read_header

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4, dtype=np.int64),
    "c": np.array([0.5]),
    "none": np.empty((0, 5), dtype=np.float32),
}


def file_of(header: object, n_data: int = 8, n_header: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return (
        (len(text) if n_header is None else n_header).to_bytes(8, "little") + text + b"\0" * n_data
    )


def entry(**changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


def test_what_the_safetensors_package_writes_is_read_as_it_reads_it(tmp_path):
    save_file(ARRAYS, tmp_path / "file", metadata={"made": "here"})
    expected = load_file(tmp_path / "file")
    found = map_tensors(map_file(tmp_path / "file"))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_proper_header_is_read():
    assert read_header(file_of({"a": entry()}))["a"].shape == (2,)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        file_of({"a": entry()}, n_header=1 << 63),
        file_of({"a": entry()}, n_header=0),
        file_of({"a": entry()}, n_header=200),
        file_of([]),
        file_of({"a": None}),
        file_of({"a": entry()}, n_data=7),
        file_of({"a": entry()}, n_data=9),
        file_of({"a": entry(dtype="F128")}),
        file_of({"a": entry(dtype="O")}),
        file_of({"a": entry(dtype=["F32"])}),
        file_of({"a": entry(shape=[3])}),
        file_of({"a": entry(shape=[-2])}),
        file_of({"a": entry(shape=[2.0])}),
        file_of({"a": entry(shape=[True, 2])}),
        file_of({"a": entry(shape=[1 << 40, 1 << 40])}),
        file_of({"a": entry(shape=[1 << 70])}),
        file_of({"a": entry(shape=[0, 1 << 61], data_offsets=[0, 0])}, n_data=0),
        file_of({"a": entry(shape=[1, 1, 2])}),
        file_of({"a": entry(shape="2")}),
        file_of({"a": entry(data_offsets=[8, 16])}),
        file_of({"a": entry(data_offsets=[-8, 0])}),
        file_of({"a": entry(data_offsets=[8, 0])}),
        file_of({"a": entry(data_offsets=[0, 8, 16])}),
        file_of({"a": entry(data_offsets=None)}),
        file_of({"a": entry(), "b": entry()}),
        file_of({"a": entry(), "b": entry(data_offsets=[4, 12])}, n_data=12),
        file_of({"a": entry(), "b": entry(data_offsets=[12, 20])}, n_data=20),
    ],
    ids=range(29),
)
def test_a_header_that_does_not_fit_its_file_is_refused(content):
    with pytest.raises(ArtifactError):
        read_header(content)
