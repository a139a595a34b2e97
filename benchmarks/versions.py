"""The version of the code that an outcome was measured with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def commit() -> str:
    """The commit, short; with a + if the source has changed since."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"]).returncode
    return head.stdout.strip() + "+" * bool(changed)


def named(commits: Iterable[str | None]) -> str:
    """All different commits; outcomes without one are older."""
    found = set(commits)
    names = sorted(commit for commit in found if commit is not None)
    return ", ".join([*names, *(["not recorded with the outcome"] if None in found else [])])
