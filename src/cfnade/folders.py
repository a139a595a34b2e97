"""Files and whole folders: written aside and swapped in, locked, cleared away after a crash."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

if sys.platform != "win32":
    import fcntl

UNFINISHED = ".cfnade-"
"""In the name of every folder that is being filled or removed."""

_OLD = ".cfnade-old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which then replaces `folder`: a crash leaves the old or the new one.

    Both are on the disk when this ends. Without an atomic exchange (on systems other than Linux)
    a crash may leave the old one under another name; the next call puts it back.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    recover(folder)
    with temporary_folder(f".{folder.name}", folder.parent) as new:
        yield new
        for path in [*new.rglob("*"), new]:
            flush_to_disk(path)
        replace_folder(new, folder)


def replace_folder(new: Path, folder: Path) -> None:
    """Move a finished folder into place, and delete the old one there."""
    if not folder.exists():
        new.rename(folder)
    elif _exchange(new, folder):
        new.unlink() if new.is_symlink() else _remove(new)
    else:
        old = _old(folder)
        folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        _remove(old)
    flush_to_disk(folder.parent)


def recover(folder: Path) -> None:
    """Finish what `replace_folder` left when it was killed."""
    old = _old(folder)
    with contextlib.suppress(OSError):
        if folder.exists():
            _remove(old)
        elif old.exists():
            old.rename(folder)


@contextlib.contextmanager
def temporary_folder(name: str, parent: str | Path | None = None) -> Iterator[Path]:
    """An own folder whose name starts like this, removed at the end.

    A process that is killed leaves its folder; the next call with the same name removes it.
    """
    place = Path(tempfile.gettempdir() if parent is None else parent)
    for left in place.glob(f"{glob.escape(name + UNFINISHED)}*"):
        _remove_abandoned(left)
    with contextlib.ExitStack() as stack:
        while True:
            new = Path(tempfile.mkdtemp(prefix=name + UNFINISHED, dir=place))
            if stack.enter_context(locked(new)):
                break  # else another process has just taken it for abandoned
        stack.callback(shutil.rmtree, new, ignore_errors=True)
        yield new


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder of ours whose process has ended; Windows has no locks to know by."""
    with contextlib.suppress(OSError):
        if sys.platform != "win32" and folder.lstat().st_uid == os.geteuid():
            with locked(folder) as is_ours:
                if is_ours:
                    _remove(folder)


def remove_folder(folder: Path) -> None:
    """Delete a folder of ours; a crash leaves it whole, or half of it under a hidden name.

    The next `temporary_folder` or `new_folder` of that name removes what was left.
    """
    hidden = folder.with_name(f".{folder.name}{UNFINISHED}removed")
    _remove(hidden)
    with contextlib.suppress(OSError):
        folder.rename(hidden)
    _remove(hidden)


def _remove(folder: Path) -> None:
    """Delete a folder of ours, even if it may only be read."""
    if folder.is_dir() and not folder.is_symlink():
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Lock a folder until the end or until the process dies.

    Yields:
        Whether it is locked; False if another process has the lock, or there is no folder.
    """
    if sys.platform == "win32":
        yield folder.is_dir()
        return
    with contextlib.ExitStack() as stack:
        is_locked = False
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = os.path.samestat(os.fstat(handle), folder.lstat())  # not removed meanwhile
        yield is_locked


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        new.write_bytes(content)
        flush_to_disk(new)
        new.replace(path)
        flush_to_disk(path.parent)
    finally:
        new.unlink(missing_ok=True)


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name as a safetensors file."""
    # The safetensors package writes arrays of another order wrongly.
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)


def flush_to_disk(path: Path) -> None:
    """Make sure that a file or the names in a folder are on the disk."""
    if path.is_dir() and sys.platform == "win32":
        return  # cannot be opened
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{_OLD}")


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or its disk cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2  # Linux alone has it
    except (AttributeError, OSError, TypeError):
        return False
    paths = [ctypes.c_char_p(os.fsencode(path)) for path in (one, other)]
    if rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    if (number := ctypes.get_errno()) in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(one))
