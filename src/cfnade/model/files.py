"""Folders that are replaced as a whole: a crash leaves the old one, the new one or none."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


def replace_folder(new: Path, folder: Path) -> None:
    """Put a finished folder in the place of an old one, which stays until the new one is there."""
    if not folder.exists():
        new.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    folder.rename(old / "old")
    try:
        new.rename(folder)
    except BaseException:
        (old / "old").rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
