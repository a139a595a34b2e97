"""The command line as a user meets it: exit codes, one-line errors, help."""

from __future__ import annotations

import errno
import subprocess
import sys
from importlib.metadata import version

import pytest

from cfnade.cli.main import run
from cfnade.data.interactions import Interactions
from cfnade.errors import DataError, TrainingError
from tests.cli.helpers import check_refused, last_error


def test_every_command_has_help_with_an_example(capsys):
    for command in (["demo"], ["fit"], ["evaluate"], ["compare"], ["sweep"], ["recommend"],
                    ["similar"], ["explain"], ["tune"], ["inspect"], ["export"], ["serve"],
                    ["data", "describe"], ["data", "simulate"],
                    ["scale", "prepare"], ["scale", "train"], ["scale", "score"]):  # fmt: skip
        assert run([*command, "--help"]) == 0
        examples = capsys.readouterr().out.partition("Example: ")[2]
        assert f"cfnade {' '.join(command)}" in examples


def test_the_version_is_that_of_the_package(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"cfnade {version('cfnade')}\n"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--user-col", "who"], "name one of these as --user-col"),
        (["--test-share", "1.5"], "--test-share must be"),
        (["--trials", "0"], "see cfnade compare --help"),
        (["--models", "cfnade", "--trials", "x"], "see cfnade compare --help"),
    ],
)
def test_errors_name_options_and_not_arguments_of_python(events, capsys, wrong, told):
    assert run(["compare", str(events), *wrong]) == 2
    assert told in last_error(capsys)


def test_a_command_that_does_not_exist_ends_in_one_line_and_exit_code_2(capsys):
    check_refused(capsys, ["nonsense"], "nonsense")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("bad\n  rows"), 2, "bad rows"),
        (TrainingError("no way on"), 1, "no way on"),
        (PermissionError(errno.EACCES, "not allowed", "x.csv"), 2, "not allowed: x.csv"),
        (OSError(errno.ENOSPC, "disk full", "x.csv"), 1, "disk full: x.csv"),
        (ZeroDivisionError("why"), 1, "ZeroDivisionError: why (set CFNADE_DEBUG=1 to see where)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_the_exit_code_says_what_kind_of_error_it_was(
    monkeypatch, capsys, events, error, code, message
):
    def fail(interactions):
        raise error

    monkeypatch.setattr(Interactions, "describe", fail)
    assert run(["data", "describe", str(events)]) == code
    assert last_error(capsys) == f"cfnade: {message}"


def test_a_command_ends_without_a_word_about_what_it_leaves_behind(events):
    command = [sys.executable, "-m", "cfnade", "data", "describe", str(events)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""  # duckdb lists its objects there, unless a last collection is made


def test_a_reader_that_has_ended_is_no_error(events):
    command = [sys.executable, "-m", "cfnade", "data", "describe", str(events), "--json", "-"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 0)
