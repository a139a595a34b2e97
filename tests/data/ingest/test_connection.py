from __future__ import annotations

import os
import signal
import threading
import time

import duckdb
import pytest

from cfnade.data.ingest.connection import connect, one_line, quote_name, quote_text
from cfnade.errors import ConfigError, DataError
from cfnade.threads import available_threads

SLOW = "SELECT count(*) FROM range(100000) a, range(100000) b WHERE (a.range * b.range) % 7 = 8"


def test_the_settings_reach_duckdb(tmp_path):
    with connect("123MB", tmp_path) as connection:
        threads, memory = connection.execute(
            "SELECT current_setting('threads'), current_setting('memory_limit')"
        ).fetchall()[0]
    assert threads == available_threads()
    assert memory == "117.3 MiB"  # the same, counted in powers of two


@pytest.mark.parametrize("error", [None, DataError, KeyboardInterrupt])
def test_the_spill_folder_is_removed_whatever_happens(tmp_path, error):
    def work() -> None:
        with connect(temp_directory=tmp_path) as connection:
            folder = connection.execute("SELECT current_setting('temp_directory')").fetchall()
            assert [str(path) for path in tmp_path.iterdir()] == [folder[0][0]]
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("may_spill", [True, False])
def test_what_does_not_fit_in_memory_is_spilled(tmp_path, two_threads, may_spill):
    query = "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(3000000))"
    with connect("60MB", tmp_path) as connection:
        if may_spill:
            assert connection.execute(query).fetchall() == [(3_000_000,)]
        else:  # so it was the spilling that made it possible
            connection.execute("SET max_temp_directory_size = '1MB'")
            with pytest.raises(duckdb.OutOfMemoryException):
                connection.execute(query)


def test_too_little_memory_says_what_to_raise():
    with pytest.raises(ConfigError, match="raise memory_limit"), connect("3MB") as connection:
        connection.execute("SELECT list(range) FROM range(5000000)").fetchall()


def test_a_memory_limit_without_meaning_is_refused():
    with (
        pytest.raises(ConfigError, match=r"memory_limit 'much' is not valid.*'4GB'"),
        connect("much"),
    ):
        pass


def test_a_temporary_place_that_is_missing_is_refused(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"nowhere.*choose an existing folder"),
        connect(temp_directory=tmp_path / "nowhere"),
    ):
        pass


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.2])
def test_ctrl_c_stops_a_query_at_once_and_leaves_nothing(tmp_path, delay):
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), connect(temp_directory=tmp_path) as connection:
        timer.start()
        connection.execute(SLOW).fetchall()
    assert time.monotonic() - start < 10  # the query alone takes a minute
    assert list(tmp_path.iterdir()) == []


def test_other_runtime_errors_pass_through():
    with pytest.raises(RuntimeError, match="something else"), connect():
        raise RuntimeError("something else")


def test_a_message_of_duckdb_is_cut_to_one_line():
    message = (
        "Invalid Input Error: CSV Error on Line: 3\nOriginal Line: 4,5\n"
        "Expected Number of Columns: 3 Found: 2\nPossible fixes:\n* ignore_errors=true\n\n"
        "  file = data/a.csv\n  delimiter = ,\n"
    )
    assert one_line(duckdb.Error(message)) == (
        "CSV Error on Line: 3; Original Line: 4,5; "
        "Expected Number of Columns: 3 Found: 2 in data/a.csv"
    )
    assert one_line(duckdb.Error("IO Error: No magic bytes in 'a'\n\nLINE 1: SELECT")) == (
        "No magic bytes in 'a'"
    )
    assert len(one_line(duckdb.Error("x" * 10_000))) < 200


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "it's", "naïve ✓", "a;b--c", "user"])
def test_names_and_texts_survive_quoting(name):
    with connect() as connection:
        found = connection.execute(f"SELECT {quote_text(name)} AS {quote_name(name)}").fetchnumpy()
    assert {column: values.tolist() for column, values in found.items()} == {name: [name]}
