from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from cfnade.checkpoints import (
    ARRAYS,
    STATE,
    load_checkpoint,
    open_checkpoints,
    remove_checkpoints,
    save_checkpoint,
)
from cfnade.errors import ArtifactError


def test_a_checkpoint_is_loaded_as_it_was_saved_and_replaces_the_one_before(tmp_path):
    by_column = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for value in (1.0, 2.0):
        arrays = {"a": np.full((3, 2), value), "number": np.array(value), "by column": by_column}
        save_checkpoint(tmp_path / "c", arrays, {"n": value})
    found, state = load_checkpoint(tmp_path / "c")
    assert found.keys() == arrays.keys() and state["n"] == 2.0
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_checkpoint_is_on_the_disk_when_it_is_saved(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr("cfnade.folders.flush_to_disk", lambda path: flushed.append(path.name))
    save_checkpoint(tmp_path / "c", {"a": np.ones(2)}, {})
    assert {STATE, ARRAYS, tmp_path.name} <= set(flushed)


def test_a_missing_damaged_or_other_checkpoint_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="no checkpoint in"):
        load_checkpoint(tmp_path / "none")
    wrong = [(STATE, b"nonsense"), (STATE, b"[]"), (STATE, b"[" * 99_999), (ARRAYS, b"nonsense")]
    for name, content in wrong:
        save_checkpoint(tmp_path / "c", {"a": np.ones(2)}, {})
        (tmp_path / "c" / name).write_bytes(content)
        with pytest.raises(ArtifactError, match="damaged"):
            load_checkpoint(tmp_path / "c")
    save_checkpoint(tmp_path / "c", {"a": np.ones(2)}, {})
    (tmp_path / "c" / STATE).write_text(json.dumps({"format": 99}))
    with pytest.raises(ArtifactError, match="has format 99, this version reads 2"):
        load_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("name", [STATE, ARRAYS])
def test_no_flipped_bit_goes_unnoticed(tmp_path, name):
    save_checkpoint(tmp_path / "c", {"a": np.arange(3.0)}, {"epochs": [{"loss": 0.25}]})
    path = tmp_path / "c" / name
    content = path.read_bytes()
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ArtifactError):
            load_checkpoint(tmp_path / "c")


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot keep a checkpoint in"):
        save_checkpoint(tmp_path / "file" / "c", {}, {})


def test_a_folder_is_taken_by_one_fit_at_a_time_and_removed_if_empty(tmp_path):
    place = tmp_path / "c"
    with open_checkpoints(place, resume=False) as first:
        assert first.of("training") == (place / "training", False)
        with (
            pytest.raises(ArtifactError, match="another fit keeps its checkpoints in"),
            open_checkpoints(place, resume=False),
        ):
            pass
        save_checkpoint(place / "training", {}, {})
        remove_checkpoints(place)  # of somebody who does not know
        assert (place / "training").exists()
    with open_checkpoints(place, resume=True) as again:
        assert again.of("training") == (place / "training", True)
    remove_checkpoints(place)
    assert not place.exists()
    with open_checkpoints(place, resume=False):
        pass
    assert not place.exists()


def test_nothing_to_resume_is_reported_and_begins_anew(tmp_path, caplog):
    place = tmp_path / "c"
    for _ in range(2):  # no folder, and an empty one
        with open_checkpoints(place, resume=True) as kept:
            assert kept.of("training") == (place / "training", False)
            save_checkpoint(place / "training", {}, {})
        with open_checkpoints(place, resume=True) as kept:
            assert kept.of("training") == (place / "training", True)
        remove_checkpoints(place)
        place.mkdir()
    expected = f"there is no checkpoint in {place}: starting from the beginning"
    assert caplog.messages == [expected] * 2


@pytest.mark.parametrize("n_removed", range(4))
def test_a_fit_that_is_killed_while_it_clears_checkpoints_does_not_block_the_next(
    tmp_path, n_removed
):
    place = tmp_path / "c"
    save_checkpoint(place / "training", {"a": np.ones(2)}, {})
    script = f"""
import os, sys
from pathlib import Path
from cfnade.checkpoints import remove_checkpoints
calls = iter(range(99))
def hook(event, arguments):
    if event in ("os.remove", "os.rmdir") and next(calls) == {n_removed}:
        os._exit(9)
sys.addaudithook(hook)
remove_checkpoints(Path({str(place)!r}))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 9
    with open_checkpoints(place, resume=False) as kept:
        assert kept.of("training") == (place / "training", False)
    assert not place.exists()


def test_a_fit_that_is_killed_while_it_writes_arrays_does_not_block_the_next(tmp_path):
    place = tmp_path / "c"
    script = f"""
import os, threading
from pathlib import Path
import numpy as np
from cfnade.checkpoints import save_checkpoint
place = Path({str(place)!r})
def watch():
    while not list(place.glob(".training*/*")):
        pass
    os._exit(9)
threading.Thread(target=watch).start()
while True:
    save_checkpoint(place / "training", {{"a": np.ones(1 << 20)}}, {{}})
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 9
    (place / ".training.cfnade-abcdefgh").mkdir()  # as it may have been left
    (place / ".training.cfnade-abcdefgh" / ".tmpaB3dE6").write_bytes(b"half")
    with open_checkpoints(place, resume=False):
        assert not list(place.iterdir())
    assert not place.exists()


def test_foreign_files_are_neither_deleted_nor_written_beside(tmp_path):
    place = tmp_path / "c"
    save_checkpoint(place / "training", {}, {})
    names = (
        "thesis.txt",
        "training/thesis.txt",
        "training/.tmpaB3dE6",
        "src/a.py",
        ".src/a.py",
        ".app/state.json",
    )
    names += (".training.cfnade-x/state.json/a.py",)
    foreign = [place / name for name in names]
    for path in foreign:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("keep me")
        for resume in (False, True):
            with (
                pytest.raises(ArtifactError, match="is not a checkpoint of this version"),
                open_checkpoints(place, resume=resume),
            ):
                pass
        remove_checkpoints(place)
        assert path.read_text() == "keep me"
        path.unlink()
        while path.parent not in (place, place / "training"):
            path = path.parent
            path.rmdir()
    with open_checkpoints(place, resume=False) as kept:
        assert not (place / "training").exists() and not kept.of("training")[1]
