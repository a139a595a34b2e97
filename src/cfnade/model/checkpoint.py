"""Checkpoints of training: a folder of safetensors and JSON, replaced as a whole."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cfnade.errors import ArtifactError
from cfnade.files import replace_folder

TENSORS, STATE = "state.safetensors", "state.json"
FORMAT = 1


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint; a crash leaves the old one, the new one or none, never half of one.

    Args:
        folder: Replaced if it exists.
        tensors: Weights and optimiser state by name.
        state: All else, as JSON.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ArtifactError(f"cannot keep a checkpoint in {folder}: {error}") from error
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, new / TENSORS)
        (new / STATE).write_text(json.dumps({"format": FORMAT, **state}))
        replace_folder(new, folder)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"cannot keep a checkpoint in {folder}: {error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_checkpoint` wrote.

    Raises:
        ArtifactError: If there is none, or it is damaged or of another format.
    """
    try:
        state = json.loads((folder / STATE).read_text())
        tensors = load_file(folder / TENSORS)
    except FileNotFoundError:
        raise ArtifactError(f"no checkpoint in {folder}; start without resuming") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise ArtifactError(
            f"the checkpoint in {folder} is damaged ({error}); delete it and start again"
        ) from error
    if state.get("format") != FORMAT:
        raise ArtifactError(
            f"the checkpoint in {folder} has format {state.get('format')}, this version reads "
            f"{FORMAT}; finish it with the version that wrote it, or start again"
        )
    return tensors, state
