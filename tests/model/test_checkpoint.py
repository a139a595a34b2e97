from __future__ import annotations

import json

import pytest
import torch

from cfnade.errors import ArtifactError
from cfnade.model.checkpoint import STATE, TENSORS, load_checkpoint, save_checkpoint


def test_what_is_saved_is_loaded_and_replaces_the_one_before(tmp_path):
    for value in (1.0, 2.0):
        save_checkpoint(tmp_path / "c", {"a": torch.full((3, 2), value)}, {"n": value})
    tensors, state = load_checkpoint(tmp_path / "c")
    torch.testing.assert_close(tensors["a"], torch.full((3, 2), 2.0))
    assert state["n"] == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_missing_damaged_or_other_checkpoint_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="no checkpoint in"):
        load_checkpoint(tmp_path / "none")
    for name in (STATE, TENSORS):
        save_checkpoint(tmp_path / "c", {"a": torch.ones(2)}, {})
        (tmp_path / "c" / name).write_bytes(b"nonsense")
        with pytest.raises(ArtifactError, match="damaged"):
            load_checkpoint(tmp_path / "c")
    save_checkpoint(tmp_path / "c", {"a": torch.ones(2)}, {})
    (tmp_path / "c" / STATE).write_text(json.dumps({"format": 99}))
    with pytest.raises(ArtifactError, match="has format 99, this version reads 1"):
        load_checkpoint(tmp_path / "c")


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot keep a checkpoint in"):
        save_checkpoint(tmp_path / "file" / "c", {}, {})
