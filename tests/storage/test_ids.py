from __future__ import annotations

import datetime
import decimal
import json
import uuid

import numpy as np
import pytest

from cfnade.errors import ArtifactError
from cfnade.storage.ids import decode_ids, encode_ids


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 1, 2]),
        np.array([3, 1, 2], dtype=np.int32),
        np.array([2**63, 5], dtype=np.uint64),
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


@pytest.mark.parametrize(
    "ids",
    [np.array([3, 1, 3]), np.array([1, True], dtype=object), np.array([0.5, np.nan])],
    ids=["twice", "equal", "nan"],
)
def test_ids_that_cannot_be_told_apart_are_refused(ids):
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


def test_ids_made_to_have_one_hash_are_refused_at_once():
    modulus = (1 << 61) - 1  # of Python's hash of integers
    ids = [modulus * number for number in range(100_000)]
    with pytest.raises(ArtifactError, match="distinct"):
        decode_ids({"dtype": "object", "types": ["int"], "ids": ids})
