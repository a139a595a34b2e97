from __future__ import annotations

import os
import signal
import threading

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


def test_more_than_fits_in_memory_is_spilled(tmp_path):
    with connect("60MB", tmp_path) as connection:
        n_groups, used = connection.execute(
            "SELECT count(*), max(n) FROM (SELECT hash(range) AS h, count(*) AS n "
            "FROM range(3000000) GROUP BY h)"
        ).fetchall()[0]
    assert (n_groups, used) == (3_000_000, 1)


def test_too_little_memory_says_what_to_raise():
    with pytest.raises(ConfigError, match="raise memory_limit"), connect("3MB") as connection:
        connection.execute("SELECT list(range) FROM range(5000000)").fetchall()


def test_a_memory_limit_without_meaning_is_refused():
    with (
        pytest.raises(ConfigError, match="memory_limit 'much' has no meaning.*'4GB'"),
        connect("much"),
    ):
        pass


def test_a_temporary_place_that_is_missing_is_refused(tmp_path):
    missing = tmp_path / "nowhere"
    with pytest.raises(ConfigError, match="nowhere.*name a folder that exists"):
        with connect(temp_directory=missing):
            pass


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_in_a_query_is_a_keyboard_interrupt_and_leaves_nothing(tmp_path):
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), connect(temp_directory=tmp_path) as connection:
        timer.start()
        connection.execute(SLOW).fetchall()
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
        cursor = connection.execute(f"SELECT {quote_text(name)} AS {quote_name(name)}")
        assert cursor.description[0][0] == name
        assert cursor.fetchall() == [(name,)]
