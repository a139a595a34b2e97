"""Our own folders beyond one machine: on a path that the driver and all executors see alike.

Data may come from any source of Spark; what we write, we also read without it, so it is on a
path: a shared or mounted file system.
"""

from __future__ import annotations

import re
from pathlib import Path

from cfnade.errors import ConfigError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # `Path` makes one slash of two


def own_folder(folder: str | Path) -> Path:
    """The folder as an absolute path.

    Raises:
        ConfigError: If it is an address such as `hdfs://` or `s3a://`, which is no path.
    """
    if _SCHEME.match(str(folder)):
        raise ConfigError(
            f"{folder} is not a path: mount that store on all machines, and give the path there "
            "(only data may come from an address)"
        )
    return Path(folder).resolve()


def for_spark(folder: Path) -> str:
    """The folder's address for Spark, which looks for a plain path in its default file system.

    Not `as_uri`: Spark takes its %20 for the name.
    """
    return f"file://{folder}"
