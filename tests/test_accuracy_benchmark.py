"""The accuracy benchmark goes on where it was stopped, and chooses before it tests."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("implicit")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def accuracy(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accuracy

    return accuracy


@pytest.fixture
def options() -> argparse.Namespace:
    return argparse.Namespace(
        data=Path(), methods=["popularity", "ease", "ials"], trials=2, seeds=2, ablated=()
    )


@pytest.fixture
def cells(accuracy, options, tmp_path) -> Path:
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, tmp_path)
    return tmp_path


def test_each_cell_has_a_choice_and_a_judgement(cells) -> None:
    names = {file.name for file in (cells / "tiny").iterdir()}
    for method in ("popularity", "ease", "ials"):
        assert {f"{method}.choice.json", f"{method}.json", f"{method}.npz"} <= names
    judged = json.loads((cells / "tiny" / "ials.json").read_text())["judged"]
    assert len(judged["mpr"]["by_seed"]["mpr"]) == 2
    assert (
        len(json.loads((cells / "tiny" / "ease.json").read_text())["judged"]["mpr"]["seeds"]) == 1
    )


def test_what_is_done_is_not_done_again(accuracy, options, cells, monkeypatch) -> None:
    def refuse(*arguments, **settings):
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(accuracy, "choose", refuse)
    monkeypatch.setattr(accuracy, "judge", refuse)
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, cells)


def test_a_choice_without_a_judgement_is_judged_as_it_was_made(
    accuracy, options, cells, monkeypatch
) -> None:
    before = json.loads((cells / "tiny" / "ease.json").read_text())
    (cells / "tiny" / "ease.json").unlink()  # stopped between the two
    monkeypatch.setattr(accuracy, "choose", None)
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, cells)
    after = json.loads((cells / "tiny" / "ease.json").read_text())
    assert after["judged"]["mpr"]["metrics"] == before["judged"]["mpr"]["metrics"]


def test_no_choice_is_made_once_its_test_was_seen(accuracy, cells) -> None:
    cell = accuracy.Cell(cells / "tiny", "ease")
    with pytest.raises(RuntimeError, match="its test was seen already"):
        cell.keep_choice(cell.chosen())


def test_the_choice_is_on_disk_before_the_test_is_looked_at(
    accuracy, options, tmp_path, monkeypatch
) -> None:
    looked = []
    judge = accuracy.judge

    def judge_after_choice(*arguments, **settings):
        looked.append(sorted(file.name for file in (tmp_path / "tiny").glob("*.choice.json")))
        return judge(*arguments, **settings)

    monkeypatch.setattr(accuracy, "judge", judge_after_choice)
    options.methods = ["ease"]
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, tmp_path)
    assert looked and all("ease.choice.json" in files for files in looked)


def test_a_method_that_cannot_be_fitted_is_told_and_the_others_stay(
    accuracy, options, tmp_path, monkeypatch
) -> None:
    from accuracy_report import accuracy_section, collect

    from cfnade.errors import TrainingError

    choose = accuracy.choose

    def fail_for_ease(candidate, *arguments, **settings):
        if type(candidate).__name__ == "EASEContender":
            raise TrainingError("too many items")
        return choose(candidate, *arguments, **settings)

    monkeypatch.setattr(accuracy, "choose", fail_for_ease)
    accuracy.run_set("tiny", accuracy.QUICK["tiny"], options, tmp_path)
    text = accuracy_section(collect(tmp_path, accuracy.QUICK))
    assert "| ease | not fitted |" in text
    assert "Not fitted: tiny: ease: too many items." in text
    assert "| ials | " in text


def test_the_report_marks_who_is_ahead_of_cfnade(accuracy, cells) -> None:
    from accuracy_report import accuracy_section, collect

    folder = cells / "tiny"
    for ending in ("json", "choice.json", "npz"):  # as if popularity were CF-NADE
        (folder / f"popularity.{ending}").rename(folder / f"cfnade.{ending}")
    found = collect(cells, accuracy.QUICK)
    methods = found["sets"]["tiny"]["methods"]
    assert methods["ease"]["figures"]["mpr"]["cfnade"] == "loss"
    assert methods["ease"]["figures"]["ndcg@100"]["chosen_by"] == "ndcg@100"
    json.dumps(found)
    text = accuracy_section(found)
    row = next(line for line in text.splitlines() if line.startswith("| ease |"))
    assert row.endswith("**(ahead)** |")
    # On another machine the figures of single users are gone; what was told of them is not.
    for users in folder.glob("*.npz"):
        users.unlink()
    assert collect(cells, accuracy.QUICK, found) == found
    judged = json.loads((folder / "cfnade.json").read_text())
    judged["judged"]["mpr"]["metrics"]["mpr"] += 1.0  # CF-NADE is another since
    (folder / "cfnade.json").write_text(json.dumps(judged))
    again = collect(cells, accuracy.QUICK, found)["sets"]["tiny"]["methods"]["ease"]["figures"]
    assert "cfnade" not in again["mpr"]
    assert again["recall@20"]["cfnade"] == "loss"


def test_every_set_has_a_table_and_every_method_a_name(accuracy) -> None:
    from accuracy_report import NAMES

    for dataset in accuracy.SETS.values():
        assert set(dataset.metrics) <= set(NAMES)
        assert set(dataset.methods or ()) <= set(accuracy.METHODS)
    assert set(accuracy.ABLATED) <= set(accuracy.SETS)
    assert set(accuracy.METHODS) >= accuracy.DETERMINISTIC
    assert str(BENCHMARKS) in sys.path
