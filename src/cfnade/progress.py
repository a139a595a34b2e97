"""Progress of long jobs: a bar in a terminal or notebook, else one log line per stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from cfnade.model.training import Epoch

logger = logging.getLogger(__name__)


class TrainingProgress(NamedTuple):
    """Functions to call while training."""

    on_epoch: Callable[[Epoch], None]
    """After every epoch."""

    on_step: Callable[[int, int], None]
    """After every update, with its number in the epoch and the number of updates."""


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Progress]:
    """A bar that vanishes at the end; `disable` is set if there is nowhere to show it.

    Args:
        console: Where to show it; standard error by default.
    """
    console = console or Console(stderr=True)
    # In a notebook rich needs ipywidgets.
    is_shown = console.is_jupyter and find_spec("ipywidgets") is not None
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:g}/{task.total:g}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (is_shown or console.is_terminal),
    ) as progress:
        yield progress


def report_stage(progress: Progress, text: str) -> None:
    """Log a stage of a job, unless the bar shows it; a notebook without a bar prints it."""
    if not progress.disable:
        return
    if progress.console.is_jupyter:
        progress.console.print(text, markup=False, highlight=False)
    else:
        logger.info("%s", text)


def report_finding(progress: Progress, text: str) -> None:
    """Print a line that stays, above the bar if there is one; else log it."""
    if progress.disable:
        report_stage(progress, text)
    else:
        progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _notebook_line(progress: Progress) -> Callable[[str], None]:
    """Show a line, updated in place, in a notebook without a bar; else do nothing."""
    if not (progress.disable and progress.console.is_jupyter):
        return lambda text: None
    handle = import_module("IPython.display").display({}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


@contextmanager
def training_progress(
    max_epochs: int, console: Console | None = None
) -> Iterator[TrainingProgress]:
    """Show epoch, loss, validation MPR and time left; without a bar, report each training.

    A fit may train several times: its epochs then start again at 1.

    Args:
        max_epochs: Length of the bar.
        console: Where to show it; standard error by default.

    Yields:
        Functions to call while training.
    """
    n_trainings, done = 1, 0
    epochs: list[Epoch] = []  # of this training

    def summary() -> str:
        mprs = [epoch.validation_mpr for epoch in epochs if epoch.validation_mpr is not None]
        found = f", validation MPR {mprs[-1]:.2f} % (best {min(mprs):.2f} %)" if mprs else ""
        return (
            f"training {n_trainings}, epoch {epochs[-1].number}: loss {epochs[-1].loss:.4f}{found}"
        )

    with progress_bar(console) as progress:
        task = progress.add_task("getting ready", total=max_epochs)
        show = _notebook_line(progress)

        def on_epoch(epoch: Epoch) -> None:
            nonlocal n_trainings, done
            if epochs and epoch.number <= epochs[-1].number:
                report_stage(progress, summary())
                epochs.clear()
                n_trainings += 1
            epochs.append(epoch)
            done = epoch.number
            progress.update(task, completed=done, description=summary())
            filled = round(20 * min(done / max(max_epochs, 1), 1))
            show(f"{'█' * filled:░<20} {done}/{max_epochs} {summary()}")

        def on_step(step: int, n_steps: int) -> None:
            progress.update(task, completed=min(done + step / n_steps, max_epochs))

        yield TrainingProgress(on_epoch, on_step)
        if epochs:
            report_stage(progress, summary())
