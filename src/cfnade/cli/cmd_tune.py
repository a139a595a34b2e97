"""The command that searches for settings: `tune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Column, Table

from cfnade.cli import console, options
from cfnade.compare.tune import N_TRIALS, SPACE, STUDY, OnTuneEpoch, Tuned, tune

if TYPE_CHECKING:
    from cfnade.data.event_splits import SplitBy
    from cfnade.model.training import Epoch

SHOWN = 5
"""Trials in the table."""


commands = typer.Typer()


@options.command(
    commands, "tune", example="cfnade tune plays.parquet --out settings.toml --minutes 30"
)
def tune_command(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Settings file to write, such as settings.toml.")],
    *,
    table: options.TableOptions,
    recipe: options.Recipe = "default",
    settings: options.Set = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated settings to search; by default all of these not fixed by --set: "
            f"{', '.join(SPACE)}."
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Settings to try, including those of a resumed search.", min=1)
    ] = N_TRIALS,
    minutes: Annotated[
        float | None, typer.Option(help="Start no trial after this time.", min=0)
    ] = None,
    test_share: Annotated[
        float,
        typer.Option(
            help="Share of each user's items, or of the events, kept for the test; 0 if the test "
            "part is elsewhere."
        ),
    ] = 0.1,
    split: options.Split = None,
    seed: options.Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted search.")
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Search for settings on a validation part of DATA, for `fit --settings`.

    The first trial is the recipe. Trials that fall behind are pruned. The best settings so far
    are always in OUT, and all trials in OUT.study, for --resume. The test part that `evaluate`
    and `compare` hold out with this seed is never used.
    """
    names = None
    if search is not None:
        names = [name.strip().replace("-", "_") for name in search.split(",") if name.strip()]
    try:
        with _progress(trials) as (on_epoch, on_trial):
            tuned = tune(
                table.read(data),
                out,
                recipe=recipe,
                changes=options.parse_settings(settings),
                search=names,
                n_trials=trials,
                minutes=minutes,
                test_share=test_share,
                split=cast("SplitBy | None", split),
                seed=seed,
                resume=resume,
                on_epoch=on_epoch,
                on_trial=on_trial,
            )
    except KeyboardInterrupt:
        kept = f"the best settings so far are in {out}; " if out.exists() else ""
        console.say(f"stopped; {kept}continue with the same command and --resume ({out}{STUDY})")
        raise
    outcome = {"dataset": options.dataset_name(data), **tuned.to_json()}
    console.report(_table(tuned), outcome, json_file)
    if tuned.best is not None:
        console.say(f"wrote {out}; use it with: cfnade fit ... --settings {out}")


@contextmanager
def _progress(n_trials: int) -> Iterator[tuple[OnTuneEpoch, Callable[[Tuned], None]]]:
    """Callbacks after each epoch and trial that show the progress."""
    with console.progress_bar() as progress:
        task = progress.add_task("reading", total=n_trials)
        best: list[str] = []

        def on_epoch(number: int, epoch: Epoch) -> None:
            doing = f"trial {number}, epoch {epoch.number}{''.join(best[-1:])}"
            progress.update(task, description=doing, completed=number - 1)

        def on_trial(tuned: Tuned) -> None:
            if tuned.best is not None:
                best.append(f", best validation MPR {tuned.best.mpr:.2f} %")
            progress.update(task, completed=len(tuned.trials))

        yield on_epoch, on_trial


def _table(tuned: Tuned) -> Table:
    """The best trials, and the first, which is the recipe."""
    n_pruned = sum(trial.state == "pruned" for trial in tuned.trials)
    n_failed = sum(trial.state == "failed" for trial in tuned.trials)
    failed = f", {n_failed} could not be trained" if n_failed else ""
    complete = [trial for trial in tuned.trials if trial.mpr is not None]
    shown = sorted(complete, key=lambda trial: trial.mpr or 0.0)[:SHOWN]
    shown += [trial for trial in complete if trial.number == 1 and trial not in shown]
    table = Table(
        "trial",  # one column each: there are more settings than trials shown
        *(Column(str(trial.number), justify="right") for trial in shown),
        title=f"{len(tuned.trials)} settings tried, {n_pruned} pruned{failed}",
        caption=f"The best {SHOWN} and trial 1, the recipe. Validation MPR, lower is better. The "
        "best of many trials is optimistic: cfnade evaluate judges it on the test part.",
        caption_justify="left",
    )
    table.add_row("MPR %", *(f"{trial.mpr:.3f}" for trial in shown))
    for name in shown[0].settings if shown else ():
        values = (trial.settings[name] for trial in shown)
        table.add_row(name, *(f"{v:g}" if isinstance(v, float) else str(v) for v in values))
    table.add_row("epochs", *(str(trial.best_epoch) for trial in shown))
    table.add_row("seconds", *(f"{trial.seconds:.0f}" for trial in shown))
    return table
