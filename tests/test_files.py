from __future__ import annotations

import json

import numpy as np
import pytest

from cfnade.errors import ArtifactError
from cfnade.files import (
    ARRAYS,
    STATE,
    load_checkpoint,
    map_file,
    new_folder,
    parse_json,
    replace_file,
    replace_folder,
    save_checkpoint,
)


def folder_with(path, text):
    path.mkdir()
    (path / "file").write_text(text)
    return path


def test_a_folder_is_replaced_and_nothing_else_is_left(tmp_path):
    place = tmp_path / "place"
    for text in ("first", "second"):
        replace_folder(folder_with(tmp_path / "new", text), place)
        assert (place / "file").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_the_old_folder_is_back_if_the_new_one_cannot_be_moved(tmp_path):
    place = folder_with(tmp_path / "place", "old")
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", place)
    assert (place / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_folder_that_is_not_finished_leaves_the_old_one_and_nothing_else(tmp_path):
    place = folder_with(tmp_path / "place", "old")
    with pytest.raises(KeyboardInterrupt), new_folder(place) as new:
        (new / "file").write_text("half")
        raise KeyboardInterrupt
    assert (place / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_file_is_replaced_as_a_whole_and_its_folder_is_made(tmp_path):
    path = tmp_path / "deep" / "file"
    for content in (b"first", b"2"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_only_plain_files_of_a_possible_size_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert map_file(path, at_most=5)[:] == map_file(path)[:] == b"12345"
    with pytest.raises(ArtifactError, match="more than 4 bytes"):
        map_file(path, at_most=4)
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "empty").touch()
    with pytest.raises(ArtifactError, match="is a link"):
        map_file(tmp_path / "link", at_most=5)
    with pytest.raises(ArtifactError, match="is empty"):
        map_file(tmp_path / "empty")
    with pytest.raises(ArtifactError, match="is not a plain file"):
        map_file(tmp_path, at_most=5)
    with pytest.raises(ArtifactError, match="is missing"):
        map_file(tmp_path / "nothing", at_most=5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "repeated key"),
        ("[NaN]", "NaN"),
        ("[1e999]", "1e999"),
        ("[" * 40 + "]" * 40, "too deep"),
        ('["\\ud800"]', "JSON"),
        ("{", "invalid JSON"),
    ],
)
def test_json_is_strict(text, reason):
    with pytest.raises(ArtifactError, match=reason):
        parse_json(text.encode())
    assert parse_json(b'{"a": [1, 2.5, null, "\xc3\xbc"]}') == {"a": [1, 2.5, None, "ü"]}


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


def test_a_missing_damaged_or_other_checkpoint_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="no checkpoint in"):
        load_checkpoint(tmp_path / "none")
    for name in (STATE, ARRAYS):
        save_checkpoint(tmp_path / "c", {"a": np.ones(2)}, {})
        (tmp_path / "c" / name).write_bytes(b"nonsense")
        with pytest.raises(ArtifactError, match="damaged"):
            load_checkpoint(tmp_path / "c")
    save_checkpoint(tmp_path / "c", {"a": np.ones(2)}, {})
    (tmp_path / "c" / STATE).write_text(json.dumps({"format": 99}))
    with pytest.raises(ArtifactError, match="has format 99, this version reads 1"):
        load_checkpoint(tmp_path / "c")


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot keep a checkpoint in"):
        save_checkpoint(tmp_path / "file" / "c", {}, {})
