"""How many files one opens to follow `cfnade fit`: python benchmarks/follow_fit.py.

It runs `cfnade fit plays.csv --out model` on a made-up CSV file and notes every module of cfnade in
which a function was called on the way, from the command line to the saved folder. Modules that are
only imported, such as other commands, do not count: nobody has to open them to follow the fit. The
foundations at the top level (checks, errors, folders, ...) are counted apart.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import cfnade
from cfnade.cli.main import run

SOURCE = Path(cfnade.__file__).parent


def write_csv(path: Path) -> None:
    """Two hundred users, sixty items, counts from 1 upwards."""
    rng = np.random.default_rng(0)
    items = {user: rng.choice(60, size=12, replace=False) for user in range(200)}
    pairs = [(user, item) for user, chosen in items.items() for item in chosen]
    rows = ["user,item,count", *(f"u{u},i{i},{rng.geometric(0.3)}" for u, i in pairs)]
    path.write_text("\n".join(rows) + "\n")


def follow(arguments: list[str]) -> list[str]:
    """Modules in which a function ran, in the order of their first call."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCE):
                found.setdefault(str(path.relative_to(SOURCE)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        code = run(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        raise SystemExit(code)
    return list(found)


def main() -> int:
    """Print the modules, in the order of their first call."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "plays.csv", Path(folder) / "model"
        write_csv(data)
        modules = follow(["fit", str(data), "--out", str(out), "--set", "max_epochs=4"])
    n_lines = sum(len((SOURCE / module).read_text().splitlines()) for module in modules)
    foundations = [m for m in modules if "/" not in m and m != "estimator.py"]
    print("\n".join(modules))
    print(
        f"{len(modules) - len(foundations)} modules and {len(foundations)} foundations, "
        f"{n_lines:,} lines"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
