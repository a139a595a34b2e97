"""Commands that train a model: `demo` and `fit`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from cfnade.checkpoints import remove_checkpoints
from cfnade.checks import check_choice
from cfnade.cli import console, options
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError, n_of
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.extend import N_EPOCHS, TrainedItems
from cfnade.model.config import ModelConfig
from cfnade.progress import fit_progress
from cfnade.storage.encoding import WeightType
from cfnade.storage.folder import check_place

commands = typer.Typer()


@options.command(commands, "demo", example="cfnade demo --out runs/demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the report, figures and model.")] = Path(
        "runs/demo"
    ),
    seed: options.Seed = 0,
) -> None:
    """Run the whole job on the embedded purchase log and write a report."""
    from cfnade.compare.demo import run_demo

    with console.job_progress() as on_progress:
        demo = run_demo(out, seed=seed, on_stage=console.say, on_progress=on_progress)
    console.out.print(console.comparison_table(demo.comparison))
    console.out.print(console.sweep_table(demo.sweep))
    for suggestions in demo.suggestions:
        console.out.print(console.suggestions_table(suggestions))
    console.say(
        f"done in {demo.seconds:.0f} s: open {demo.report}; figures in {demo.results}; "
        f"try: cfnade recommend {demo.model} 'Ground coffee=10'"
    )


@options.command(commands, "fit", example="cfnade fit plays.parquet --out model --min-item-users 5")
def fit_command(
    data: options.Data,
    out: Annotated[
        Path | None, typer.Option(help="Folder to save the model in.", show_default=False)
    ] = None,
    *,
    table: options.TableOptions,
    names: options.Names = None,
    name_col: options.NameCol = None,
    items: options.ItemsTables = None,
    recipe: options.Recipe = "default",
    settings_file: options.SettingsFile = None,
    settings: options.Set = None,
    seed: options.Seed = 0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what a fit would do, and stop.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a fit that stopped.")] = False,
    start_from: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Train a saved model on more data.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help=f"With --start-from: passes over DATA, {N_EPOCHS} by default.", min=0),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="all|new",
            help="With --start-from: train all weights (default) or only new items.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Store weights as float32, or in half the space: float16 or int16.")
    ] = "float32",
) -> None:
    """Train a model on all of DATA and save it.

    A part is held out to find the readout and to calibrate the probabilities. A checkpoint is kept
    beside the model (OUT.checkpoint) while it trains, for --resume.

    With --start-from, DATA is more data for a saved model: it is trained for a few more epochs, and
    new items are added to it.
    """
    if plan:
        model = _new_model(recipe, settings_file, settings, seed)
        for line in model.plan(options.read_named(table, data, names, name_col)).lines():
            typer.echo(line)
        return
    if out is None:
        raise ConfigError("--out is missing: where should the model be saved?")
    out = out.resolve()
    check_place(out)
    check_choice("--dtype", dtype, get_args(WeightType))
    if start_from is not None:
        changes = {"random_state": seed, **options.parse_settings(settings)}
        _check_changes(
            changes,
            recipe=recipe,
            settings_file=settings_file,
            resume=resume,
            names_events=(table.event_weights, table.target_event) != (None, None),
        )
        model = ImplicitCFNADE.load(start_from).set_params(**changes)
    elif epochs is not None or train is not None:
        raise ConfigError(
            "--epochs and --train need --start-from; --set max_epochs=N limits a first fit"
        )
    else:
        model = _new_model(recipe, settings_file, settings, seed)
    checkpoint = out.with_name(out.name + ".checkpoint")
    with fit_progress() as callbacks:
        interactions = options.read_named(table, data, names, name_col)
        if start_from is None:
            with console.resumable(checkpoint):
                model.fit(
                    interactions,
                    items=items,
                    callbacks=callbacks,
                    checkpoint=checkpoint,
                    resume=resume,
                )
        else:
            trained = cast(TrainedItems, train or "all")
            n_epochs = N_EPOCHS if epochs is None else epochs
            model.partial_fit(
                interactions, items=items, n_epochs=n_epochs, train=trained, callbacks=callbacks
            )
    facts = {"name": options.dataset_name(data), **interactions.describe()}
    model.save(out, dtype=cast(WeightType, dtype), data=facts)
    if start_from is None:
        remove_checkpoints(checkpoint)
    typer.echo(f"{_outcome(model, interactions)}; saved to {out}")


def _new_model(
    recipe: str, settings_file: Path | None, settings: list[str] | None, seed: int
) -> ImplicitCFNADE:
    start = options.starting_from(recipe, settings_file)
    changes = {"random_state": seed, **start.all_settings, **options.parse_settings(settings)}
    return ImplicitCFNADE().set_params(**changes)


def _outcome(model: ImplicitCFNADE, data: Interactions) -> str:
    """The outcome of a fit, or of training on more data, in words."""
    users, pairs = n_of(data.n_users, "user"), n_of(data.n_pairs, "pair")
    if model.partial_fits_:
        n_new = model.partial_fits_[-1]["n_new_items"]
        return (
            f"{users}, {pairs}, {n_of(n_new, 'new item')}: trained for "
            f"{n_of(len(model.epochs_), 'epoch')} more, {n_of(model.n_features_in_, 'item')} in all"
        )
    mpr = "" if model.validation_mpr_ is None else f", validation MPR {model.validation_mpr_:.2f} %"
    epochs = n_of(model.best_epoch_, "epoch")
    n_more = model.n_features_in_ - data.n_items
    more = f" and {n_more:,} more of the items table" if n_more else ""
    weights = ",".join(f"{kind}={w:g}" for kind, w in (model.event_weights_ or {}).items())
    events = f", weights of events {weights}" if weights else ""
    return (
        f"{users}, {n_of(data.n_items, 'item')}{more}, {pairs}: trained for {epochs}{mpr}{events}"
    )


def _check_changes(
    changes: dict[str, Any],
    *,
    recipe: str,
    settings_file: Path | None,
    resume: bool,
    names_events: bool,
) -> None:
    """Refuse what cannot change in a trained model."""
    if settings_file is not None or recipe != "default":
        option = "--recipe" if settings_file is None else "--settings"
        raise ConfigError(f"{option} does not go with --start-from: the model keeps its settings")
    if names_events:
        raise ConfigError(
            "--event-weights and --target-event do not go with --start-from: the model has its own"
        )
    if resume:
        raise ConfigError("--resume does not go with --start-from; use one of them")
    fixed = {field.name for field in fields(ModelConfig)}
    for name in changes:
        if name.removeprefix("recipe__") in fixed:
            raise ConfigError(
                f"{name} cannot change in a trained model; train a new one without --start-from"
            )
