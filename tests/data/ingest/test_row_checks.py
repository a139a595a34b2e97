from __future__ import annotations

import pytest

from cfnade.data.ingest import read_interactions
from cfnade.errors import DataError
from tests.data.ingest.helpers import pairs, write, write_query


def refusal(source, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_interactions(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_bad_counts_are_told_apart_with_the_first_row_and_what_to_do(tmp_path):
    text = "user,item,plays\n1,a,2\n1,b,-3\n2,a,many\n2,b,\n3,a,nan\n3,b,inf\n4,a,-inf\n4,b,-1\n"
    assert refusal(write(tmp_path / "a.csv", text)) == (
        "7 of 8 counts in column 'plays' cannot be used (2 missing or NaN, 1 not a number, "
        f"2 infinite, 2 negative); the first is '-3' in data row 2 of {tmp_path}/a.csv "
        "(user '1', item 'b'); make it a finite number of at least 0 or drop these rows"
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("'nan'::DOUBLE", "1 missing or NaN); the first is nan "),
        ("'-inf'::FLOAT", "1 infinite); the first is -inf "),
        ("NULL::INTEGER", "1 missing or NaN); the first is none "),
        ("-2::BIGINT", "1 negative); the first is -2 "),
        ("-0.5::DECIMAL(4, 2)", "1 negative); the first is Decimal('-0.50') "),
        ("true", "1 not a number); the first is True "),
        ("DATE '2020-01-01'", "1 not a number); the first is datetime.date(2020, 1, 1) "),
        ("'4,5'", "1 not a number); the first is '4,5' "),
    ],
)
def test_a_bad_count_of_any_type_is_shown_as_it_is(tmp_path, value, said):
    path = write_query(tmp_path / "a.parquet", f"SELECT 1 AS user, 'x' AS item, {value} AS count")
    assert said in refusal(path)


@pytest.mark.parametrize(
    "value", ["5::UTINYINT", "5::HUGEINT", "5.0::DECIMAL(9, 3)", "5::FLOAT", "' 5 '", "'5e0'"]
)
def test_a_good_count_may_have_any_numeric_type(tmp_path, value):
    path = write_query(tmp_path / "a.parquet", f"SELECT 1 AS user, 'x' AS item, {value} AS count")
    assert pairs(read_interactions(path)) == {(1, "x"): 5.0}


def test_missing_ids_are_reported_with_the_first_row_and_what_to_do(tmp_path):
    path = write(tmp_path / "a.csv", 'user,item\n1,a\n,b\n"",c\n')
    assert refusal(path) == (
        f"2 of 3 rows have no user in column 'user'; the first is data row 2 of {path} "
        "(item 'b'); fill it in or drop these rows"
    )
    path = write(tmp_path / "b.csv", "user,item\n1,a\n2,\n")
    assert "1 of 2 rows have no item in column 'item'; the first is data row 2" in refusal(path)


def test_a_row_without_anything_is_reported(tmp_path):
    path = write_query(tmp_path / "a.parquet", "SELECT NULL::INT AS user, NULL::INT AS item")
    assert "the first is data row 1" in refusal(path)
    assert "(item none)" in refusal(path)


def test_nan_is_no_id(tmp_path):
    query = "SELECT 1.5 AS item, unnest([2.0, 'nan'::DOUBLE]) AS user"
    assert "1 of 2 rows have no user" in refusal(write_query(tmp_path / "a.parquet", query))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_first_bad_row_is_found_by_its_place_in_its_file(tmp_path, suffix):
    """Files are large enough for several threads and row groups to share one."""
    for name, first_bad in (("a", 1_000_000), ("b", 300_000), ("c", 2)):
        query = (
            "SELECT range % 1000 AS user, range % 999 AS item, "
            f"if(range >= {first_bad - 1} AND range % 7 < 6, -1, 1) AS count FROM range(400000)"
        )
        write_query(tmp_path / f"{name}.{suffix}", query)
    place = f"data row 300,000 of {tmp_path}/b.{suffix} "
    assert place in refusal(tmp_path)


def test_no_rows_at_all_are_refused(tmp_path):
    assert "there are no rows in" in refusal(write(tmp_path / "a.csv", "user,item\n"))
    path = write_query(tmp_path / "a.parquet", "SELECT 1 AS user, 2 AS item LIMIT 0")
    assert f"there are no rows in {path}" in refusal(path)


def test_counts_that_are_not_whole_add_up_the_same_in_any_order(tmp_path):
    """0.1 + 0.2 + 0.3 depends on the order of addition; ingest must not."""
    found = set()
    for place, order in enumerate(([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.3, 0.1])):
        rows = "".join(f"1,a,{value}\n" for value in order)
        path = write(tmp_path / f"{place}.csv", "user,item,weight\n" + rows)
        found |= set(pairs(read_interactions(path)).values())
    assert len(found) == 1
    assert found.pop() == pytest.approx(0.6)


def test_counts_too_large_to_be_added_exactly_add_up_the_same_in_any_order(tmp_path):
    found = set()
    for place, order in enumerate((["9007199254740992", "1", "1"], ["1", "1", "9007199254740992"])):
        rows = "".join(f"1,a,{value}\n" for value in order)
        path = write(tmp_path / f"{place}.csv", "user,item,count\n" + rows)
        found |= set(pairs(read_interactions(path)).values())
    assert found == {9007199254740994.0}


def test_counts_that_overflow_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,count\n1,a,1e308\n1,a,1e308\n")
    assert "infinite" in refusal(path)
