"""Checkpoints of a training: written as a whole, checked when read, one fit at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from cfnade.errors import ArtifactError
from cfnade.folders import UNFINISHED, locked, new_folder, recover, remove_folder, save_arrays

logger = logging.getLogger(__name__)

FORMAT = 2
KIND = "cfnade checkpoint"
ARRAYS, STATE = "state.safetensors", "state.json"

_WRITTEN_ASIDE = re.compile(r"\.tmp\w{6}")  # files of safetensors before it renames them


def save_checkpoint(
    folder: Path, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]
) -> None:
    """Write arrays by name, and all else as JSON, to a folder that is replaced as a whole.

    Raises:
        ArtifactError: If that is not possible.
    """
    try:
        with new_folder(folder) as new:
            save_arrays(new / ARRAYS, arrays)
            checksum = hashlib.sha256((new / ARRAYS).read_bytes()).hexdigest()
            described = {"format": FORMAT, "kind": KIND, **state, "arrays_sha256": checksum}
            text = json.dumps({**described, "sha256": _own_sha256(described)})
            (new / STATE).write_text(text)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"cannot keep a checkpoint in {folder}: {error}") from error


def load_checkpoint(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `save_checkpoint` wrote.

    Raises:
        ArtifactError: If there is none, or it is damaged or of another format.
    """
    recover(folder)
    try:
        state = json.loads((folder / STATE).read_bytes())
        content = (folder / ARRAYS).read_bytes()
        if not isinstance(state, dict):
            raise ValueError(f"{STATE} is no object")
        if state.get("format") != FORMAT:
            raise ArtifactError(
                f"the checkpoint in {folder} has format {state.get('format')!r:.40}, this version "
                f"reads {FORMAT}; finish it with the version that wrote it, or start again"
            )
        if state.pop("sha256", None) != _own_sha256(state):
            raise ValueError(f"the checksum of {STATE} differs")
        if hashlib.sha256(content).hexdigest() != state.get("arrays_sha256"):
            raise ValueError(f"the checksum of {ARRAYS} differs")
        return load(content), state
    except FileNotFoundError:
        raise ArtifactError(f"no checkpoint in {folder}; start without resuming") from None
    except ArtifactError:
        raise
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise damaged(folder, error) from error


def damaged(folder: Path, error: Exception) -> ArtifactError:
    """The error of a checkpoint that cannot be used."""
    return ArtifactError(
        f"the checkpoint in {folder} is damaged ({error}); delete it and start again"
    )


@dataclass(frozen=True)
class Checkpoints:
    """Folders for the checkpoints of the trainings of one fit."""

    folder: Path | None
    resume: bool

    def of(self, part: str) -> tuple[Path | None, bool]:
        """The folder of one training, and whether to continue from it."""
        if self.folder is None:
            return None, False
        folder = self.folder / part
        recover(folder)
        return folder, self.resume and folder.exists()


@contextlib.contextmanager
def open_checkpoints(folder: Path | None, *, resume: bool) -> Iterator[Checkpoints]:
    """Take a folder for the checkpoints of a fit, which no other fit may use meanwhile.

    Args:
        folder: Made if needed, and removed at the end if it is empty; None keeps no checkpoint.
        resume: Whether to keep what is there; a warning says if there is nothing, as of a fit that
            was interrupted early. Otherwise checkpoints of an abandoned fit are deleted, and
            nothing else.

    Raises:
        ArtifactError: If it holds anything else, another fit uses it, it cannot be made, or there
            is no folder to resume from.
    """
    if folder is None:
        if resume:
            raise ArtifactError("resuming needs the folder of the checkpoints")
        yield Checkpoints(None, resume)
        return
    _check_ours(folder)
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_locked = stack.enter_context(locked(folder))
        except OSError as error:
            raise ArtifactError(f"cannot keep a checkpoint in {folder}: {error}") from error
        if not is_locked:
            raise ArtifactError(
                f"another fit keeps its checkpoints in {folder}; wait for it or choose another "
                "place"
            )
        stack.callback(_remove_if_empty, folder)
        if not resume:
            _clear(folder)
        elif not any(folder.iterdir()):
            logger.warning("there is no checkpoint in %s: starting from the beginning", folder)
        yield Checkpoints(folder, resume)


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a fit that is done; leave them if another fit has begun."""
    with contextlib.suppress(OSError, ArtifactError), locked(folder) as is_locked:
        if is_locked:
            _check_ours(folder)
            _clear(folder)
            _remove_if_empty(folder)


def _check_ours(folder: Path) -> None:
    """Refuse a folder that holds anything but checkpoints."""
    advice = "move it away or choose another place"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ArtifactError(f"{folder} is not a folder of checkpoints; {advice}")
    for part in folder.iterdir() if folder.exists() else ():
        if not _is_checkpoint(part):
            raise ArtifactError(f"{part} is not a checkpoint of this version; {advice}")


def _is_checkpoint(folder: Path) -> bool:
    """Whether a folder has the mark of a checkpoint and nothing else, or is one to be."""
    try:
        names = {path.name for path in folder.iterdir()}
        is_unfinished = folder.name.startswith(".") and UNFINISHED in folder.name  # it was killed
        if is_unfinished:
            names = {name for name in names if not _WRITTEN_ASIDE.fullmatch(name)}
        if folder.is_symlink() or not names <= {STATE, ARRAYS}:
            return False
        if any((folder / name).is_dir() for name in names):
            return False
        if is_unfinished:
            return True
        state = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(state, dict) and state.get("kind") == KIND


def _clear(folder: Path) -> None:
    for part in sorted(folder.iterdir()):
        if part.name.startswith("."):  # of a fit that was killed
            shutil.rmtree(part, ignore_errors=True)
        else:  # half a checkpoint would look like a folder of somebody else
            remove_folder(part)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _own_sha256(state: Mapping[str, Any]) -> str:
    text = json.dumps(state, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
