"""Progress of long jobs: a bar in a terminal or notebook, else one log line per stage."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from cfnade.model.training import Epoch

logger = logging.getLogger(__name__)

_TRAINING = re.compile(r"training( \d+)?")  # of a search; the one on all events is not


@dataclass(frozen=True)
class Callbacks:
    """Functions to call as a fit progresses; None calls nothing."""

    on_epoch: Callable[[Epoch], None] | None = None
    """Called after every epoch."""

    on_step: Callable[[int, int], None] | None = None
    """Called after every update with its number in the epoch and their total."""

    on_stage: Callable[[str], None] | None = None
    """Called when a stage begins, with its name."""

    on_stages: Callable[[Mapping[str, float], int], None] | None = None
    """Called once the fit is planned, with the stages to come and the time that each may take, in
    any unit, and the number of epochs of a training; again for each of several trainings."""

    def plan(self, stages: Mapping[str, float], n_epochs: int) -> None:
        """Announce the stages, if anybody listens."""
        if self.on_stages is not None:
            self.on_stages(stages, n_epochs)

    def begin(self, stage: str) -> None:
        """Announce the beginning of a stage, if anybody listens."""
        if self.on_stage is not None:
            self.on_stage(stage)


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
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (is_shown or console.is_terminal),
    ) as progress:
        yield progress


def report(progress: Progress, text: str, *, with_bar: bool) -> None:
    """Log a line, or print it in a notebook; with a bar, print it above or leave it out."""
    has_bar = not progress.disable
    if not has_bar and not progress.console.is_jupyter:
        logger.info("%s", text)
    elif with_bar or not has_bar:
        progress.console.print(text, markup=False, highlight=False, soft_wrap=has_bar)


def _notebook_line(progress: Progress) -> Callable[[str], None]:
    """Show a line, updated in place, in a notebook without a bar; else do nothing."""
    if not (progress.disable and progress.console.is_jupyter):
        return lambda text: None
    handle = import_module("IPython.display").display({}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


@contextmanager
def fit_progress(console: Console | None = None) -> Iterator[Callbacks]:
    """One bar for all stages of a fit, with the time left; without a bar, a line per stage.

    Args:
        console: Where to show it; standard error by default.

    Yields:
        Functions to call while fitting.
    """
    planned: dict[str, float] = {}  # stages and their times
    done, stage, n_epochs = 0.0, "", 0
    epochs: list[Epoch] = []  # of this stage

    def shown() -> str:
        """The stage; of several trainings also how many there may be: a search may end earlier."""
        trainings = [name for name in planned if _TRAINING.fullmatch(name)]
        if len(trainings) < 2 or stage not in trainings:
            return stage
        return f"training {trainings.index(stage) + 1} of at most {len(trainings)}"

    def summary() -> str:
        if not epochs:
            return shown()
        mprs = [epoch.validation_mpr for epoch in epochs if epoch.validation_mpr is not None]
        found = f", validation MPR {mprs[-1]:.2f} % (best {min(mprs):.2f} %)" if mprs else ""
        return f"{shown()}, epoch {epochs[-1].number}: loss {epochs[-1].loss:.4f}{found}"

    with progress_bar(console) as progress:
        task = progress.add_task("reading", total=None)
        show = _notebook_line(progress)

        def update(share: float) -> None:
            """Show how much of the stage is done."""
            total = sum(planned.values())
            here = done + min(share, 1.0) * planned.get(stage, 0.0)
            percent = 100.0 * here / total if total else 0.0
            progress.update(
                task, completed=percent, total=100.0 if total else None, description=summary()
            )
            show(f"{'█' * round(percent / 5):░<20} {percent:.0f} % {summary()}")

        def on_stages(stages: Mapping[str, float], epochs_of_training: int) -> None:
            nonlocal n_epochs
            planned.update(stages)
            n_epochs = epochs_of_training

        def on_stage(name: str) -> None:
            nonlocal done, stage
            end()
            done = sum(planned[earlier] for earlier in takewhile(name.__ne__, planned))
            stage = name
            epochs.clear()
            update(0.0)

        def on_epoch(epoch: Epoch) -> None:
            epochs.append(epoch)
            update(epoch.number / max(n_epochs, 1))

        def on_step(step: int, n_steps: int) -> None:
            update((len(epochs) + step / n_steps) / max(n_epochs, 1))

        def end() -> None:
            if stage:
                report(progress, summary(), with_bar=False)

        yield Callbacks(on_epoch, on_step, on_stage, on_stages)
        end()
