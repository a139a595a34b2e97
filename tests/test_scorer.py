"""Blocks of rows to score; `test_scorer_contract.py` tests every `Scorer`."""

from __future__ import annotations

from cfnade.scorer import blocks


def test_blocks_cover_all_rows_within_the_memory_allowed():
    assert list(blocks(7, 10, 4 * 10 * 3)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(blocks(2, 1000, 4 * 10 * 3)) == [slice(0, 1), slice(1, 2)]  # one row at least
    assert list(blocks(0, 10)) == []
