"""`cfnade scale` without a cluster; tests/scale/test_commands.py runs it on one."""

from __future__ import annotations

import pytest

from tests.cli.helpers import check_refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "FOLDER", "--out", "OUT"], "is not a prepared folder"),
        (["train", "FOLDER", "--out", "OUT", "--master", "x"], "need --spark-processes"),
        (["prepare", "x.csv", "--out", "OUT", "--conf", "nonsense"], "--conf takes NAME=VALUE"),
        (["prepare", "x.csv", "--out", "OUT", "--target-event", "buy"], "leave out --target-event"),
        (
            ["prepare", "x.csv", "--out", "OUT", "--event-weights", "buy=x"],
            "a number for each event",
        ),
    ],
)
def test_wrong_use_ends_in_one_line_and_exit_code_2(arguments, message, tmp_path, capsys):
    check_refused(capsys, ["scale", *arguments], message, FOLDER=tmp_path, OUT=tmp_path / "m")
