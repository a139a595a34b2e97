"""The campaign in short: each part with a few inputs of a fixed seed. `make campaign` runs more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("uvicorn")

from campaign import run
from campaign.run import PARTS, table
from campaign.tally import Tally, attempt, in_child
from cfnade.errors import DataError
from tests.markdown_examples import ROOT

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
ATTEMPTS = {"artifacts": 500, "tables": 200, "wire": 500, "kills": 2, "shortages": 5, "soak": 7}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_campaign_breaks_nothing(part):
    """In a process of its own: its children are forked, and this one has threads."""
    command = [sys.executable, "-m", "campaign.run", "--no-write", "--minutes", "2", "--seed", "1"]
    command += ["--parts", part, "--attempts", str(ATTEMPTS[part])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{part} ")]
    found = json.loads(line.removeprefix(part))
    assert found["broken"] == [] and found["tried"] >= ATTEMPTS[part]
    if part in ("artifacts", "tables"):  # what is refused alone may be refused for want of memory
        assert found["outcomes"]["used"] > 0


def test_what_breaks_is_noticed():
    def refuse(text):
        raise DataError(text)

    tally = Tally()
    attempt(tally, "used", lambda: None, 1.0)
    attempt(tally, "refused", lambda: refuse("a line"), 1.0)
    assert tally.outcomes == {"used": 1, "refused": 1} and not tally.broken
    attempt(tally, "two lines", lambda: refuse("two\nlines"), 1.0)
    attempt(tally, "traceback", lambda: 1 / 0, 1.0)
    attempt(tally, "slow", lambda: time.sleep(0.02), 0.001)
    assert tally.outcomes["broken"] == 3 and "ZeroDivisionError" in tally.broken[1]
    crashed = in_child(lambda tally: os.kill(os.getpid(), signal.SIGKILL), seconds=20)
    busy = in_child(lambda tally: [tally.add("used"), time.sleep(0.2)], seconds=0.1)
    assert busy.outcomes == {"used": 1} and not busy.broken  # it waited, perhaps for the processor
    hung = in_child(lambda tally: time.sleep(60), seconds=0.05)
    assert "died" in crashed.broken[0] and "hung" in hung.broken[0]


def test_the_table_has_every_part():
    tally = Tally()
    tally.add("used")
    tally.fail("something")
    text = table({name: tally.to_json() for name in PARTS})
    assert text.count("| 2 | 1 | 1 used |") == len(PARTS)


def test_a_full_run_that_was_stopped_is_resumed(tmp_path, monkeypatch, capsys):
    tried = []

    def part(numbers, seed, until):
        tried.extend(numbers)
        tally = Tally()
        for _ in numbers:
            tally.add("used")
        if len(tried) == 6:
            raise KeyboardInterrupt
        return tally

    (tmp_path / "page.md").write_text(f"before\n{run.START}{run.END}\nafter\n")
    (tmp_path / "results.json").write_text('{"parts": {}}')
    monkeypatch.setattr(run, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.json")
    monkeypatch.setitem(run.PARTS, "tables", (part, 1.0, "a table"))
    monkeypatch.setitem(run.FULL, "tables", 10)
    monkeypatch.setitem(run.SLICES, "tables", 3)
    monkeypatch.setattr(run, "MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr(run.logging, "disable", lambda level: None)
    monkeypatch.setattr(sys, "argv", ["run", "--full", "--resume", "--parts", "tables"])
    with pytest.raises(KeyboardInterrupt):
        run.main()
    assert tried == [0, 1, 2, 3, 4, 5]  # the figures of the last three are lost
    assert run.main() == 0 and tried[6:] == [3, 4, 5, 6, 7, 8, 9]
    assert run.main() == 0 and len(tried) == 13  # there is nothing left to do
    page = (tmp_path / "page.md").read_text()
    assert "| tables | a table | 10 | 0 | 10 used |" in page and page.endswith("after\n")
