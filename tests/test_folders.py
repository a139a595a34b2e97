from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from cfnade import folders
from cfnade.folders import (
    locked,
    new_folder,
    recover,
    replace_file,
    replace_folder,
    temporary_folder,
)


def folder_with(path, text):
    path.mkdir()
    (path / "file").write_text(text)
    return path


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def renames(request, monkeypatch):
    """With the system's atomic exchange, and as on systems that have none."""
    if not request.param:
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)


@pytest.mark.usefixtures("renames")
def test_a_folder_is_replaced_and_nothing_else_is_left(tmp_path):
    place = tmp_path / "place"
    for text in ("first", "second"):
        replace_folder(folder_with(tmp_path / "new", text), place)
        assert (place / "file").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["place"]


@pytest.mark.usefixtures("renames")
def test_a_folder_that_may_only_be_read_is_replaced_and_nothing_else_is_left(tmp_path):
    for content in ("old", "new"):
        with new_folder(tmp_path / "m") as new:
            (new / "file").write_text(content)
        (tmp_path / "m").chmod(0o555)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m" / "file").read_text() == "new"


def test_the_old_folder_is_back_if_the_new_one_cannot_be_moved(tmp_path):
    place = folder_with(tmp_path / "place", "old")
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", place)
    assert (place / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_link_to_a_folder_is_replaced_and_the_folder_stays(tmp_path):
    target = folder_with(tmp_path / "target", "old")
    (tmp_path / "place").symlink_to(target)
    replace_folder(folder_with(tmp_path / "new", "new"), tmp_path / "place")
    assert (tmp_path / "place" / "file").read_text() == "new"
    assert (target / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "target"]


def test_a_folder_that_is_not_finished_leaves_the_old_one_and_nothing_else(tmp_path):
    place = folder_with(tmp_path / "place", "old")
    with pytest.raises(KeyboardInterrupt), new_folder(place) as new:
        (new / "file").write_text("half")
        raise KeyboardInterrupt
    assert (place / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def run_and_die(script, *arguments):
    """Run a script that ends itself as `kill -9` would."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    assert subprocess.run(command, timeout=60).returncode == 9


def test_a_process_that_dies_while_it_fills_a_folder_leaves_nothing_for_the_next(tmp_path):
    place = folder_with(tmp_path / "place", "old")
    run_and_die(
        """
        import os, sys
        from pathlib import Path
        from cfnade.folders import new_folder
        with new_folder(Path(sys.argv[1])) as new:
            (new / "file").write_text("half")
            os._exit(9)
        """,
        place,
    )
    assert (place / "file").read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    with new_folder(place) as new:
        (new / "file").write_text("whole")
    assert (place / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize("n_renames", [0, 1, 2])
def test_a_crash_between_two_renames_is_recovered_from(tmp_path, n_renames):
    place = folder_with(tmp_path / "place", "old")
    folder_with(tmp_path / "new", "new")
    run_and_die(
        """
        import os, sys
        from pathlib import Path
        from cfnade import folders
        n_left, real = int(sys.argv[2]), Path.rename
        folders._exchange = lambda one, other: False
        folders.shutil.rmtree = lambda *args, **options: os._exit(9)
        def rename(self, target):
            global n_left
            n_left -= 1
            if n_left < 0:
                os._exit(9)
            return real(self, target)
        Path.rename = rename
        place = Path(sys.argv[1])
        folders.replace_folder(place.with_name("new"), place)
        """,
        place,
        n_renames,
    )
    recover(place)
    assert (place / "file").read_text() == ("new" if n_renames == 2 else "old")
    left = {path.name for path in tmp_path.iterdir()} - {"place"}
    assert left == ({"new"} if n_renames < 2 else set())


def test_what_others_use_or_own_is_not_cleared_away(tmp_path):
    with temporary_folder("job", tmp_path) as first:
        with temporary_folder("job", tmp_path) as second:
            assert first.is_dir() and second.is_dir() and first != second
        assert first.is_dir() and not second.exists()
        (tmp_path / "job.cfnade-link").symlink_to(tmp_path)
        with temporary_folder("job", tmp_path):
            assert first.is_dir() and (tmp_path / "job.cfnade-link").is_symlink()
    (tmp_path / "job.cfnade-abandoned").mkdir()
    (tmp_path / "jobs").mkdir()
    with temporary_folder("job", tmp_path):
        assert not (tmp_path / "job.cfnade-abandoned").exists()
    assert (tmp_path / "jobs").is_dir()


def test_a_lock_is_held_by_one_and_ends_with_its_block(tmp_path):
    with locked(tmp_path) as first, locked(tmp_path) as second:
        assert (first, second) == (True, False)
    with locked(tmp_path) as again:
        assert again
    with locked(tmp_path / "missing") as none:
        assert not none


def test_files_and_folders_are_flushed_before_and_after_the_exchange(tmp_path, monkeypatch):
    done = []
    real_fsync, real_replace = os.fsync, folders.replace_folder

    def fsync(handle):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))  # noqa: PTH115, PTH119
        real_fsync(handle)

    def replace(new, folder):
        done.append("exchange")
        real_replace(new, folder)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(folders, "replace_folder", replace)
    with new_folder(tmp_path / "place") as new:
        (new / "file").write_text("text")
        name = new.name
    assert done == ["file", name, "exchange", tmp_path.name]


def test_a_file_is_replaced_as_a_whole_and_its_folder_is_made(tmp_path):
    path = tmp_path / "deep" / "file"
    for content in (b"first", b"2"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
