from __future__ import annotations

import pytest

from cfnade.errors import ArtifactError
from cfnade.storage.untrusted import map_file, parse_json


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
        ("[-1" + "0" * 308 + "]", "-1000"),
    ],
)
def test_json_is_strict(text, reason):
    with pytest.raises(ArtifactError, match=reason):
        parse_json(text.encode())
    assert parse_json(b'{"a": [1, 2.5, null, "\xc3\xbc"]}') == {"a": [1, 2.5, None, "ü"]}
    assert parse_json(b"-" + b"9" * 308) == 1 - 10**308
