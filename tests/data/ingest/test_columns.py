from __future__ import annotations

import logging

import pytest

from cfnade.data.ingest.columns import Columns, choose_columns, find_column
from cfnade.errors import ConfigError, DataError


def choose(columns, **named):
    return choose_columns(columns, Columns(**named))


@pytest.mark.parametrize(
    ("columns", "user", "item", "count"),
    [
        (["user", "item", "count"], "user", "item", "count"),
        (["USER_ID", "ITEM_ID", "Plays"], "USER_ID", "ITEM_ID", "Plays"),
        (["household_id", "product_id", "weight"], "household_id", "product_id", "weight"),
        (["userId", "movieId", "watchCount"], "userId", "movieId", "watchCount"),
        (["Customer ID", "StockCode", "Counts"], "Customer ID", "StockCode", "Counts"),
        (["customer_id", "show", "watches"], "customer_id", "show", "watches"),
        (["userid", "artist", "artist_id", "play_count"], "userid", "artist_id", "play_count"),
        (["timestamp", "track_id", "user"], "user", "track_id", None),
        (["Customer No.", "Product Code", "Product"], "Customer No.", "Product Code", None),
        (
            ["Order No.", "Line No.", "Account Number", "Item No."],
            "Account Number",
            "Item No.",
            None,
        ),
    ],
)
def test_usual_names_are_recognised_whatever_their_case(columns, user, item, count):
    found = choose(columns)
    assert (found["user"], found["item"], found.get("count")) == (user, item, count)


@pytest.mark.parametrize("name", ["rating", "quantity", "timestamp", "score", "price"])
def test_a_rating_quantity_or_time_is_no_count_unless_it_is_named(name):
    assert "count" not in choose(["user", "item", name])
    assert choose(["user", "item", name], count_col=name)["count"] == name


def test_a_given_name_wins_over_a_recognised_one():
    columns = ["user", "item", "count", "who", "What"]
    found = choose(columns, user_col="who", item_col="what", count_col="COUNT")
    assert found == {"user": "who", "item": "What", "count": "count"}


def test_a_given_name_is_matched_exactly_before_its_case_is_ignored():
    assert find_column(["User", "user"], "user", "user", ()) == "user"


def test_a_missing_column_names_the_ones_there_are():
    both = (
        r"no user and no item column; the columns are 'a', 'b c'; .* two .* user_col and item_col"
    )
    with pytest.raises(DataError, match=both):
        choose(["a", "b c"])
    with pytest.raises(DataError, match=r"no user column; .*; name one .* as user_col(?! and)"):
        choose(["a", "item"])
    with pytest.raises(DataError, match=r"no item column 'x'; the columns are 'user', 'item'"):
        choose(["user", "item"], item_col="x")
    with pytest.raises(DataError, match=r"no count column; the columns are 'user', 'item'"):
        choose(["user", "item"], events=False)


def test_python_shows_where_columns_are_named():
    with pytest.raises(DataError) as caught:
        choose(["who", "what"])
    assert "read_interactions(data, user_col=..., item_col=...)" in caught.value.__notes__[0]


def test_a_file_without_a_header_gets_a_hint():
    with pytest.raises(DataError, match="does the first line hold the column names"):
        choose(["196", "242", "3"])


@pytest.mark.parametrize(
    "given",
    [{"user_col": "a", "item_col": "a"}, {"user_col": "a", "item_col": "b", "count_col": "b"}],
)
def test_a_column_cannot_serve_two_roles(given):
    with pytest.raises(DataError, match="cannot be both"):
        choose(["a", "b"], **given)


def test_events_true_counts_rows_although_there_is_a_count_column():
    assert "count" not in choose(["user", "item", "count"], events=True)


def test_events_with_a_count_column_is_a_contradiction():
    with pytest.raises(ConfigError, match="either events or carry counts"):
        choose(["user", "item", "count"], count_col="count", events=True)


@pytest.mark.parametrize(
    "name",
    ["timestamp", "Time", "date", "ts", "created_at", "event_time", "InvoiceDate", "t_dat", "week",
     "played_at", "listened_at", "Purchased On"],
)  # fmt: skip
def test_times_are_recognised_by_their_name(name):
    assert choose(["user", "item", name, "position"])["time"] == name


@pytest.mark.parametrize("name", ["watch_time", "play_time", "duration", "release_date", "year"])
def test_durations_and_dates_of_items_are_no_times(name):
    assert "time" not in choose(["user", "item", name])


@pytest.mark.parametrize(
    "name", ["event", "event_type", "event kind", "Action", "behaviour", "type"]
)
def test_kinds_of_events_are_recognised_by_their_name(name):
    assert choose(["user", "item", name])["event"] == name


def test_a_recognised_time_takes_no_column_from_another_role():
    assert "time" not in choose(["user", "date"], item_col="date")
    with pytest.raises(DataError, match="cannot be both the item and the time"):
        choose(["user", "date"], item_col="date", time_col="date")


def test_an_unknown_time_column_names_those_there_are():
    with pytest.raises(DataError, match=r"no time column 'x'; the columns are 'user', 'item'"):
        choose(["user", "item"], time_col="x")


def test_all_unused_columns_are_reported_in_one_line(caplog):
    choose(["user", "item", "count", "title", "session", "time", "basket"], time_col="none")
    assert caplog.messages == ["unused columns: 'title', 'session', 'time', 'basket'"]


def test_a_column_that_may_hold_counts_can_be_named_in_python(caplog):
    choose(["user", "item", "qty"])
    (message,) = caplog.messages
    assert message.endswith("(name a column of counts as count_col, or confirm with events=True)")
    caplog.clear()
    choose(["user", "item", "qty"], events=True)
    assert caplog.messages == ["unused columns: 'qty'"]


def test_what_was_recognised_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="cfnade"):
        choose(["household_id", "product_id"])
        choose(["user", "item", "plays"])
    first, second = caplog.messages
    assert first == "users from column 'household_id', items from 'product_id', one event per row"
    assert second == "users from column 'user', items from 'item', counts from 'plays'"
