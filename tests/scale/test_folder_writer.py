"""A prepared folder replaces an earlier one, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from cfnade.errors import DataError
from cfnade.scale.folder_writer import check_facts, make_room

FACTS = {"n_users": 3, "n_pairs": 5, "n_dropped_pairs": 2}


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_what_an_earlier_preparation_wrote_is_emptied(tmp_path):
    out = tmp_path / "ready"
    fill(out, "prepared.json", "users/part-0.parquet", "users/_SUCCESS")
    fill(out, "before/prepared.json", "before/users/part-0.parquet", "before/users/.x.crc")
    make_room(out)
    assert list(out.iterdir()) == []
    make_room(tmp_path / "new" / "place")
    assert (tmp_path / "new" / "place").is_dir()


@pytest.mark.parametrize(
    "foreign", ["letter.txt", "src/a.parquet", "users/notes.md", "before/letter.txt"]
)
def test_a_folder_with_anything_else_is_left_alone(tmp_path, foreign):
    fill(tmp_path, "prepared.json", "users/part-0.parquet", foreign)
    with pytest.raises(DataError, match="not a prepared folder"):
        make_room(tmp_path)
    assert (tmp_path / foreign).read_text() == "x"


def test_pairs_that_weights_drop_are_reported_and_no_pairs_at_all_refused(caplog):
    assert check_facts(FACTS, None) == {"n_users": 3, "n_pairs": 5}
    assert check_facts(FACTS, {"view": 1.0}) == FACTS
    assert "2 pairs are dropped" in caplog.text
    for weights, reason in ((None, "check the count column"), ({"a": 1.0}, "these event weights")):
        with pytest.raises(DataError, match=reason):
            check_facts({**FACTS, "n_pairs": 0}, weights)
