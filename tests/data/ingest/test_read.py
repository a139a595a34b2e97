from __future__ import annotations

import csv
import datetime as dt
import random
import uuid
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

from cfnade.data.ingest import read_interactions
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError
from tests.data.ingest.helpers import pairs, write, write_parquet, write_query


def test_events_are_counted(tmp_path):
    path = write(tmp_path / "a.csv", "household_id,product_id\n7,milk\n8,tea\n7,milk\n7,tea\n")
    found = read_interactions(path)
    assert pairs(found) == {(7, "milk"): 2.0, (7, "tea"): 1.0, (8, "tea"): 1.0}


def test_counts_of_the_same_pair_are_added_up(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,plays\n7,x,2\n7,x,3.5\n8,x,1\n")
    assert pairs(read_interactions(path)) == {(7, "x"): 5.5, (8, "x"): 1.0}


def test_a_rating_is_no_count_but_can_be_named_as_one(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,rating\n7,x,4\n8,x,5\n")
    assert pairs(read_interactions(path)) == {(7, "x"): 1.0, (8, "x"): 1.0}
    assert pairs(read_interactions(path, count_col="rating")) == {(7, "x"): 4.0, (8, "x"): 5.0}


def test_events_true_ignores_the_count_column_even_if_it_is_bad(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,count\n7,x,-4\n7,x,what\n")
    assert pairs(read_interactions(path, events=True)) == {(7, "x"): 2.0}


def test_ids_come_in_sorted_order_whatever_the_order_of_rows(tmp_path):
    rows = [f"{user},i{item},{user * item}\n" for user in range(1, 13) for item in range(1, 12)]
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        path = write(tmp_path / f"{seed}.csv", "user,item,count\n" + "".join(rows))
        found.append(read_interactions(path))
    assert found[0].user_ids.tolist() == list(range(1, 13))  # as numbers: 2 before 10
    assert found[0].item_ids.tolist() == sorted(f"i{item}" for item in range(1, 12))
    for other in found[1:]:
        assert other.user_ids.tolist() == found[0].user_ids.tolist()
        assert other.item_ids.tolist() == found[0].item_ids.tolist()
        assert (other.counts != found[0].counts).nnz == 0


@pytest.mark.parametrize(
    "ids",
    [
        ["7", "007"],
        ["1", "9223372036854775808"],
        ["1", "+1"],
        ["0", "-0"],
        ["1", "1.0", "1.50"],
        ["1", " 1"],
        ["1e5", "100000"],
        ["NULL", "NA", "nan", "None", "true"],
        ["2024-05-01", "2024-5-1"],
        ["\uff11", "1"],
    ],
)
def test_ids_of_a_csv_stay_text_where_numbers_would_lose_something(tmp_path, ids):
    path = write(tmp_path / "a.csv", "user,item\n" + "".join(f"{value},x\n" for value in ids))
    found = read_interactions(path)
    assert found.user_ids.tolist() == sorted(ids)
    assert found.user_ids.dtype == object


def test_plain_integers_of_a_csv_are_integers(tmp_path):
    values = [-(2**63), -7, 0, 10, 2**63 - 1]
    path = write(tmp_path / "a.csv", "user,item\n" + "".join(f"{v},0\n" for v in values))
    found = read_interactions(path)
    assert found.user_ids.tolist() == values
    assert found.user_ids.dtype == np.int64


def test_a_text_id_far_below_integers_makes_all_of_them_text(tmp_path):
    rows = "".join(f"{user},x\n" for user in range(50_000))
    found = read_interactions(write(tmp_path / "a.csv", f"user,item\n{rows}last,x\n"))
    assert found.n_users == 50_001
    assert found.user_ids[-1] == "last"
    assert found.user_ids[0] == "0"


@pytest.mark.parametrize(
    ("expression", "expected", "dtype"),
    [
        ("7::TINYINT", 7, np.int8),
        ("7::INTEGER", 7, np.int32),
        ("18446744073709551615::UBIGINT", 2**64 - 1, np.uint64),
        ("2.5::DOUBLE", 2.5, np.float64),
        ("true", True, np.bool_),
        ("'007'", "007", object),
        ("'00000000-0000-0000-0000-0000000000ff'::UUID", uuid.UUID(int=255), object),
        ("DATE '2024-05-01'", dt.date(2024, 5, 1), object),
        ("TIMESTAMP '2024-05-01 10:00'", dt.datetime(2024, 5, 1, 10), "datetime64[us]"),
        ("'ab'::BLOB", b"ab", object),
    ],
)
def test_ids_of_any_parquet_type_come_back_unchanged(tmp_path, expression, expected, dtype):
    path = write_query(tmp_path / "a.parquet", f"SELECT {expression} AS user, 'x' AS item")
    found = read_interactions(path)
    assert found.user_ids.tolist() == [expected]
    assert type(found.user_ids.tolist()[0]) is type(expected)
    assert found.user_ids.dtype == dtype
    assert found.user_index == {expected: 0}


def test_values_without_equality_cannot_be_ids(tmp_path):
    path = write_query(tmp_path / "a.parquet", "SELECT [1, 2] AS user, 'x' AS item")
    with pytest.raises(DataError, match=r"INTEGER\[\] cannot serve as user ids"):
        read_interactions(path)


def test_a_count_of_zero_is_no_interaction_but_its_user_and_item_stay(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,count\n1,a,0\n1,b,0\n2,b,3\n2,a,0\n3,b,0\n3,b,2\n")
    found = read_interactions(path)
    assert found.user_ids.tolist() == [1, 2, 3]
    assert found.item_ids.tolist() == ["a", "b"]
    assert found.counts.toarray().tolist() == [[0, 0], [0, 3], [0, 2]]
    assert found.n_pairs == 2
    only_used = read_interactions(path, min_user_items=1, min_item_users=1)
    assert (only_used.user_ids.tolist(), only_used.item_ids.tolist()) == ([2, 3], ["b"])


@pytest.mark.parametrize("source", [csr_array((3, 4)), csr_matrix([[0.0, 0.0]])])
def test_no_interaction_at_all_is_refused(tmp_path, source):
    with pytest.raises(DataError, match="no count is above zero"):
        read_interactions(source)
    with pytest.raises(DataError, match="no count is above zero"):
        read_interactions(write(tmp_path / "a.csv", "user,item,count\n1,a,0\n"))


def test_a_single_user_and_a_single_item_are_fine(tmp_path):
    found = read_interactions(write(tmp_path / "a.csv", "user,item\n1,a\n"))
    assert (found.n_users, found.n_items, found.n_pairs) == (1, 1, 1)


def test_the_floors_hold_together_in_the_result(tmp_path):
    """Without user 3, item c has one user only; without c, user 2 has one item only."""
    path = write(tmp_path / "a.csv", "user,item\n0,a\n0,b\n1,a\n1,b\n2,b\n2,c\n3,c\n")
    found = read_interactions(path, min_user_items=2, min_item_users=2)
    assert pairs(found) == {(0, "a"): 1.0, (0, "b"): 1.0, (1, "a"): 1.0, (1, "b"): 1.0}


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_a_sparse_matrix_is_read_with_its_places_as_ids(kind):
    found = read_interactions(kind([[0, 2], [1, 0], [0, 0]]))
    assert found.user_ids.tolist() == [0, 1, 2]
    assert pairs(found) == {(0, 1): 2.0, (1, 0): 1.0}
    assert read_interactions(kind([[0, 2], [1, 0], [0, 0]]), min_user_items=1).n_users == 2


def test_interactions_pass_through():
    interactions = Interactions(csr_array([[1.0, 2.0], [0.0, 3.0]]), ["u", "v"], ["a", "b"])
    assert read_interactions(interactions) is interactions
    assert read_interactions(interactions, min_user_items=2).user_ids.tolist() == ["u"]


@pytest.mark.parametrize(
    "option",
    [{"user_col": "user"}, {"events": True}, {"name_col": "name"}, {"drop_missing_ids": True}],
)
def test_a_matrix_has_no_columns_to_choose(option):
    with pytest.raises(ConfigError, match="has no columns to choose from"):
        read_interactions(csr_array([[1.0]]), **option)


def test_what_is_larger_than_memory_is_read_all_the_same(tmp_path, two_threads):
    """The grouping of three million pairs has to go through the disk."""
    path = write_query(
        tmp_path / "a.parquet",
        "SELECT 'user-' || (range % 10007) AS user, 'item-' || (range % 997) AS item, "
        "range % 3 AS count FROM range(3000000)",
    )
    spill = tmp_path / "spill"
    spill.mkdir()
    small = read_interactions(path, memory_limit="100MB", temp_directory=spill)
    large = read_interactions(path)
    assert list(spill.iterdir()) == []
    assert small.n_users == 10_007
    assert small.counts.sum() == sum(value % 3 for value in range(3_000_000))
    assert (small.counts != large.counts).nnz == 0


def test_a_log_larger_than_memory_is_read_all_the_same(tmp_path, two_threads):
    path = write_query(
        tmp_path / "a.parquet",
        "SELECT 'user-' || (range % 10007) AS user, 'item-' || (range % 997) AS item, "
        "range + 1700000000 AS timestamp, if(range % 3 = 0, 'buy', 'view') AS event "
        "FROM range(1500000)",
    )
    small = read_interactions(path, memory_limit="150MB", temp_directory=tmp_path)
    large = read_interactions(path)
    assert small.log.n_entries == 1_500_000
    assert small.fingerprint() == large.fingerprint()


def test_rows_without_time_and_kind_have_no_log(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,date,event\n1,a,2024-05-01,view\n")
    assert read_interactions(path).log.kinds == ("view",)
    assert read_interactions(path, time_col="none").log.time is None
    assert read_interactions(path, event_col="None").log.kind is None
    assert read_interactions(path, time_col="none", event_col="none").log is None


def test_a_column_named_none_can_be_named(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,none\n1,a,2024-05-01\n")
    assert read_interactions(path, time_col="none").log.clock == "seconds"


def test_floors_apply_to_the_log_too(tmp_path):
    text = "user,item,time\n0,a,1\n0,b,2\n1,a,3\n1,b,4\n2,b,5\n2,c,6\n"
    found = read_interactions(write(tmp_path / "a.csv", text), min_user_items=2, min_item_users=2)
    assert found.log.time.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (found.log.counts(found.counts.shape) != found.counts).nnz == 0


def test_a_column_with_many_values_holds_no_kinds_of_events(tmp_path, caplog):
    rows = "".join(f"1,a,t{place}\n" for place in range(101))
    path = write(tmp_path / "a.csv", "user,item,type\n" + rows)
    assert read_interactions(path).log is None
    assert "column 'type' has more than 100 different values" in caplog.text
    with pytest.raises(DataError, match="more than 100 different values; name a column of kinds"):
        read_interactions(path, event_col="type")


def test_a_row_without_its_kind_of_event_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,event\n1,a,view\n2,b,\n")
    assert refusal(path) == (
        f"1 of 2 rows have no event in column 'event'; the first is data row 2 of {path} "
        "(user '2'); fill it in or drop these rows, or ignore the column with event_col 'none'"
    )


def test_blanks_around_a_kind_of_event_do_not_count_and_letter_case_is_reported(tmp_path, caplog):
    path = write(tmp_path / "a.csv", "user,item,event\n1,a, view \n2,b,view\n2,c,  \n")
    with pytest.raises(DataError, match="1 of 3 rows have no event in column 'event'"):
        read_interactions(path)
    path = write(tmp_path / "a.csv", "user,item,event\n1,a, view \n2,b,view\n2,c,View\n2,c,buy\n")
    assert read_interactions(path).log.kinds == ("View", "buy", "view")
    assert "case alone and count as different ones: 'View', 'view'" in caplog.text


def test_kinds_may_be_numbers(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", user=[1, 1], item=[1, 1], action=[3, 1])
    assert read_interactions(path).log.kinds == ("1", "3")


def test_nothing_is_left_behind_after_an_error(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,count\n1,a,-1\n")
    spill = tmp_path / "spill"
    spill.mkdir()
    with pytest.raises(DataError):
        read_interactions(path, temp_directory=spill)
    assert list(spill.iterdir()) == []


# Any text that UTF-8 can write: empty fields mean "missing" in a CSV, so none is empty there.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=5)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
EVENTS = st.one_of(
    st.lists(st.tuples(ids, ids, st.integers(0, 5)), min_size=1, max_size=30)
    for ids in (INTEGERS, TEXTS, st.integers(0, 3))
)


def totals(events, weight) -> dict:
    counter: Counter = Counter()
    for user, item, count in events:
        counter[user, item] += weight(count)
    return {pair: count for pair, count in counter.items() if count}


@settings(max_examples=25, deadline=None)
@given(events=EVENTS.filter(lambda events: any(count for *_, count in events)), seed=st.integers())
def test_any_counts_from_any_ids_agree_with_a_plain_counter(events, seed):
    expected = totals(events, lambda count: count)
    random.Random(seed).shuffle(events)
    users, items, counts = zip(*events, strict=True)
    frame = pd.DataFrame({"user": users, "item": items, "count": counts})
    found = read_interactions(frame)
    assert pairs(found) == expected
    assert found.user_ids.tolist() == sorted(set(users))
    assert found.item_ids.tolist() == sorted(set(items))


@settings(max_examples=25, deadline=None)
@given(events=EVENTS)
def test_any_events_written_as_csv_agree_with_a_plain_counter(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("user", "item", "level"), *events])
    found = read_interactions(path)
    expected = totals(events, lambda _: 1)
    # Texts that are all plain integers become integers: compare as written.
    written = {(str(user), str(item)): count for (user, item), count in pairs(found).items()}
    assert written == {(str(user), str(item)): count for (user, item), count in expected.items()}


# Rows that cannot be used -----------------------------------------------------------------------


def refusal(source, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_interactions(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_bad_counts_are_reported_by_kind_with_the_first_row_and_what_to_do(tmp_path):
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
    assert ("with a decimal point" in refusal(path)) == ("4,5" in value)


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
        "(item 'b'); fill it in or drop these rows with drop_missing_ids=True"
    )
    with pytest.raises(DataError) as error:
        read_interactions(path)
    assert error.value.__notes__ == [
        "in Python: fit(read_interactions(data, drop_missing_ids=True))"
    ]
    path = write(tmp_path / "b.csv", "user,item\n1,a\n2,\n")
    assert "1 of 2 rows have no item in column 'item'; the first is data row 2" in refusal(path)


BLANKS = "user,item,count,day\n1,a,2,31.12.2025\n,b,-1,soon\n2,,3,2025-01-01\n2,b,3,30.12.2025\n"


def test_rows_without_an_id_can_be_dropped_whatever_else_they_hold(tmp_path, caplog):
    path = write(tmp_path / "a.csv", BLANKS)
    found = read_interactions(path, drop_missing_ids=True)
    assert pairs(found) == {(1, "a"): 2.0, (2, "b"): 3.0}
    assert found.log.unit == "dates with the day first, taken as UTC"
    assert [m for m in caplog.messages if "rows" in m] == [
        "2 of 4 rows have no user or no item and are left out"
    ]
    caplog.clear()
    whole = write(tmp_path / "b.csv", "user,item\n1,a\n")
    assert pairs(read_interactions(whole, drop_missing_ids=True)) == {(1, "a"): 1.0}
    assert "left out" not in caplog.text


def test_the_form_of_times_is_that_of_rows_that_are_kept(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,time\n,a,2025-12-31\n1,b,1767139200\n")
    found = read_interactions(path, drop_missing_ids=True)
    assert found.log.unit == "seconds since 1970, by their size"


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "parquet"])
def test_rows_without_an_id_can_be_dropped_from_any_source(tmp_path, library):
    columns = {"user": [None, "u", "v"], "item": [1.5, None, 2.5]}
    if library == "parquet":
        query = "SELECT * FROM (VALUES (NULL, 1.5), ('u', 'nan'), ('v', 2.5)) AS r(\"user\", item)"
        source = write_query(tmp_path / "a.parquet", query.replace("'nan'", "'nan'::DOUBLE"))
    else:
        frames = pytest.importorskip(library)
        source = (frames.table if library == "pyarrow" else frames.DataFrame)(columns)
    found = read_interactions(source, drop_missing_ids=True)
    assert pairs(found) == {("v", 2.5): 1.0}


def test_a_bad_row_is_found_by_its_place_in_the_file_though_others_are_dropped(tmp_path):
    path = write(tmp_path / "a.csv", "user,item,count\n,a,x\n1,a,2\n1,b,-2\n")
    with pytest.raises(DataError, match=r"1 of 2 counts .* data row 3 of .* \(user '1'"):
        read_interactions(path, drop_missing_ids=True)


def test_if_no_row_has_both_ids_other_columns_are_asked_for(tmp_path):
    path = write(tmp_path / "a.csv", "user,item\n,a\n1,\n")
    with pytest.raises(DataError, match="none of the 2 rows has a user and an item; name other"):
        read_interactions(path, drop_missing_ids=True)
    empty = write(tmp_path / "b.csv", "user,item\n")
    with pytest.raises(DataError, match="there are no rows"):
        read_interactions(empty, drop_missing_ids=True)


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
