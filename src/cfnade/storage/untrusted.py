"""Careful reads of files that somebody else may have written."""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from numpy.typing import NDArray

from cfnade.errors import ArtifactError

MAX_JSON_DEPTH = 32
MOST_DIGITS = 308
"""Of a whole number: any such number is a finite float, and sums of some can be printed."""


@contextmanager
def folder_handle(folder: Path) -> Iterator[int | None]:
    """A handle of a folder, for `open_plain`; None where the system has none or no folder is."""
    handle = None
    if os.open in os.supports_dir_fd:
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def open_plain(path: Path, folder: int | None = None) -> int:
    """Open a regular file for reading: a link may lead anywhere, a pipe may never end.

    Args:
        path: The file.
        folder: Handle of its folder, to find the file in even if another folder took its place.

    Raises:
        ArtifactError: If it is missing, or a link, pipe, device or folder.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        if folder is None:
            descriptor = os.open(path, flags)
        else:
            descriptor = os.open(path.name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ArtifactError(f"{path} is a link; a model has no links") from error
        reason = "is missing" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise ArtifactError(f"{path}: {path.name} {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactError(f"{path} is not a plain file")
    return descriptor


def map_file(path: Path, *, at_most: int | None = None, folder: int | None = None) -> mmap.mmap:
    """Memory-map a regular file for reading; see `open_plain`.

    Raises:
        ArtifactError: If it cannot be opened, is empty, or larger than `at_most` bytes.
    """
    descriptor = open_plain(path, folder)
    try:
        n_bytes = os.fstat(descriptor).st_size
        if n_bytes == 0:  # cannot be mapped
            raise ArtifactError(f"{path} is empty")
        if at_most is not None and n_bytes > at_most:
            raise ArtifactError(f"{path} has more than {at_most:,} bytes")
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except ArtifactError:
        raise
    except (OSError, ValueError, OverflowError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    finally:
        os.close(descriptor)


def parse_json(content: bytes) -> Any:
    """Parse strict JSON in UTF-8: no repeated keys, no NaN, no endless numbers, not deep.

    Raises:
        ArtifactError: If it is anything else.
    """
    try:
        parsed = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_no_key_twice,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
        )
        if not _is_shallow(parsed, MAX_JSON_DEPTH):
            raise ArtifactError("JSON nested too deep")
        if rb"\ud" in content.lower():  # half of a character cannot be written again
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError:
        raise ArtifactError("JSON nested too deep") from None
    except ArtifactError:
        raise
    except ValueError as error:
        raise ArtifactError(f"invalid JSON: {error}") from error
    return parsed


def _is_shallow(value: Any, n_levels: int) -> bool:
    """Whether lists and objects are nested in at most `n_levels`."""
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return n_levels > 0 and all(_is_shallow(entry, n_levels - 1) for entry in inner)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ArtifactError("JSON with a repeated key")
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:40])


def _whole(text: str) -> int:
    return int(text) if len(text.lstrip("-")) <= MOST_DIGITS else _refuse(text[:40])


def _refuse(constant: str) -> NoReturn:
    raise ArtifactError(f"JSON with {constant} in it")


def are_runs(starts: NDArray[Any], *arrays: NDArray[Any]) -> bool:
    """Whether arrays are cut into runs that follow each other and fill them.

    Args:
        starts: Start of each run, and the end of the last, (n_runs + 1,).
        arrays: What is cut, (n,) each.
    """
    return bool(
        starts.size
        and starts[0] == 0
        and (starts[:-1] <= starts[1:]).all()
        and all(starts[-1] == array.size for array in arrays)
    )
