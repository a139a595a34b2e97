from __future__ import annotations

import io
import logging
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from rich.console import Console

from cfnade.progress import progress_bar, report_finding, report_stage, training_progress


@dataclass
class AnEpoch:
    number: int
    loss: float = 0.5
    validation_mpr: float | None = None


def test_without_a_terminal_each_training_is_logged_once(caplog):
    with (
        caplog.at_level(logging.INFO, logger="cfnade"),
        training_progress(9, Console(file=io.StringIO())) as (on_epoch, on_step),
    ):
        for number, mpr in ((1, 8.0), (2, 7.0), (3, 7.5)):
            on_step(1, 2)
            on_epoch(AnEpoch(number, 0.25, mpr))
        on_epoch(AnEpoch(1, 0.125))  # another training
    assert caplog.messages == [
        "training 1, epoch 3: loss 0.2500, validation MPR 7.50 % (best 7.00 %)",
        "training 2, epoch 1: loss 0.1250",
    ]


def test_nothing_is_logged_if_training_never_began(caplog):
    with caplog.at_level(logging.INFO), training_progress(9, Console(file=io.StringIO())):
        pass
    assert not caplog.messages


def test_a_terminal_shows_a_bar_and_no_log_lines(caplog):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    with caplog.at_level(logging.INFO), training_progress(4, terminal) as (on_epoch, on_step):
        on_epoch(AnEpoch(1, 0.5, 8.0))
        on_step(1, 2)
        on_step(9, 2)  # never beyond the end
    assert "epoch 1: loss 0.5000, validation MPR 8.00 %" in terminal.file.getvalue()
    assert not caplog.messages


def test_a_notebook_without_widgets_prints_each_stage(monkeypatch, caplog):
    monkeypatch.setattr("cfnade.progress.find_spec", lambda name: None)
    shown = []
    notebook = Console(file=io.StringIO())
    monkeypatch.setattr(notebook, "is_jupyter", True)
    monkeypatch.setattr(notebook, "print", lambda text, **_: shown.append(text))
    with caplog.at_level(logging.INFO), progress_bar(notebook) as bar:
        report_stage(bar, "imf: final fit")
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
    with training_progress(4, notebook) as (on_epoch, _):
        on_epoch(AnEpoch(1))
        on_epoch(AnEpoch(2))
    assert shown == [
        "█████░░░░░░░░░░░░░░░ 1/4 training 1, epoch 1: loss 0.5000",
        "██████████░░░░░░░░░░ 2/4 training 1, epoch 2: loss 0.5000",
        "training 1, epoch 2: loss 0.5000",
    ]


def test_a_finding_stays_above_the_bar_and_is_logged_without_one(caplog):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    with caplog.at_level(logging.INFO), progress_bar(terminal) as bar:
        report_finding(bar, "imf: MPR 7.00 %")
    assert "imf: MPR 7.00 %\n" in terminal.file.getvalue() and not caplog.messages
    with caplog.at_level(logging.INFO), progress_bar(Console(file=io.StringIO())) as bar:
        report_finding(bar, "imf: MPR 7.00 %")
    assert caplog.messages == ["imf: MPR 7.00 %"]
