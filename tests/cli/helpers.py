"""What the tests of the commands share: a table, settings, and how output is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cfnade.cli.main import run
from tests.networks import group_counts

Captured = pytest.CaptureFixture[str]


def set_options(**settings: Any) -> list[str]:
    """Settings as `--set` options."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


QUICK = set_options(n_hidden=8, max_epochs=6, learning_rate=0.02)


def write_events(path: Path) -> Path:
    """Write `group_counts` as an event log: one row for each count."""
    pairs = group_counts().tocoo()
    rows = zip(pairs.row, pairs.col, pairs.data.astype(int), strict=True)
    lines = [f"{user},i{item}\n" * n for user, item, n in rows]
    path.write_text("user_id,item_id\n" + "".join(lines))
    return path


def last_error(capsys: Captured) -> str:
    """The one line of an error; stages of the job may be logged before it."""
    *stages, last = capsys.readouterr().err.strip().splitlines()
    known = r"\S+: (choosing settings|final fit|testing|MPR .*)"
    assert all(re.fullmatch(known, line) for line in stages)
    assert last.startswith("cfnade: ")
    return last


def check_refused(capsys: Captured, arguments: list[str], message: str, **places: Path) -> None:
    """Check that a command ends in one line and exit code 2.

    Args:
        capsys: Where the line is read.
        arguments: Of `cfnade`.
        message: A part of the line.
        places: Paths for words of the arguments, such as MODEL.
    """
    assert run([str(places.get(word, word)) for word in arguments]) == 2
    assert message in last_error(capsys)


def recommended(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    """What `cfnade recommend` answers."""
    assert run(["recommend", *arguments, "--json", "-"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["recommendations"]
    return found


def write_catalogue(path: Path) -> Path:
    """Write what is known about the items of `write_events`, and about two that nobody has."""
    kinds = [
        f"i{k},{'film' if k % 2 == 0 else 'series'},{'Drama|War' if k < 8 else 'War'}\n"
        for k in range(22)
    ]
    path.write_text("item_id,category,genres\n" + "".join(kinds))
    return path
