from __future__ import annotations

import base64
import gzip
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import zlib

import duckdb
import pytest

from cfnade.data.ingest import read_interactions
from cfnade.data.ingest.scan import connect, one_line, quote_name, quote_text
from cfnade.errors import ConfigError, DataError
from cfnade.threads import available_threads
from tests.data.ingest.helpers import pairs, write, write_parquet, write_query

ROWS = "user,item,count\n1,a,2\n2,b,3\n"
EXPECTED = {(1, "a"): 2.0, (2, "b"): 3.0}
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
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt), connect(temp_directory=tmp_path) as connection:
            timer.start()
            connection.execute(SLOW).fetchall()
    finally:
        signal.signal(signal.SIGINT, before)
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


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_csv_is_read_whatever_its_delimiter_and_line_ends(tmp_path, delimiter, line_end):
    text = ROWS.replace(",", delimiter).replace("\n", line_end)
    assert pairs(read_interactions(write(tmp_path / "a.csv", text))) == EXPECTED


@pytest.mark.parametrize("name", ["a.CSV", "a.tsv", "my.log.csv"])
def test_csv_is_known_by_its_suffix(tmp_path, name):
    assert pairs(read_interactions(write(tmp_path / name, ROWS))) == EXPECTED


def test_a_compressed_csv_is_read(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(ROWS.encode()))
    assert pairs(read_interactions(path)) == EXPECTED


@pytest.mark.parametrize("name", ["a.parquet", "a.pq", "A.PARQUET"])
def test_parquet_is_known_by_its_suffix(tmp_path, name):
    path = write_parquet(tmp_path / name, user=[1, 2], item=["a", "b"], count=[2, 3])
    assert pairs(read_interactions(str(path))) == EXPECTED


def test_a_byte_order_mark_quotes_and_a_last_line_without_end_are_fine(tmp_path):
    text = '\ufeff"user","item",count\n"a, ""b""","x\ny",2\n\nc,d,3'
    found = read_interactions(write(tmp_path / "a.csv", text))
    assert pairs(found) == {('a, "b"', "x\ny"): 2.0, ("c", "d"): 3.0}


def test_names_that_sql_would_trip_over_are_fine(tmp_path):
    header = '"us""er",it\'em,"na; DROP TABLE","é count"'
    path = write(tmp_path / "it's [1]*.csv", f"{header}\n1,a,x,2\n2,b,y,3\n")
    chosen = {"user_col": 'us"er', "item_col": "it'em", "count_col": "é count"}
    assert pairs(read_interactions(path, **chosen)) == EXPECTED
    path = write_query(
        tmp_path / "it's [1]*.parquet",
        """SELECT 1 AS "us""er", 'a' AS "it'em", 2 AS "é count" """,
    )
    assert pairs(read_interactions(path, **chosen)) == {(1, "a"): 2.0}


def test_columns_of_the_same_or_of_no_name_do_not_disturb(tmp_path):
    path = write(tmp_path / "a.csv", "user,,item,User,\n1,x,a,9,\n2,x,b,9,\n")
    assert pairs(read_interactions(path)) == {(1, "a"): 1.0, (2, "b"): 1.0}
    assert pairs(read_interactions(path, user_col="user_1")) == {(9, "a"): 1.0, (9, "b"): 1.0}


def test_the_files_of_a_folder_are_read_together_as_events(tmp_path):
    write(tmp_path / "day=1" / "a.csv", "user,item\n1,a\n1,a\n")
    write(tmp_path / "day=2" / "b.csv", "item,store,user\na,9,1\nb,9,2\n")  # in another order
    write(tmp_path / "c.tsv", "user\titem\n2\tb\n")
    write(tmp_path / "_SUCCESS", "")
    write(tmp_path / ".hidden.csv", "nothing\n")
    write(tmp_path / "_temporary" / "d.csv", "user,item\n7,z\n")
    write(tmp_path / "README.md", "notes")
    assert pairs(read_interactions(tmp_path)) == {(1, "a"): 3.0, (2, "b"): 2.0}


def test_times_in_some_files_only_are_refused_with_a_way_to_ignore_them(tmp_path):
    write(tmp_path / "a.csv", "user,item\n1,a\n")
    write(tmp_path / "b.csv", "user,item,when\n1,a,2024-01-01\n")
    with pytest.raises(DataError, match=r"a.csv' has no column 'when'.* with time_col 'none'"):
        read_interactions(tmp_path)
    assert pairs(read_interactions(tmp_path, time_col="none")) == {(1, "a"): 2.0}


def test_times_must_have_one_type_in_all_files(tmp_path):
    write_query(tmp_path / "a.parquet", "SELECT 1 AS user, 1 AS item, TIMESTAMP '2024-01-01' AS ts")
    write_query(tmp_path / "b.parquet", "SELECT 1 AS user, 1 AS item, 1704067200 AS ts")
    with pytest.raises(DataError, match=r"'ts' is TIMESTAMP in .* write the times with one type"):
        read_interactions(tmp_path)


def test_globs_and_lists_name_files_too_and_none_is_read_twice(tmp_path):
    write_parquet(tmp_path / "x" / "a.parquet", user=[1], item=[1])
    write_parquet(tmp_path / "x" / "y" / "b.parquet", user=[2], item=[1])
    both = {(1, 1): 1.0, (2, 1): 1.0}
    first = tmp_path / "x" / "a.parquet"
    assert pairs(read_interactions(f"{tmp_path}/**/*.parquet")) == both
    assert pairs(read_interactions([first, f"{tmp_path}/*/?/*.parquet", str(first)])) == both
    assert pairs(read_interactions((tmp_path / "x").glob("*.parquet"))) == {(1, 1): 1.0}


def test_integer_ids_of_different_width_go_together(tmp_path):
    write_query(tmp_path / "a.parquet", "SELECT 1::INTEGER AS user, 'a' AS item")
    write_query(tmp_path / "b.parquet", "SELECT 5000000000 AS user, 'a' AS item")
    found = read_interactions(tmp_path)
    assert found.user_ids.tolist() == [1, 5_000_000_000]
    assert found.user_ids.dtype == "int64"


def test_ids_that_change_their_type_between_files_are_refused(tmp_path):
    write_query(tmp_path / "a.parquet", "SELECT 1 AS user, 'a' AS item")
    write_query(tmp_path / "b.parquet", "SELECT '1' AS user, 'a' AS item")
    with pytest.raises(
        DataError, match=r"'user' is INTEGER in .*a.parquet' but VARCHAR in .*b.par"
    ):
        read_interactions(tmp_path)


def test_a_file_that_lacks_a_column_is_refused(tmp_path):
    write(tmp_path / "a.csv", "user,item\n1,a\n")
    write(tmp_path / "b.csv", "user,thing\n1,a\n")
    with pytest.raises(DataError, match=r"b.csv' has no column 'item', .* are 'user', 'thing'"):
        read_interactions(tmp_path)


def test_what_is_missing_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "notes.txt", "x")
    with pytest.raises(DataError, match=r"there is no file or folder '.*none.csv'; check the path"):
        read_interactions(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"no file matches '.*\*.csv'"):
        read_interactions(f"{tmp_path}/*.csv")
    with pytest.raises(DataError, match=r"folder '.*empty' has no data files; expected .csv, "):
        read_interactions(tmp_path / "empty")
    with pytest.raises(DataError, match=r"notes.txt' has an unknown format; expected one of .csv"):
        read_interactions(tmp_path / "notes.txt")
    with pytest.raises(DataError, match="list of files is empty"):
        read_interactions([])
    with pytest.raises(DataError, match="expected paths of CSV or Parquet files, got int"):
        read_interactions([1, 2])


def test_lines_that_end_in_two_ways_are_named_as_the_reason(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,item,count\r\n1,a,2\n2,b,3\n")
    with pytest.raises(DataError, match=r"mix CRLF and LF.*correct the file"):
        read_interactions(path)


def test_csv_and_parquet_do_not_go_together(tmp_path):
    write(tmp_path / "a.csv", ROWS)
    write_parquet(tmp_path / "b.parquet", user=[1], item=[1])
    with pytest.raises(DataError, match=r"one format.*a.csv' and '.*b.parquet'.*'folder/\*.parq"):
        read_interactions(tmp_path)
    assert pairs(read_interactions(f"{tmp_path}/*.csv")) == EXPECTED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no header"),
        ("\n1,2\n", "has no header"),
        (
            "user,item,count\n1,2,3\n4,5\n6,7,8\n",
            r"Line: 3; .*4,5; .*Columns: 3 Found: 2 in .*a.csv",
        ),
        ("user,item,count\n1,2,3\n4,5,6,7\n", r"Line: 3; .*4,5,6,7; .*Columns: 3 Found: 4"),
        ("user,item\n" + "1,2\n" * 30_000 + "3\n", r"Line: 30002.*Columns: 2 Found: 1"),
        ('user,item\n1,2\n3,"4\n5,6\n', r"Line: 3; .*unterminated quote"),
    ],
)
def test_a_broken_csv_ends_in_one_line_that_says_where(tmp_path, text, said):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(DataError, match=said) as caught:
        read_interactions(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "user,item\nJosé,1\n".encode("latin-1"), "utf-?8"),
        ("a.csv", "usér,item\n1,1\n".encode("latin-1"), "cannot be read as CSV in UTF-8"),
        ("a.csv", os.urandom(100) + b"\xff\n" + os.urandom(100), "cannot be read as CSV"),
        ("a.csv.gz", b"not compressed", "cannot be read as CSV"),
        ("a.csv.gz", gzip.compress(ROWS.encode(), mtime=0)[:20], "cannot be read as CSV"),
        ("a.parquet", b"", "too small to be a Parquet file"),
        ("a.parquet", b"PAR1" + bytes(100), "magic bytes"),
    ],
)
def test_a_file_that_is_something_else_ends_in_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"(?i){said}") as caught:
        read_interactions(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_that_may_not_be_read_is_said(tmp_path):
    path = write(tmp_path / "a.csv", ROWS)
    path.chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        read_interactions(path)


def test_a_home_folder_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "a.csv", ROWS)
    assert pairs(read_interactions("~/a.csv")) == EXPECTED


def refused(path, **options):
    """The line in which a file is refused, soon."""
    started = time.monotonic()
    with pytest.raises(DataError) as error:
        read_interactions(path, **options)
    assert time.monotonic() - started < 10
    assert "\n" not in str(error.value) and len(str(error.value)) < 4_000
    return str(error.value)


def test_a_header_of_very_many_columns_is_refused_at_once(tmp_path):
    assert "10,000 columns" in refused(write(tmp_path / "x.csv", "a," * 520_000 + "b\n1\n"))


def test_many_columns_of_the_same_name_are_told_apart_quickly(tmp_path):
    text = "user,item," + ",".join(["a"] * 9_000) + "\n1,x" + ",0" * 9_000 + "\n"
    started = time.monotonic()
    assert pairs(read_interactions(write(tmp_path / "x.csv", text), events=True)) == {(1, "x"): 1}
    assert time.monotonic() - started < 30


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    assert "is not a regular file" in refused(tmp_path / "x.csv")
    assert "has no data files" in refused(tmp_path)


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (b"", b"a"),
        (b"user,item\n1,", b"a"),
        (b'user,"', b"a"),
        (b"", b'"aa",'),
        (b'user,"x\n', b"a"),
    ],
)
def test_a_line_without_end_takes_no_memory(tmp_path, start, part):
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(300):
            file.write(part * (1_000_000 // len(part)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kilobytes


@pytest.mark.parametrize(
    ("name", "start", "end", "message"),
    [
        ("a.csv", b"user,item\n1,", b"", "the first line of data in .* has more than 2,000,000"),
        ("a.csv.gz", b"user,item\n1,", b"", "the first line of data in .* has more than"),
        ("a.csv", b"user,item\n1,x\n2,", b"", "the last line of data in .* has more than"),
        ("a.csv", b"user,item\r\n1,x\r\n2,", b"\r\n", "the last line of data in .* has more than"),
        ("a.csv", b"user,item\n1,x\n2,", b"\n3,y\n", "cannot be read"),
    ],
)
def test_a_line_longer_than_the_buffer_of_duckdb_is_not_left_out(
    tmp_path, name, start, end, message
):
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) if ".gz" in name else path.open("wb") as file:
        file.write(start)
        for _ in range(40):
            file.write(b"a" * 1_000_000)
        file.write(end)
    assert re.search(message, refused(path))


def test_rows_up_to_the_end_of_a_large_file_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,item\n" + b"1,x\n" * 3_000_000 + b"2," + b"y" * 1_000_000)
    assert pairs(read_interactions(path, events=True)) == {
        (1, "x"): 3_000_000,
        (2, "y" * 1_000_000): 1,
    }


def test_a_name_that_is_not_utf8_is_refused_in_one_line(tmp_path):
    path = os.fsencode(tmp_path) + b"/x\xff.csv"
    with open(path, "w") as file:  # noqa: PTH123 - a name that is no text
        file.write(ROWS)
    assert "is not UTF-8" in refused(os.fsdecode(path))
    assert "is not UTF-8" in refused(tmp_path)


def test_nothing_is_fetched_from_the_network():
    with connect() as connection:
        found = connection.execute("SELECT current_setting('autoinstall_known_extensions')")
        assert found.fetchall() == [(False,)]


def test_a_reader_that_was_killed_leaves_nothing_for_the_next(tmp_path):
    script = f"""
import os
from cfnade.data.ingest.scan import connect
with connect(temp_directory={str(tmp_path)!r}):
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    with connect(temp_directory=tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


CONTRADICTORY = (
    "eNptkc1Kw0AQx2fXtYRasQVnyUoOuTREKKW2VjzkoFIv0sPSsyjmQyz2A9qmT+ND+AAePPpYzmQr9GCyu5lhfv/ZzX"
    "/t7eQCATWeddBSUMMawFEsAcDC7sEGNveqtVNXRYUeNsYokVLVOGGSkTqzyrEHniDwJggA/iY0uafnZsix2uXK1VCa"
    "8RD847zM3vP0eZ29FfMXaobQlr4q18WKEA6nm2I++6oUbfAPs2W52LTrdB7VeeSVKtqawCQRBAiGhpOj1FZf6yTyEl"
    "8IX4CGuPq2WmCIpJf/kFXSqXinStXV/WiUXNl/OGV2R6jABz2JPkS0DXzFxrhVg5b7Oe/XIau4D7KfEvSPwCciP4W2"
    "kae/BcTxiIwY3YXbYrWeLhfhtt/tdXthnJbTWR7mw8ssTYtB/npuEra4GnAv6Irobn8BlIY8fA=="
)
"""A Parquet file, compressed, with one byte changed: DuckDB counts rows that it cannot find."""


def test_a_file_that_contradicts_itself_is_refused_in_one_line(tmp_path):
    (tmp_path / "x.parquet").write_bytes(zlib.decompress(base64.b64decode(CONTRADICTORY)))
    message = refused(tmp_path / "x.parquet")
    assert "is damaged" in message or "Invalid data" in message  # before DuckDB 2.0: its own words
