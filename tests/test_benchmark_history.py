"""The history of headline figures grows by what changed, and can be drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def history(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import history

    return history


def results(folder: Path, mpr: float) -> Path:
    (folder / "fit").mkdir(exist_ok=True)
    fit = {"metrics": {"mpr": mpr, "ndcg@100": 0.41234567}, "seconds": 9.5}
    (folder / "fit" / "ml-1m.default.json").write_text(json.dumps(fit))
    (folder / "latency.json").write_text('{"recommend_for_ms": 1.25, "explain_p95_ms": 3}')
    return folder


def test_figures_are_read_from_the_results_that_are_there(history, tmp_path):
    assert history.headline(results(tmp_path, 6.6576)) == {
        "mpr ml-1m": 6.658,
        "ndcg@100 ml-1m": 0.4123,
        "seconds ml-1m": 9.5,
        "latency recommend_for": 1.25,
    }
    assert history.headline(tmp_path / "nothing") == {}


def test_a_line_is_appended_when_a_figure_changed(history, tmp_path):
    path = tmp_path / "history.jsonl"
    for mpr, commit in [(7.0, "a"), (7.0, "b"), (6.0, "c")]:
        figures = history.headline(results(tmp_path, mpr))
        lines = history.append(path, figures, "2026-01-01", commit)
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines
    assert [(line["commit"], line["figures"]["mpr ml-1m"]) for line in lines] == [
        ("a", 7.0),
        ("c", 6.0),
    ]


def test_all_lines_are_drawn(history, tmp_path):
    figures = [history.headline(results(tmp_path, mpr)) for mpr in (7.0, 6.0)]
    lines = [{"date": "2026-01-01", "commit": "abc", "figures": both} for both in figures]
    del lines[0]["figures"]["seconds ml-1m"]  # not run then
    history.draw(lines, tmp_path / "history.svg")
    drawn = (tmp_path / "history.svg").read_text()
    assert drawn.startswith("<?xml") and "nan" not in drawn


def test_what_is_kept_is_readable(history):
    lines = [json.loads(line) for line in history.HISTORY.read_text().splitlines()]
    assert all(set(line) == {"date", "commit", "figures"} and line["figures"] for line in lines)
    assert [line["date"] for line in lines] == sorted(line["date"] for line in lines)
