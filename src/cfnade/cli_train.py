"""Commands that train a model: `demo` and `fit`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from cfnade import cli_options as options
from cfnade import console
from cfnade.cli_options import Reading
from cfnade.data.describe import describe
from cfnade.model.artifact import check_place
from cfnade.recommender import ImplicitCFNADE


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("demo", epilog="Example: cfnade demo --out runs/demo")(demo_command)
    app.command("fit", epilog="Example: cfnade fit plays.parquet --out model --min-item-users 5")(
        fit_command
    )


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the report, figures and model.")] = Path(
        "runs/demo"
    ),
    seed: options.Seed = 0,
) -> None:
    """Run the whole job on the embedded purchase log and write a report."""
    from cfnade.demo import run_demo

    with console.job_progress() as on_progress:
        demo = run_demo(out, seed=seed, on_stage=console.say, on_progress=on_progress)
    console.show(console.comparison_table(demo.comparison))
    console.show(console.sweep_table(demo.sweep))
    for suggestions in demo.suggestions:
        console.show(console.suggestions_table(suggestions))
    console.say(
        f"done in {demo.seconds:.0f} s: open {demo.report}; figures in {demo.results}; "
        f"try: cfnade recommend {demo.model} 'Ground coffee=10'"
    )


def fit_command(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    min_user_items: options.MinUserItems = 0,
    min_item_users: options.MinItemUsers = 0,
    names: options.Names = None,
    preset: options.Preset = "default",
    settings: options.Set = None,
    seed: options.Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it stopped.")] = False,
) -> None:
    """Train a model on all of DATA and save it.

    A part is held out for early stopping; then the model is trained again on everything. While
    it trains, a checkpoint is kept beside the model (OUT.checkpoint), for --resume.
    """
    out = out.resolve()
    check_place(out)
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users, names)
    interactions = reading.read(data)
    model = ImplicitCFNADE.from_preset(
        preset, **{"random_state": seed, **options.parse_settings(settings)}
    )
    checkpoint = out.with_name(out.name + ".checkpoint")
    try:
        with console.training_progress(model.max_epochs) as callbacks:
            model.fit(interactions, callbacks=callbacks, checkpoint=checkpoint, resume=resume)
    except KeyboardInterrupt:
        if checkpoint.exists():
            console.say(f"stopped; go on with the same command and --resume ({checkpoint} is kept)")
        raise
    model.save(out, data={"name": options.dataset_name(data), **describe(interactions)})
    shutil.rmtree(checkpoint, ignore_errors=True)
    mpr = "" if model.validation_mpr_ is None else f", validation MPR {model.validation_mpr_:.2f} %"
    console.out.print(
        f"{interactions.n_users:,} users, {interactions.n_items:,} items, "
        f"{interactions.n_pairs:,} pairs: "
        f"trained for {model.best_epoch_} epochs{mpr}; saved to {out}",
        markup=False,
        highlight=False,
    )
