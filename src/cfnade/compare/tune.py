"""The search for settings behind `cfnade tune`: optuna, on validation, kept in a file.

`cfnade.metrics.search` has the short search that every model of a comparison gets; this one is
for CF-NADE alone, longer, and can be interrupted.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade.compare.protocol import Protocol, ProtocolConfig
from cfnade.compare.search_space import SPACE
from cfnade.compare.tuning_study import TuneTrial, finished, need_optuna, open_study, quiet
from cfnade.data.interactions import Interactions
from cfnade.data.splitting import HoldOutBy, hold_out
from cfnade.data.summary import fingerprint
from cfnade.errors import ConfigError, DataError, TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.pipeline import Callbacks
from cfnade.fit.settings_file import SettingsFile, write_settings
from cfnade.metrics.search import Validation
from cfnade.model.config import usual_item_l2

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

    from cfnade.model.training import Epoch

N_TRIALS = 30
"""Settings to try, unless told otherwise."""

N_RANDOM = 8
"""Trials at random before the sampler goes by what it has seen."""


@dataclass(frozen=True)
class Tuned:
    """What a search has come to."""

    file: Path
    """The settings file."""

    trials: list[TuneTrial] = field(repr=False)
    """All that are done, those of earlier runs included, in their order."""

    @property
    def best(self) -> TuneTrial | None:
        """The one with the lowest validation MPR, if any is complete."""
        complete = [trial for trial in self.trials if trial.mpr is not None]
        return min(complete, key=lambda trial: trial.mpr or 0.0, default=None)

    def to_json(self) -> dict[str, Any]:
        """As the command writes it; the format is in docs/json.md."""
        return {
            "settings_file": str(self.file),
            "best": None if self.best is None else asdict(self.best),
            "trials": [asdict(trial) for trial in self.trials],
        }


@dataclass(frozen=True)
class TuneCallbacks:
    """Who wants to hear of the progress."""

    on_epoch: Callable[[int, Epoch], None] | None = None
    """Called after every epoch with the trial's number."""

    on_trial: Callable[[Tuned], None] | None = None
    """Called after every trial."""


def tune(
    data: Interactions,
    out: str | Path,
    *,
    preset: str = "default",
    changes: Mapping[str, Any] | None = None,
    search: Sequence[str] | None = None,
    n_trials: int = N_TRIALS,
    minutes: float | None = None,
    test_share: float = 0.1,
    seed: int = 0,
    resume: bool = False,
    callbacks: TuneCallbacks | None = None,
) -> Tuned:
    """Search for settings on a validation part, and write the best to a file.

    The first trial is the preset as it is, so that the outcome is no worse on validation. The
    file is written anew after every trial: whatever stops the search, the best so far is there.
    All trials are kept beside it (OUT.study), for `resume`.

    A test part is left out, the one that `evaluate` and `compare` hold out with the same seed and
    share: no trial trains on it or is judged by it. Trials train on the rest without a validation
    part, by which they are judged. The same seed, data and number of threads give the same
    settings, interrupted or not (but for the limit of time).

    Args:
        data: Counts with their ids.
        out: The settings file to write.
        preset: Settings to start from.
        changes: Settings that differ from it and are not searched.
        search: Names of the settings to search, of `cfnade.compare.search_space.SPACE`; None takes
            all but those in `changes`.
        n_trials: Settings to try, those of earlier runs included.
        minutes: Begin no further trial after this time; None for no limit.
        test_share: Of each user's items to leave out; 0 if the test part is elsewhere.
        seed: Of the split, the search and the models.
        resume: Go on with the search that is kept beside `out`.
        callbacks: For progress.

    Returns:
        All trials.

    Raises:
        DataError: If nothing can be held out.
        ConfigError: If a setting has no meaning, there is a search already and it is not to be
            resumed, or it is one of other data or settings.
        MissingExtraError: If optuna or torch is not installed.
        TrainingError: If no trial could be trained.
    """
    need_optuna()
    out = Path(out)
    changes, callbacks = dict(changes or {}), callbacks or TuneCallbacks()
    names = _searched(search, changes)
    ImplicitCFNADE.from_preset(preset, **changes)  # to know now what has no meaning
    facts = {
        "data_sha256": fingerprint(data)["sha256"],
        "seed": seed,
        "test_share": test_share,
    }
    job = {**facts, "preset": preset, "fixed": dict(changes), "searched": names}
    validation = _validation(data, test_share, changes.get("validation_by", "pairs"), seed)
    if ImplicitCFNADE.from_preset(preset, **changes).item_l2 is None:  # fixed, or where it starts
        changes["item_l2"] = usual_item_l2(validation.train.nnz, *data.counts.shape)
    deadline = None if minutes is None else time.monotonic() + 60.0 * minutes
    with quiet(), _interrupted_between_updates() as check:
        study = open_study(out, job, resume=resume)
        trials = finished(study)
        while len(trials) < n_trials and (deadline is None or time.monotonic() < deadline):
            check()
            _run_trial(study, _Attempt(preset, changes, names, validation, seed), callbacks, check)
            tuned = Tuned(out, trials := finished(study))
            if tuned.best is not None:
                _write(tuned, SettingsFile(changes, preset, facts))
            if callbacks.on_trial is not None:
                callbacks.on_trial(tuned)
    tuned = Tuned(out, trials)
    if tuned.best is None and trials:
        raise TrainingError(f"none of {len(trials)} settings could be trained; see the log for why")
    if tuned.best is not None and not out.exists():
        _write(tuned, SettingsFile(changes, preset, facts))
    return tuned


@dataclass(frozen=True)
class _Attempt:
    """One fit with the settings that a trial chooses."""

    preset: str
    changes: Mapping[str, Any]
    searched: Sequence[str]
    validation: Validation
    seed: int

    def settings(self, trial: Trial, *, is_first: bool) -> dict[str, Any]:
        """The trial's choice; the first is the preset, even where that lies outside the space."""
        kept = ImplicitCFNADE.from_preset(self.preset, **self.changes).get_params()
        return {
            name: kept[name]
            if is_first and not SPACE[name].holds(kept[name])
            else SPACE[name].suggest(trial, name)
            for name in self.searched
        }

    def start(self) -> dict[str, Any]:
        """What the first trial is to choose."""
        kept = ImplicitCFNADE.from_preset(self.preset, **self.changes).get_params()
        return {name: kept[name] for name in self.searched if SPACE[name].holds(kept[name])}

    def run(
        self,
        settings: Mapping[str, Any],
        on_epoch: Callable[[Epoch], None],
        check: Callable[[], None],
    ) -> ImplicitCFNADE:
        """Fit, and judge on validation; `check` is called after every update."""
        model = ImplicitCFNADE.from_preset(
            self.preset,
            # One network is enough to tell settings apart.
            **{"random_state": self.seed, "n_networks": 1, **self.changes, **settings},
        )
        return model.fit(
            self.validation.train,
            validation=self.validation.held_out,
            callbacks=Callbacks(on_epoch=on_epoch, on_step=lambda step, n_steps: check()),
        )


@contextmanager
def _interrupted_between_updates() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C take effect between updates, not while the study is being written.

    A second one takes effect at once.

    Yields:
        What raises KeyboardInterrupt if Ctrl-C was pressed.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check  # Ctrl-C is somebody else's
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run_trial(
    study: Study, attempt: _Attempt, callbacks: TuneCallbacks, check: Callable[[], None]
) -> None:
    """Choose settings, fit with them, and tell the study."""
    from optuna import TrialPruned
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    number = len(finished(study)) + 1
    # A sampler of its own for every trial, so that a resumed search goes on as if it had not
    # been interrupted: what is chosen follows from the seed and the trials that are done.
    drawn = np.random.SeedSequence([attempt.seed, number]).generate_state(1)
    study.sampler = TPESampler(seed=int(drawn[0]), n_startup_trials=N_RANDOM)
    if number == 1 and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.enqueue_trial(attempt.start())
    trial = study.ask()
    settings = attempt.settings(trial, is_first=number == 1)
    trial.set_user_attr("settings", settings)

    def on_epoch(epoch: Epoch) -> None:
        if callbacks.on_epoch is not None:
            callbacks.on_epoch(number, epoch)
        if epoch.validation_mpr is not None:
            trial.report(epoch.validation_mpr, epoch.number)
            if trial.should_prune():
                raise TrialPruned

    try:
        model = attempt.run(settings, on_epoch, check)
        if model.validation_mpr_ is None:
            raise TrainingError("no epoch was validated; raise max_epochs or lower validate_every")
    except TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except TrainingError as error:
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=TrialState.FAIL)
    except BaseException:  # interrupted, or wrong settings: as if it had not begun
        study.tell(trial, state=TrialState.FAIL)
        raise
    else:
        trial.set_user_attr("best_epoch", model.best_epoch_)
        study.tell(trial, model.validation_mpr_)


def _write(tuned: Tuned, found: SettingsFile) -> None:
    """Write the best settings, with how they were found."""
    best = tuned.best
    assert best is not None
    first = tuned.trials[0]
    search = {
        **found.search,
        "n_trials": len(tuned.trials),
        "best_trial": best.number,
        "best_epoch": best.best_epoch,
        "validation_mpr": round(best.mpr or 0.0, 4),
        "preset_validation_mpr": None if first.mpr is None else round(first.mpr, 4),
    }
    write_settings(
        tuned.file,
        SettingsFile({**found.settings, **best.settings}, found.preset, search),
        remarks="Found by cfnade tune. The number of epochs and the readout are not here: every\n"
        "fit finds them. For: cfnade fit DATA --settings THIS --out MODEL",
    )


def _searched(search: Sequence[str] | None, changes: Mapping[str, Any]) -> list[str]:
    if search is None:
        return [name for name in SPACE if name not in changes]
    for name in search:
        if name not in SPACE:
            raise ConfigError(f"{name!r} is not searched; choose from {', '.join(SPACE)}")
        if name in changes:
            raise ConfigError(f"{name} is both fixed and to be searched; decide which")
    return list(dict.fromkeys(search))


def _validation(data: Interactions, test_share: float, by: HoldOutBy, seed: int) -> Validation:
    """What settings may be chosen on: the data without the test part of a comparison."""
    config = ProtocolConfig(test_share=test_share or 0.1, validation_by=by, seed=seed)
    if test_share != 0:
        return Protocol(data, config=config).validation
    train, held_out = hold_out(
        data.counts,
        share=config.validation_share,
        by=by,
        n_users=config.validation_users,
        rng=seed,
    )
    if held_out.nnz == 0:
        raise DataError("no user has enough items for a validation part; bring more data")
    return Validation(train, held_out)
