from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.frames import frame_library
from cfnade.errors import DataError
from tests.data.ingest.helpers import pairs

ROWS = {"user": [2, 1, 2, 2], "item": ["b", "a", "b", "a"], "count": [1, 2, 3, 4]}
COUNTED = {(1, "a"): 2.0, (2, "a"): 4.0, (2, "b"): 4.0}
FRAMES = {
    "pandas": pd.DataFrame,
    "pandas objects": lambda rows: pd.DataFrame(rows).astype(object),
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "arrow": pa.table,
    "arrow batch": lambda rows: pa.table(rows).to_batches()[0],
    "arrow reader": lambda rows: pa.table(rows).to_reader(),
}


def test_the_library_of_a_frame():
    kinds = {name: frame_library(make(ROWS)) for name, make in FRAMES.items()}
    assert [kinds[n] for n in ("pandas", "polars", "polars lazy")] == ["pandas", "polars", "polars"]
    assert kinds["arrow"] is None and frame_library(pd.Series([1])) is None
    assert frame_library("plays.csv") is None


@pytest.fixture(params=FRAMES)
def make(request):
    return FRAMES[request.param]


def test_every_kind_of_frame_gives_the_same_counts(make):
    found = read_interactions(make(ROWS))
    assert pairs(found) == COUNTED
    assert found.user_ids.tolist() == [1, 2]
    assert found.item_ids.tolist() == ["a", "b"]


def test_every_kind_of_frame_may_hold_events(make):
    found = read_interactions(make(ROWS), events=True)
    assert pairs(found) == {(1, "a"): 1.0, (2, "a"): 1.0, (2, "b"): 2.0}


def test_a_frame_is_not_changed(make):
    frame = make(ROWS)
    read_interactions(frame, min_user_items=1)
    if hasattr(frame, "equals"):
        assert frame.equals(make(ROWS))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_bad_rows_of_a_frame_are_reported_with_their_values(kind):
    make = FRAMES[kind]
    rows = {"user": ["u", "v"], "item": ["x", "y"], "count": [1.0, -2.0]}
    said = r"1 of 2 .*negative\); the first is -2.0 in data row 2 of the .* \(user 'v', item 'y'\)"
    with pytest.raises(DataError, match=said):
        read_interactions(make(rows))
    with pytest.raises(DataError, match=r"1 of 2 rows have no user .* row 2 of .*\(item 'y'\)"):
        read_interactions(make(rows | {"user": ["u", None]}))
    with pytest.raises(DataError, match=r"1 of 2 rows have no item .* row 1 of .*\(user 'u'\)"):
        read_interactions(make(rows | {"item": [float("nan"), 1.0]}))
    with pytest.raises(DataError, match=r"1 of 2 counts .*1 missing or NaN"):
        read_interactions(make(rows | {"count": [1, None]}))
    with pytest.raises(DataError, match=r"1 of 2 counts .*1 not a number.*'many'"):
        read_interactions(make(rows | {"count": ["1", "many"]}))
    with pytest.raises(DataError, match="there are no rows in the"):
        read_interactions(make({"user": [], "item": []}))


def test_a_bad_count_far_below_good_ones_is_still_reported():
    count = np.full(5000, 1, dtype=object)
    count[4000] = "x"
    frame = pd.DataFrame({"user": np.arange(5000), "item": 1, "count": count})
    with pytest.raises(DataError, match="the first is 'x' in data row 4,001"):
        read_interactions(frame)


IDS = {
    "int": [3, 1, 2],
    "big int": [2**80, -(2**70), 5],
    "text": ["b", "", "007"],
    "truth": [True, False],
    "float": [2.5, -1.0, 1e300],
    "uuid": [uuid.UUID(int=9), uuid.UUID(int=2**100)],
    "date": [dt.date(2024, 5, 1), dt.date(1999, 12, 31)],
    "moment": [dt.datetime(2024, 5, 1, 12, 30), dt.datetime(1999, 12, 31)],
    "moment of a zone": [dt.datetime(2024, 5, 1, tzinfo=dt.UTC)],
    "bytes": [b"\xff", b"a"],
    "decimal": [Decimal("1.50"), Decimal("-2.25")],
    "tuple": [(1, "x"), (0, "y")],
    "mixed": [1, "1", 2.5, (3,)],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_python_type_come_back_from_pandas(kind):
    ids = IDS[kind]
    frame = pd.DataFrame({"user": pd.Series(ids, dtype=object), "item": range(len(ids))})
    found = read_interactions(frame)
    assert pairs(found) == {(value, place): 1.0 for place, value in enumerate(ids)}
    assert sorted(map(type, found.user_ids.tolist()), key=str) == sorted(map(type, ids), key=str)
    if kind != "mixed":
        assert found.user_ids.tolist() == sorted(ids)


@pytest.mark.parametrize("kind", sorted(IDS.keys() - {"tuple", "mixed", "uuid"}))
def test_ids_of_any_polars_type_come_back(kind):
    ids = IDS[kind]
    column = pl.Series(ids, dtype=pl.Int128 if kind == "big int" else None)
    found = read_interactions(pl.DataFrame({"user": column, "item": range(len(ids))}))
    assert found.user_ids.tolist() == sorted(ids)
    assert pairs(found) == {(value, place): 1.0 for place, value in enumerate(ids)}
    assert {type(value) for value in found.user_ids.tolist()} == {type(value) for value in ids}


@pytest.mark.parametrize(
    "kind", sorted(IDS.keys() - {"tuple", "mixed", "uuid", "big int", "moment of a zone"})
)
def test_ids_of_any_arrow_type_come_back(kind):
    ids = IDS[kind]
    found = read_interactions(pa.table({"user": ids, "item": range(len(ids))}))
    assert found.user_ids.tolist() == sorted(ids)
    assert {type(value) for value in found.user_ids.tolist()} == {type(value) for value in ids}


@pytest.mark.parametrize(
    "dtype", ["int8", "uint64", "int64", "float32", "Int64", "string", "category", "bool"]
)
def test_the_type_of_a_pandas_column_is_kept(dtype):
    column = pd.Series([1, 0, 1]).astype(dtype)
    found = read_interactions(pd.DataFrame({"user": column, "item": ["a", "b", "c"]}))
    kept = {"Int64": "int64", "string": "object", "category": "int64"}.get(dtype, dtype)
    assert found.user_ids.dtype == kept
    assert found.user_ids.tolist() == sorted(set(column))


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt64, pl.Float32])
def test_the_type_of_a_polars_column_is_kept(dtype):
    column = pl.Series([1, 0, 1], dtype=dtype)
    found = read_interactions(pl.DataFrame({"user": column, "item": ["a", "b", "c"]}))
    assert found.user_ids.dtype == column.to_numpy().dtype


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["z", "m", "a"])])
def test_categories_of_polars_are_sorted_as_text(dtype):
    categories = pl.Series(["z", "a"], dtype=dtype)
    found = read_interactions(pl.DataFrame({"user": categories, "item": [1, 2]}))
    assert pairs(found) == {("z", 1): 1.0, ("a", 2): 1.0}
    assert found.user_ids.tolist() == ["a", "z"]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"user": [[1], [2]], "item": [1, 2]}),
        pl.DataFrame({"user": [[1], [2]], "item": [1, 2]}),
        pa.table({"user": [[1], [2]], "item": [1, 2]}),
        pl.DataFrame({"user": pl.Series([object()], dtype=pl.Object), "item": [1]}),
    ],
    ids=["pandas", "polars", "arrow", "polars objects"],
)
def test_lists_cannot_serve_as_ids(frame):
    with pytest.raises(DataError, match="cannot serve as user ids"):
        read_interactions(frame)


def test_a_frame_may_have_columns_that_are_no_text_or_come_twice():
    frame = pd.DataFrame([[1, "a", 9], [2, "b", 9]], columns=["user", 7, "user"])
    assert pairs(read_interactions(frame, item_col="7")) == {(1, "a"): 1.0, (2, "b"): 1.0}


def test_a_lazy_frame_is_computed_once_so_its_rows_stay_together():
    computed = []

    def in_another_order_each_time(frame: pl.DataFrame) -> pl.DataFrame:
        computed.append(1)
        return frame.reverse() if len(computed) % 2 else frame

    lazy = pl.LazyFrame(ROWS).map_batches(in_another_order_each_time)
    assert pairs(read_interactions(lazy)) == COUNTED
    assert len(computed) == 1


def test_strided_columns_are_read_right():
    block = np.arange(12).reshape(4, 3)[::-2]
    frame = pd.DataFrame(block, columns=["user", "item", "count"])
    assert pairs(read_interactions(frame)) == {(9, 10): 11.0, (3, 4): 5.0}


@pytest.mark.parametrize(
    "source",
    [
        np.ones((2, 2)),
        {"user": [1], "item": [1]},
        7,
        None,
        b"a.csv",
        pd.Series([1]),
        pl.Series([1]),
        pa.array([1]),
    ],
    ids=lambda source: type(source).__name__,
)
def test_anything_else_is_refused_in_one_line(source):
    with pytest.raises(DataError, match="expected") as caught:
        read_interactions(source)
    assert "\n" not in str(caught.value)


def test_pandas_and_polars_frames_do_not_need_pyarrow():
    program = """
import sys, types
import pandas, polars
for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
    del sys.modules[name]
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.frames import frame_library
rows = {"user": ["b", "a"], "item": [1, 2], "count": [3, 4]}
python_text = pandas.DataFrame(rows).astype({"user": object})
for frame in (python_text, polars.DataFrame(rows), polars.LazyFrame(rows)):
    assert read_interactions(frame).user_ids.tolist() == ["a", "b"]
assert "pyarrow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
