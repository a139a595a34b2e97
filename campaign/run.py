"""Run the campaign: python -m campaign.run [--minutes M | --hours H | --full] [--parts ...].

Every part has a share of the time, or with --full a number of attempts. The outcome is written to
campaign/results.json, and as a table to docs/reliability.md: after each part, and often on the way
with --full, so that --resume can go on with it. Parts that were not run keep the figures they have
there. The exit code is 1 if anything broke.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked, and share the machine

from campaign.artifacts import artifacts
from campaign.kills import kills, shortages
from campaign.soak import soak
from campaign.tables import tables
from campaign.tally import Tally
from campaign.wire import wire

PARTS: dict[str, tuple[Callable[[range, int, float], Tally], float, str]] = {
    "kills": (kills, 0.15, "kill -9 of a fit over an old model, then resume"),
    "shortages": (
        shortages,
        0.05,
        "full disk, read-only folder, no file handles, SIGTERM, two fits at once",
    ),
    "artifacts": (artifacts, 0.15, "forged and damaged models"),
    "tables": (tables, 0.15, "odd tables"),
    "wire": (wire, 0.3, "requests and raw bytes to the service"),
    "soak": (soak, 0.2, "valid requests to a service, and what was done to it meanwhile"),
}
"""Each part with its share of the time and what one attempt is."""

FULL = {"kills": 320, "shortages": 100, "artifacts": 380_000, "tables": 60_000, "wire": 580_000}
"""Attempts of each part in a full run, which take as long as they take."""
SLICES = {"kills": 40, "shortages": 50, "artifacts": 20_000, "tables": 5_000, "wire": 20_000}
"""Attempts after which figures of a full run are written."""
FULL_SOAK_SECONDS = 600.0

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "reliability.md"
MEMORY = "/dev/shm"
SURFACES = ("artifacts", "tables", "wire")
START, END = "<!-- campaign -->", "<!-- /campaign -->"


def table(found: dict[str, dict[str, Any]]) -> str:
    """The outcome as a table in Markdown."""
    lines = ["| part | attempt | tried | broken | outcomes |", "|---|---|---|---|---|"]
    for name in filter(found.__contains__, PARTS):
        part = found[name]
        outcomes = dict(part["outcomes"])
        broken = outcomes.pop("broken", 0)
        shown = ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(outcomes.items()))
        lines.append(f"| {name} | {PARTS[name][2]} | {part['tried']:,} | {broken} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--full", action="store_true", help="a million inputs, 320 kills")
    parser.add_argument("--resume", action="store_true", help="go on with a full run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--attempts", type=int, default=10**9, help="at most, of each part")
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    if os.access(MEMORY, os.W_OK):  # a disk would make a million small models and tables slow
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY
    logging.disable(logging.WARNING)  # thousands of tables have columns to warn of
    seconds = 3600 * options.hours if options.hours else 60 * options.minutes
    total = sum(PARTS[name][1] for name in options.parts)
    found: dict[str, dict[str, Any]] = {}
    for name in options.parts:
        about = {"seed": options.seed, "python": platform.python_version()}
        tally, first = _earlier(name, about) if options.resume else (Tally(), 0)
        n, size = options.attempts, options.attempts
        until = time.monotonic() + seconds * PARTS[name][1] / total
        if options.full and name == "soak":
            n, until = n if first == 0 else first, time.monotonic() + FULL_SOAK_SECONDS
        elif options.full:
            n, size, until = FULL[name], SLICES[name], math.inf
        for start in range(first, n, size):
            numbers = range(start, min(start + size, n))
            tally.merge(PARTS[name][0](numbers, options.seed, until))
            if options.full:
                about["next"] = numbers.stop
            found[name] = {**tally.to_json(), **about}
            if not options.no_write:
                write(found)
        found[name] = {**tally.to_json(), **about}
        print(name, json.dumps(found[name]), flush=True)
    print(table(found))
    return 1 if any(part["broken"] for part in found.values()) else 0


def _earlier(name: str, about: dict[str, Any]) -> tuple[Tally, int]:
    """Figures of a full run that was stopped and the next number; a part that broke begins anew."""
    part = json.loads(RESULTS.read_text())["parts"].get(name, {})
    if {**part, **about} != part or "next" not in part or part["broken"]:
        return Tally(), 0
    about["next"] = part["next"]
    return Tally.from_json(part), part["next"]


def write(found: dict[str, dict[str, Any]]) -> None:
    """Put figures in the place of earlier ones of the same parts."""
    parts = {**json.loads(RESULTS.read_text())["parts"], **found}
    parts = {name: parts[name] for name in PARTS if name in parts}
    RESULTS.write_text(json.dumps({"parts": parts}, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    minutes = sum(part["seconds"] for part in parts.values()) / 60
    n_inputs = sum(parts[name]["tried"] for name in SURFACES if name in parts)
    summary = (
        f"{n_inputs:,} hostile inputs over the three surfaces, in {minutes:.0f} minutes in all."
    )
    PAGE.write_text(f"{before}{START}\n\n{table(parts)}\n\n{summary}\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
