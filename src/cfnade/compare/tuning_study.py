"""The study of a search for settings: its file, and the trials in it (optuna).

The file is optuna's journal: every trial is appended, so whatever stops a search leaves those that
are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cfnade.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

STUDY = ".study"
"""What the file of the search is called, after the name of the settings file."""

WARM_UP = 6
"""Epochs before which no trial is given up: slow starters are often the best at the end."""

State: TypeAlias = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class TuneTrial:
    """One choice of settings and what it came to."""

    number: int
    """From 1; the first is the preset as it is."""

    state: State
    """`pruned` if it was given up for being behind, `failed` if it could not be trained."""

    mpr: float | None
    """On validation in percent, of the best epoch with the readout; None if not complete."""

    settings: dict[str, Any]
    """The searched ones."""

    best_epoch: int | None
    """Where training was at its best; None if not complete."""

    seconds: float


def need_optuna() -> None:
    """Refuse to go on without the extra.

    Raises:
        MissingExtraError: If optuna is not installed.
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("optuna", "tune", "searching for settings") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep optuna from telling of every trial; warnings are let through."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def finished(study: Study) -> list[TuneTrial]:
    """The trials that came to an end of their own, in their order."""
    from optuna.trial import TrialState

    names: dict[TrialState, State] = {
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }
    ended = [t for t in study.get_trials(deepcopy=False) if _is_done(t)]
    return [
        TuneTrial(
            number,
            names[trial.state],
            trial.value if trial.state == TrialState.COMPLETE else None,
            trial.user_attrs["settings"],
            trial.user_attrs.get("best_epoch"),
            round(trial.duration.total_seconds(), 3) if trial.duration else 0.0,
        )
        for number, trial in enumerate(ended, start=1)
    ]


def _is_done(trial: FrozenTrial) -> bool:
    from optuna.trial import TrialState

    has_failed = trial.state == TrialState.FAIL and "error" in trial.user_attrs
    return has_failed or trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def open_study(out: Path, job: dict[str, Any], *, resume: bool) -> Study:
    """The study in the file beside `out`, a new one or the one to go on with.

    Args:
        out: The settings file that the search is for.
        job: What it is a search of; one of another job is refused.
        resume: Go on with the one that is there.

    Returns:
        The study; trials that a killed run left behind have failed.

    Raises:
        ConfigError: If there is one and it is not to be resumed, or none and it is, or it is
            another one or cannot be read.
        DataError: If the file cannot be written.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    path = out.with_name(out.name + STUDY)
    if resume and not path.exists():
        raise ConfigError(f"there is no search to go on with, no {path}; leave out --resume")
    if not resume and path.exists():
        raise ConfigError(
            f"there is a search in {path} already; go on with --resume, or delete it to start anew"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_line(path)
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = optuna.create_study(
            storage=storage,
            study_name="cfnade",
            direction="minimize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=WARM_UP),
        )
    except OSError as error:
        raise DataError(f"cannot keep a search in {path}: {error.strerror}") from error
    except (ValueError, KeyError, AssertionError) as error:
        raise ConfigError(f"the search in {path} cannot be read ({error}); delete it") from error
    known = study.user_attrs.get("job", job)
    for name, value in job.items():
        if known.get(name) != value:
            raise ConfigError(
                f"the search in {path} is another one: its {name} is {known.get(name)!r}, not "
                f"{value!r}; give the same, or another --out"
            )
    study.set_user_attr("job", job)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)  # of a run that was killed
    return study


def _drop_torn_line(path: Path) -> None:
    """Cut off what a killed run began to write: optuna would not read past it."""
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])
