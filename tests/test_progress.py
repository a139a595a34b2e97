from __future__ import annotations

import io
import logging
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from cfnade.progress import Callbacks, fit_progress, progress_bar, report


@dataclass
class AnEpoch:
    number: int
    loss: float = 0.5
    validation_mpr: float | None = None


STAGES = {"factors": 1.0, "training": 6.0, "readout": 1.0}


def run_fit(callbacks: Callbacks) -> None:
    """The calls of a fit of three stages, with two epochs."""
    callbacks.plan(STAGES, 2)
    callbacks.begin("factors")
    callbacks.begin("training")
    for number, mpr in ((1, None), (2, 7.0)):
        callbacks.on_step(1, 2)
        callbacks.on_epoch(AnEpoch(number, 0.25, mpr))
    callbacks.begin("readout")


def test_without_a_terminal_each_stage_is_logged_once(caplog):
    with (
        caplog.at_level(logging.INFO, logger="cfnade"),
        fit_progress(Console(file=io.StringIO())) as callbacks,
    ):
        run_fit(callbacks)
    assert caplog.messages == [
        "factors",
        "training, epoch 2: loss 0.2500, validation MPR 7.00 % (best 7.00 %)",
        "readout",
    ]


def test_nothing_is_logged_if_the_fit_never_began(caplog):
    with caplog.at_level(logging.INFO), fit_progress(Console(file=io.StringIO())):
        pass
    assert not caplog.messages


def test_a_terminal_shows_one_bar_for_all_stages_and_no_log_lines(caplog, monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    shown = []
    update = Progress.update

    def keep(self, task, **changes):
        shown.append(changes["completed"])
        update(self, task, **changes)

    monkeypatch.setattr(Progress, "update", keep)
    with caplog.at_level(logging.INFO), fit_progress(terminal) as callbacks:
        run_fit(callbacks)
        callbacks.on_step(9, 2)  # never beyond the end of the stage
    # Factors take an eighth, training three quarters: each step is a quarter of that.
    assert shown == [0.0, 12.5, 31.25, 50.0, 68.75, 87.5, 87.5, 100.0]
    assert "readout" in terminal.file.getvalue()
    assert not caplog.messages


def test_callbacks_that_are_not_given_are_not_called():
    callbacks = Callbacks()
    callbacks.plan(STAGES, 2)
    callbacks.begin("factors")


def test_a_notebook_without_widgets_prints_each_stage(monkeypatch, caplog):
    monkeypatch.setattr("cfnade.progress.find_spec", lambda name: None)
    shown = []
    notebook = Console(file=io.StringIO())
    monkeypatch.setattr(notebook, "is_jupyter", True)
    monkeypatch.setattr(notebook, "print", lambda text, **_: shown.append(text))
    with caplog.at_level(logging.INFO), progress_bar(notebook) as bar:
        report(bar, "imf: final fit", with_bar=False)
    assert shown == ["imf: final fit"] and not caplog.messages


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_a_bar_if_it_has_widgets(monkeypatch, has_widgets):
    monkeypatch.setattr("cfnade.progress.find_spec", lambda name: "spec" if has_widgets else None)
    notebook = Console(file=io.StringIO())
    monkeypatch.setattr(notebook, "is_jupyter", True)
    made = []
    monkeypatch.setattr("cfnade.progress.Progress", lambda *_, disable, **__: made.append(disable))
    with pytest.raises(TypeError), progress_bar(notebook):
        pass
    assert made == [not has_widgets]


def test_a_notebook_without_widgets_updates_a_line_in_place(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    ipython = SimpleNamespace(display=lambda data, raw, display_id: handle)
    monkeypatch.setattr("cfnade.progress.import_module", lambda name: ipython)
    monkeypatch.setattr("cfnade.progress.find_spec", lambda name: None)
    notebook = Console(file=io.StringIO())
    monkeypatch.setattr(notebook, "is_jupyter", True)
    monkeypatch.setattr(notebook, "print", lambda text, **_: shown.append(text))
    with fit_progress(notebook) as callbacks:
        callbacks.plan({"training": 1.0}, 4)
        callbacks.begin("training")
        callbacks.on_epoch(AnEpoch(1))
    assert shown == [
        "░░░░░░░░░░░░░░░░░░░░ 0 % training",
        "█████░░░░░░░░░░░░░░░ 25 % training, epoch 1: loss 0.5000",
        "training, epoch 1: loss 0.5000",
    ]


def test_each_training_has_a_line_with_its_last_and_its_best_epoch(caplog):
    with (
        caplog.at_level(logging.INFO, logger="cfnade"),
        fit_progress(Console(file=io.StringIO())) as callbacks,
    ):
        callbacks.plan({"training": 1.0, "training 2": 1.0, "training on all events": 1.0}, 4)
        callbacks.begin("training")
        for number, mpr in ((1, 8.0), (2, None), (3, 7.0), (4, 7.5)):
            callbacks.on_epoch(AnEpoch(number, 0.25, mpr))
        callbacks.begin("training 2")
        callbacks.on_epoch(AnEpoch(1, 0.125))
        callbacks.begin("training on all events")
        callbacks.on_epoch(AnEpoch(1, 0.125))
    assert caplog.messages == [
        "training 1 of at most 2, epoch 4: loss 0.2500, validation MPR 7.50 % (best 7.00 %)",
        "training 2 of at most 2, epoch 1: loss 0.1250",
        "training on all events, epoch 1: loss 0.1250",
    ]


def test_stages_that_are_left_out_count_as_done(monkeypatch):
    shown = []
    monkeypatch.setattr(Progress, "update", lambda self, task, **new: shown.append(new))
    with fit_progress(Console(file=io.StringIO())) as callbacks:
        callbacks.plan({"factors": 1.0, "training": 2.0, "training 2": 2.0, "readout": 3.0}, 2)
        callbacks.begin("training")  # no factors
        callbacks.begin("readout")  # and the first training was good
    assert [(new["description"], new["completed"]) for new in shown] == [
        ("training 1 of at most 2", 12.5),
        ("readout", 62.5),
    ]


def test_without_a_plan_the_bar_has_no_end(monkeypatch):
    shown = []
    monkeypatch.setattr(Progress, "update", lambda self, task, **new: shown.append(new))
    with fit_progress(Console(file=io.StringIO())) as callbacks:
        callbacks.begin("training")
    assert shown == [{"completed": 0.0, "total": None, "description": "training"}]


def test_a_finding_stays_above_the_bar_and_is_logged_without_one(caplog):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    with caplog.at_level(logging.INFO), progress_bar(terminal) as bar:
        report(bar, "imf: MPR 7.00 %", with_bar=True)
    assert "imf: MPR 7.00 %\n" in terminal.file.getvalue() and not caplog.messages
    with caplog.at_level(logging.INFO), progress_bar(Console(file=io.StringIO())) as bar:
        report(bar, "imf: MPR 7.00 %", with_bar=True)
    assert caplog.messages == ["imf: MPR 7.00 %"]
