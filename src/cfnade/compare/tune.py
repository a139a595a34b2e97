"""`cfnade tune`: a longer search for CF-NADE's settings with optuna, which can be interrupted.

The study is kept in optuna's journal file beside the settings file. Every trial is appended, so
finished trials survive whatever stops the search.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from cfnade.beyond.shared_work import shared_work
from cfnade.compare.parts import own_split
from cfnade.compare.protocol import Protocol, ProtocolConfig, validation_alone
from cfnade.data.event_splits import SplitBy
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, DataError, MissingExtraError, TrainingError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.settings import SettingsFile, write_settings
from cfnade.metrics.search import Validation
from cfnade.progress import Callbacks

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

    from cfnade.model.training import Epoch

N_TRIALS = 30
N_RANDOM = 8  # trials drawn at random before the sampler learns from results
WARM_UP = 6  # epochs before a trial may be pruned: slow starters are often the best at the end
STUDY = ".study"  # appended to the name of the settings file


REMARKS = """Found by cfnade tune. Every fit derives its epochs and finds its readout.
To use it: cfnade fit DATA --settings THIS --out MODEL"""


SPACE: Mapping[str, dict[str, Any] | list[Any]] = {
    "alpha": {"low": 1.0, "high": 300.0, "log": True},
    "item_l2": {"low": 0.01, "high": 3.0, "log": True},
    "learning_rate": {"low": 1e-3, "high": 2e-2, "log": True},
    "recipe__context_share": {"low": 0.2, "high": 0.8},
    "n_hidden": [64, 128, 256, 512],
}
"""The searched settings: ranges (`log` draws factors rather than differences) or choices. Others
keep the recipe's value: a fit finds its epochs and readout, and smaller batches only trade time
for accuracy."""


@dataclass(frozen=True)
class TuneTrial:
    """One choice of the searched settings and its result; number 1 is the recipe."""

    number: int
    state: Literal["complete", "pruned", "failed"]
    mpr: float | None
    """On validation in percent, at the best epoch with the readout; None if not complete."""

    settings: dict[str, Any]
    best_epoch: int | None
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """The settings file, and all finished trials in order, including those of earlier runs."""

    file: Path
    trials: list[TuneTrial] = field(repr=False)

    @property
    def best(self) -> TuneTrial | None:
        """The trial with the lowest validation MPR, if any is complete."""
        complete = [trial for trial in self.trials if trial.mpr is not None]
        return min(complete, key=lambda trial: trial.mpr or 0.0, default=None)

    def to_json(self) -> dict[str, Any]:
        """As the command writes it; the format is in docs/json.md."""
        return {
            "settings_file": str(self.file),
            "best": None if self.best is None else asdict(self.best),
            "trials": [asdict(trial) for trial in self.trials],
        }


OnTuneEpoch: TypeAlias = Callable[[int, "Epoch"], None]
_Fit: TypeAlias = Callable[[Mapping[str, Any], Callable[["Epoch"], None]], ImplicitCFNADE]


def tune(
    data: Interactions,
    out: str | Path,
    *,
    recipe: str = "default",
    changes: Mapping[str, Any] | None = None,
    search: Sequence[str] | None = None,
    n_trials: int = N_TRIALS,
    minutes: float | None = None,
    test_share: float = 0.1,
    split: SplitBy | None = None,
    seed: int = 0,
    resume: bool = False,
    on_epoch: OnTuneEpoch | None = None,
    on_trial: Callable[[Tuned], None] | None = None,
) -> Tuned:
    """Search for settings on a validation part, and write the best to a file.

    The first trial is the recipe, so the outcome is no worse on validation. The file is written
    after every trial, and all trials are kept in OUT.study for `resume`.

    The test part that `evaluate` and `compare` hold out with the same seed and share is left out
    of the search. The same seed, data and number of threads give the same settings, interrupted
    or not, unless `minutes` ends the search.

    Args:
        data: Counts with their ids.
        out: The settings file to write.
        recipe: Settings to start from.
        changes: Settings that differ from the recipe and are not searched.
        search: Settings to search, of `SPACE`; None searches all that are not in `changes`.
        n_trials: Settings to try, including those of earlier runs.
        minutes: Start no trial after this time; None for no limit.
        test_share: Share of each user's items, or of the events, to leave out; 0 if the test part
            is elsewhere.
        split: How the test part is held out and validation is made, see `ProtocolConfig`.
        seed: Of the split, the search and the models.
        resume: Continue the search that is kept beside `out`.
        on_epoch: Called after every epoch with the trial's number.
        on_trial: Called after every trial.

    Raises:
        DataError: If nothing can be held out.
        ConfigError: If a setting is invalid, a search exists already and `resume` is not set, or
            it was made with other data or settings.
        MissingExtraError: If optuna or torch is not installed.
        TrainingError: If no trial could be trained.
    """
    try:
        from optuna import logging as optuna_logging
    except ImportError as error:
        raise MissingExtraError("optuna", "tune", "searching for settings") from error
    out, changes = Path(out), dict(changes or {})
    names = _searched(search, changes)
    facts = {"data_sha256": data.fingerprint()["sha256"], "seed": seed, "test_share": test_share}
    job = {**facts, "recipe": recipe, "fixed": dict(changes), "searched": names}
    by = changes.get("validation_by")
    config = ProtocolConfig(test_share=test_share or 0.1, validation_by=by, split=split, seed=seed)
    part = _validation(data, config, with_test=test_share != 0)
    if (chosen := own_split(data, config)) != "random":  # as in searches before there were others
        facts["split"] = job["split"] = chosen
    base = ImplicitCFNADE().set_params(recipe=recipe, **changes)
    plan = base.plan(part.train)  # refuses invalid settings now
    changes["item_l2"] = plan.training.item_l2  # fixed, or where its search starts
    decided = {**vars(plan.model), **vars(plan.training)}
    usual = {name: decided[name.removeprefix("recipe__")] for name in names}
    deadline = None if minutes is None else time.monotonic() + 60.0 * minutes
    with _interrupted_between_updates() as check, shared_work(), ExitStack() as stack:
        stack.callback(optuna_logging.set_verbosity, optuna_logging.get_verbosity())
        optuna_logging.set_verbosity(optuna_logging.WARNING)  # no line for every trial

        def fit(settings: Mapping[str, Any], on_epoch: Callable[[Epoch], None]) -> ImplicitCFNADE:
            given = {"random_state": seed, "recipe": recipe, **changes, **settings}
            callbacks = Callbacks(on_epoch=on_epoch, on_step=lambda step, n_steps: check())
            model = ImplicitCFNADE().set_params(**given)
            return model.fit(part.train, validation=part.held_out, callbacks=callbacks)

        study = _open_study(out, job, resume=resume)
        tuned = Tuned(out, _finished(study))
        while len(tuned.trials) < n_trials and (deadline is None or time.monotonic() < deadline):
            check()
            _run_trial(study, usual, fit, seed, on_epoch)
            tuned = Tuned(out, _finished(study))
            _write(tuned, SettingsFile(changes, recipe, facts))
            if on_trial is not None:
                on_trial(tuned)
    n_tried = len(tuned.trials)
    if tuned.best is None and n_tried:
        raise TrainingError(f"none of {n_tried} settings could be trained; see the log for why")
    if not out.exists():
        _write(tuned, SettingsFile(changes, recipe, facts))
    return tuned


def in_space(name: str, value: Any) -> bool:
    """Whether the search could choose this value of a setting."""
    space = SPACE[name]
    if isinstance(space, list):
        return value in space
    return isinstance(value, (int, float)) and space["low"] <= value <= space["high"]


def _suggest(trial: Trial, name: str) -> Any:
    space = SPACE[name]
    if isinstance(space, list):
        return trial.suggest_categorical(name, space)
    value = trial.suggest_float(name, **space)
    return float(f"{value:.3g}")  # three digits read well in a file


def _run_trial(
    study: Study, usual: Mapping[str, Any], fit: _Fit, seed: int, notify: OnTuneEpoch | None
) -> None:
    """Choose settings, fit with them, and add the result to the study."""
    import optuna
    from optuna.trial import TrialState

    number = len(_finished(study)) + 1
    # A new sampler for every trial: a resumed search then continues as if never interrupted.
    drawn = np.random.SeedSequence([seed, number]).generate_state(1)
    study.sampler = optuna.samplers.TPESampler(seed=int(drawn[0]), n_startup_trials=N_RANDOM)
    if number == 1 and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.enqueue_trial({n: value for n, value in usual.items() if in_space(n, value)})
    trial = study.ask()
    settings = {  # the first trial is the recipe, even where that is outside the space
        name: value if number == 1 and not in_space(name, value) else _suggest(trial, name)
        for name, value in usual.items()
    }
    trial.set_user_attr("settings", settings)

    def on_epoch(epoch: Epoch) -> None:
        if notify is not None:
            notify(number, epoch)
        if epoch.validation_mpr is not None:
            trial.report(epoch.validation_mpr, epoch.number)
            if trial.should_prune():
                raise optuna.TrialPruned

    state, mpr = TrialState.FAIL, None  # without an error: interrupted, as if it had not begun
    try:
        model = fit(settings, on_epoch)
        if model.validation_mpr_ is None:
            raise TrainingError("no epoch was validated; raise max_epochs or lower validate_every")
        trial.set_user_attr("best_epoch", model.best_epoch_)
        state, mpr = TrialState.COMPLETE, model.validation_mpr_
    except optuna.TrialPruned:
        state = TrialState.PRUNED
    except TrainingError as error:
        trial.set_user_attr("error", str(error))
    finally:
        study.tell(trial, mpr, state)


def _finished(study: Study) -> list[TuneTrial]:
    """The trials that were not interrupted, in order."""
    from optuna.trial import TrialState

    trials: list[TuneTrial] = []
    for trial in study.get_trials(deepcopy=False):
        is_complete = trial.state == TrialState.COMPLETE
        is_pruned = trial.state == TrialState.PRUNED
        if is_complete or is_pruned or "error" in trial.user_attrs:
            trials.append(
                TuneTrial(
                    len(trials) + 1,
                    "complete" if is_complete else "pruned" if is_pruned else "failed",
                    trial.value if is_complete else None,
                    trial.user_attrs["settings"],
                    trial.user_attrs.get("best_epoch"),
                    round(trial.duration.total_seconds(), 3) if trial.duration else 0.0,
                )
            )
    return trials


def _open_study(out: Path, job: dict[str, Any], *, resume: bool) -> Study:
    """The study beside `out`, a new one or the one to resume; another job's is refused."""
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    path = out.with_name(out.name + STUDY)
    if resume and not path.exists():
        raise ConfigError(f"there is no search to resume: no {path}; leave out --resume")
    if not resume and path.exists():
        raise ConfigError(
            f"there is a search in {path} already; continue it with --resume, or delete it"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_line(path)
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(JournalFileBackend(str(path))),
            study_name="cfnade",
            direction="minimize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=WARM_UP),
        )
    except OSError as error:
        raise DataError(f"cannot keep a search in {path}: {error.strerror}") from error
    except (ValueError, KeyError, AssertionError) as error:
        raise ConfigError(f"cannot read the search in {path} ({error}); delete it") from error
    known = study.user_attrs.get("job", job)
    for name, value in job.items():
        if known.get(name) != value:
            raise ConfigError(
                f"the search in {path} is another one: its {name} is {known.get(name)!r}, not "
                f"{value!r}; use the same, or another --out"
            )
    study.set_user_attr("job", job)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)  # of a run that was killed
    return study


def _drop_torn_line(path: Path) -> None:
    """Cut off a half-written last line, past which optuna cannot read."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


@contextmanager
def _interrupted_between_updates() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C take effect between updates, not while the study is written.

    Yields a function that raises KeyboardInterrupt after Ctrl-C. A second Ctrl-C acts at once.
    """
    pressed = threading.Event()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    def on_signal(number: int, frame: object) -> None:
        check()
        pressed.set()

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check  # the caller handles Ctrl-C
        return
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _write(tuned: Tuned, found: SettingsFile) -> None:
    """Write the best settings, if any, and how they were found."""
    best = tuned.best
    if best is None:
        return
    first = tuned.trials[0]
    search = {
        **found.search,
        "n_trials": len(tuned.trials),
        "best_trial": best.number,
        "best_epoch": best.best_epoch,
        "validation_mpr": round(best.mpr or 0.0, 4),
        "recipe_validation_mpr": None if first.mpr is None else round(first.mpr, 4),
    }
    chosen = replace(found, settings={**found.settings, **best.settings}, search=search)
    write_settings(tuned.file, chosen, remarks=REMARKS)


def _searched(search: Sequence[str] | None, changes: Mapping[str, Any]) -> list[str]:
    if search is None:
        return [name for name in SPACE if name not in changes]
    for name in search:
        if name not in SPACE:
            raise ConfigError(f"{name!r} cannot be searched; choose from {', '.join(SPACE)}")
        if name in changes:
            raise ConfigError(f"{name} is both fixed and searched; choose one")
    return list(dict.fromkeys(search))


def _validation(data: Interactions, config: ProtocolConfig, *, with_test: bool) -> Validation:
    """The validation part of a comparison, or one of data whose test part is elsewhere."""
    return Protocol(data, config=config).validation if with_test else validation_alone(data, config)
