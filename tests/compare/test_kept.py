"""What an interrupted comparison leaves, and what the next one does with it."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from cfnade.compare.comparison import JobProgress, compare
from cfnade.compare.contender import Edge
from cfnade.compare.kept import OLD
from cfnade.compare.outcome import Result
from cfnade.compare.protocol import ProtocolConfig
from cfnade.compare.registry import contender
from cfnade.data.interactions import Interactions
from cfnade.metrics.lists import ListQuality
from tests.compare.outcomes import calibration, result
from tests.networks import group_counts

NAMES = ("popularity", "ease", "edlae")


@pytest.fixture(scope="module")
def data() -> Interactions:
    return Interactions.from_matrix(group_counts())


def models() -> dict:
    return {name: contender(name) for name in NAMES}


def without_seconds(comparison) -> list[dict]:
    return [
        asdict(replace(each, fit_seconds=0.0, search_seconds=0.0)) for each in comparison.results
    ]


def interrupted(data, keep, before: str = "edlae", **arguments) -> None:
    """Press Ctrl-C when this model begins."""

    def on_progress(job: JobProgress) -> None:
        if job.model == before:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(data, models(), keep=keep, on_progress=on_progress, **arguments)


def reused(data, keep, **arguments) -> list[str]:
    """Run again, and say which models were not."""
    reported: list[JobProgress] = []
    compare(data, models(), keep=keep, on_progress=reported.append, **arguments)
    return [job.model for job in reported if job.is_kept]


def test_a_second_call_goes_on_where_the_first_was_stopped(data, tmp_path) -> None:
    keep, reported, fitted = tmp_path / "kept", [], {}
    interrupted(data, keep)
    assert len(list(keep.iterdir())) == 2
    found = compare(
        data,
        models(),
        keep=keep,
        on_progress=reported.append,
        on_fitted=fitted.__setitem__,
    )
    assert [job.model for job in reported if job.is_kept] == ["popularity", "ease"]
    assert {job.model for job in reported if job.doing == "search"} == {"edlae"} == fitted.keys()
    assert without_seconds(found) == without_seconds(compare(data, models()))
    assert not list(keep.iterdir())  # it is complete


def test_models_may_be_left_out_of_the_second_call(data, tmp_path) -> None:
    interrupted(data, tmp_path)
    reported: list[JobProgress] = []
    compare(data, {"ease": contender("ease")}, keep=tmp_path, on_progress=reported.append)
    assert [job.is_kept for job in reported] == [True]


@pytest.mark.parametrize(
    "other",
    [
        {"budget": 7.0},
        {"max_trials": 2},
        {"config": ProtocolConfig(test_share=0.2)},
        {"config": ProtocolConfig(seed=1)},
        {"fresh": True},
        {"beyond_accuracy": True},
    ],
)
def test_a_model_of_another_job_is_not_used(data, tmp_path, other) -> None:
    interrupted(data, tmp_path)
    assert reused(data, tmp_path, **other) == []


def test_a_model_of_other_data_or_another_grid_is_not_used(data, tmp_path) -> None:
    interrupted(data, tmp_path)
    more = Interactions.from_matrix(2 * group_counts())
    assert reused(more, tmp_path) == []
    reported: list[JobProgress] = []
    wider = replace(contender("ease"), grid={"regularization": (1e3, 1e4)})
    compare(data, {"ease": wider}, keep=tmp_path, on_progress=reported.append)
    assert not any(job.is_kept for job in reported)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_damaged_file_is_ignored_with_one_line(data, tmp_path, caplog, content) -> None:
    interrupted(data, tmp_path)
    (file,) = tmp_path.glob("ease-*")
    file.write_bytes(content)
    assert reused(data, tmp_path) == ["popularity"]
    (line,) = caplog.messages
    assert line.startswith(f"ease is fitted again: {file} is damaged")


def test_a_place_that_cannot_be_written_stops_nothing(data, tmp_path, caplog) -> None:
    keep = tmp_path / "file"
    keep.write_text("not a folder")
    assert len(compare(data, {"ease": contender("ease")}, keep=keep).results) == 1
    (line,) = caplog.messages
    assert line.startswith(f"ease cannot be kept in {keep}")


def test_forgotten_files_are_deleted_in_the_end(data, tmp_path, monkeypatch) -> None:
    interrupted(data, tmp_path, config=ProtocolConfig(seed=3))
    compare(data, models(), keep=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # of the other seed
    monkeypatch.setattr("cfnade.compare.kept.OLD", -1.0)
    compare(data, models(), keep=tmp_path)
    assert not list(tmp_path.iterdir())
    assert OLD > 7 * 24 * 3600


def test_a_result_is_the_same_after_json() -> None:
    whole = replace(
        result("cfnade", 12.0),
        calibration=calibration(),
        at_edge=(Edge("alpha", 3.0, "smallest"),),
        to_best={"mpr": (0.0, 0.5)},
        beyond_accuracy=ListQuality(20, 0.5, 0.8, 3.2, 0.7),
    )
    assert Result.from_json(asdict(whole)) == whole
