from __future__ import annotations

import pytest

from cfnade.errors import ArtifactError
from cfnade.files import map_file, parse_json, read_plain, replace_file, replace_folder


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


def test_a_file_is_replaced_as_a_whole_and_its_folder_is_made(tmp_path):
    path = tmp_path / "deep" / "file"
    for content in (b"first", b"2"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_only_plain_files_of_a_possible_size_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain(path, at_most=5) == map_file(path)[:] == b"12345"
    with pytest.raises(ArtifactError, match="more than 4 bytes"):
        read_plain(path, at_most=4)
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "empty").touch()
    with pytest.raises(ArtifactError, match="is a link"):
        read_plain(tmp_path / "link", at_most=5)
    with pytest.raises(ArtifactError, match="is empty"):
        map_file(tmp_path / "empty")
    with pytest.raises(ArtifactError, match="is not a plain file"):
        read_plain(tmp_path, at_most=5)
    with pytest.raises(ArtifactError, match="is missing"):
        read_plain(tmp_path / "nothing", at_most=5)


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
