"""Run the campaign: python -m campaign.run [--minutes M | --hours H] [--parts ...] [--seed S].

Every part has a share of the time. The outcome is written to campaign/results.json, and as a
table to docs/reliability.md. The exit code is 1 if anything broke.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked, and share the machine

from campaign.artifacts import artifacts
from campaign.kills import kills, shortages
from campaign.soak import soak
from campaign.tables import tables
from campaign.tally import Tally
from campaign.wire import wire

PARTS: dict[str, tuple[Callable[[int, int, float], Tally], float, str]] = {
    "kills": (kills, 0.25, "kill -9 of a fit over an old model, then resume"),
    "shortages": (shortages, 0.05, "full disk, no file handles, SIGTERM, two fits at once"),
    "artifacts": (artifacts, 0.15, "forged and damaged models"),
    "tables": (tables, 0.15, "odd tables"),
    "wire": (wire, 0.2, "requests and raw bytes to the service"),
    "soak": (soak, 0.2, "events of a service under load"),
}
"""Each part with its share of the time and what one attempt is."""

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reliability.md"
START, END = "<!-- campaign -->", "<!-- /campaign -->"


def table(found: dict[str, dict[str, object]]) -> str:
    """The outcome as a table in Markdown."""
    lines = ["| part | attempt | tried | broken | outcomes |", "|---|---|---|---|---|"]
    for name, part in found.items():
        outcomes = dict(part["outcomes"])  # type: ignore[call-overload]
        broken = outcomes.pop("broken", 0)
        shown = ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(outcomes.items()))
        lines.append(f"| {name} | {PARTS[name][2]} | {part['tried']:,} | {broken} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--attempts", type=int, default=10**9, help="at most, of each part")
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # thousands of tables have columns to warn of
    seconds = 3600 * options.hours if options.hours else 60 * options.minutes
    total = sum(PARTS[name][1] for name in options.parts)
    found: dict[str, dict[str, object]] = {}
    for name in options.parts:
        part, share, _ = PARTS[name]
        tally = part(options.attempts, options.seed, time.monotonic() + seconds * share / total)
        found[name] = tally.to_json()
        print(name, json.dumps(found[name]), flush=True)
    text = table(found)
    print(text)
    if not options.no_write:
        about = {"seed": options.seed, "minutes": round(seconds / 60, 1)}
        about["python"] = platform.python_version()
        content = json.dumps({**about, "parts": found}, indent=1)
        (HERE / "results.json").write_text(content + "\n")
        before, _, rest = PAGE.read_text().partition(START)
        after = rest.partition(END)[2]
        when = f"{round(seconds / 60)} minutes, seed {options.seed}, Python {about['python']}."
        PAGE.write_text(f"{before}{START}\n\n{text}\n\n{when}\n\n{END}{after}")
    return 1 if any(part["broken"] for part in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
