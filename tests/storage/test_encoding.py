from __future__ import annotations

import datetime
import decimal
import json
import uuid

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cfnade.errors import ArtifactError
from cfnade.storage.encoding import decode_ids, encode_ids, map_tensors, pack_ids
from cfnade.storage.untrusted import map_file

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4, dtype=np.int64),
    "c": np.array([0.5]),
    "d": np.array([[0.5, -2.0]], dtype=np.float16),
    "e": np.array([-7, 7], dtype=np.int16),
    "f": np.array([7], dtype=np.uint8),
    "g": np.array([[65535]], dtype=np.uint16),
    "h": np.array([1 << 31], dtype=np.uint32),
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
    assert map_tensors(file_of({"a": entry()}))["a"].shape == (2,)


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
        map_tensors(content)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 1, 2]),
        np.array([3, 1, 2], dtype=np.int32),
        np.array([2**63, 5], dtype=np.uint64),
        np.array([-1, 2**40]),
        np.arange(300, dtype=">i4"),
        np.array([0.5, 2.0]),
        np.array(["007", "a b", "ü"], dtype=object),
        np.array(["x", "yz"]),
        np.array([1.5, -0.25], dtype=np.float32),
        np.array([True, False]),
        np.array([5, 7], dtype="timedelta64[h]"),
        np.array([7, "7", 7.5, True], dtype=object),
        np.array([uuid.UUID(int=5), uuid.UUID(int=7)], dtype=object),
        np.array([datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3)], dtype=object),
        np.array(["2020-01-02", "2021-05-06"], dtype="datetime64[us]"),
        np.array([decimal.Decimal("1.50"), 2**70, 1 - 10**308], dtype=object),
        np.array([b"\x00\xff", b""], dtype=object),
        np.array([], dtype=object),
    ],
    ids=lambda ids: f"{ids.dtype}{len(ids)}",
)
def test_ids_of_any_type_come_back_unchanged(ids):
    for encode in (encode_ids, pack_ids):
        back = decode_ids(json.loads(json.dumps(encode(ids))))
        assert back.dtype == ids.dtype
        assert back.tolist() == ids.tolist()
        assert [type(a) for a in back.tolist()] == [type(a) for a in ids.tolist()]


def test_ids_that_cannot_be_kept_are_refused():
    with pytest.raises(ArtifactError, match="ids of type tuple cannot be saved"):
        ids = np.empty(1, dtype=object)
        ids[0] = (1, 2)
        encode_ids(ids)
    with pytest.raises(ArtifactError, match="more than 308 digits"):
        encode_ids(np.array([10**308, 1], dtype=object))


@pytest.mark.parametrize(
    "ids",
    [np.array([3, 1, 3]), np.array([1, True], dtype=object), np.array([0.5, np.nan])],
    ids=["twice", "equal", "nan"],
)
def test_ids_that_are_not_distinct_are_refused(ids):
    with pytest.raises(ArtifactError, match="must be distinct"):
        encode_ids(ids)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "O"},
        {"dtype": "<U999999999999"},
        {"dtype": "V8"},
        {"dtype": "i4,i4"},
        {"dtype": ["<i8"]},
        {"dtype": "<i1", "ids": [1, 300, 2]},
        {"dtype": "<i8", "types": None},
        {"types": ["str"]},
        {"types": ["bool"]},
        {"types": ["eval"]},
        {"types": [["int"]]},
        {"types": "int"},
        {"types": ["int", "int"]},
        {"types": ["decimal"], "ids": ["1", "x", "2"]},
        {"types": ["decimal"], "ids": ["1", "sNaN", "2"], "dtype": "object"},
        {"types": ["date"], "ids": ["2020-01-01", "never", "2"]},
        {"ids": [1, 2, 2]},
        {"ids": [1, 2, None]},
        {"ids": [1, 2, [3]]},
        {"ids": {"0": 1}},
        {"types": None, "dtype": "<M8[s]", "ids": ["2020", "soon", "2021"]},
        {"types": None, "dtype": "<M8[s]", "ids": ["NaT", "2020", "2021"]},
        {"types": ["str"], "dtype": "str", "ids": ["a", "b" * (1 << 20)] + ["c"] * 1000},
    ],
    ids=lambda change: str(change)[:60],
)
def test_damaged_ids_are_refused(change):
    encoded = {"dtype": "<i8", "types": ["int"], "ids": [3, 1, 2]}
    assert decode_ids(encoded).tolist() == [3, 1, 2]
    with pytest.raises(ArtifactError, match="item ids"):
        decode_ids({**encoded, **change})


def test_whole_numbers_are_packed_into_few_bytes():
    packed = pack_ids(np.arange(1000))
    assert packed["packed"] == "<u2" and len(packed["ids"]) < 2700
    assert pack_ids(np.array(["a", "b"]))["ids"] == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        {"ids": "AwEC!"},
        {"ids": "AwE"},
        {"ids": "AwED"},
        {"ids": ""},
        {"packed": "<u2"},
        {"packed": "|f1"},
        {"packed": "<f8"},
        {"packed": "O"},
        {"packed": "<U1"},
        {"packed": ["|u1"]},
        {"packed": None},
        {"types": ["str"]},
        {"dtype": "|i1", "ids": "/wEC"},
    ],
    ids=str,
)
def test_damaged_packed_ids_are_refused(change):
    encoded = {"dtype": "<i8", "types": ["int"], "ids": "AwEC", "packed": "|u1"}
    assert decode_ids(encoded).tolist() == [3, 1, 2]
    if change == {"ids": ""}:  # no ids at all; refused for their number
        assert decode_ids({**encoded, **change}).size == 0
        return
    with pytest.raises(ArtifactError, match="item ids"):
        decode_ids({**encoded, **change})


def test_ids_made_to_have_one_hash_are_refused_at_once():
    modulus = (1 << 61) - 1  # of Python's hash of integers
    ids = [modulus * number for number in range(100_000)]
    with pytest.raises(ArtifactError, match="distinct"):
        decode_ids({"dtype": "object", "types": ["int"], "ids": ids})
