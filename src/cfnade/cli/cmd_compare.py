"""Commands that judge models on held-out items: `evaluate`, `compare` and `sweep`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cfnade.cli import console, options
from cfnade.compare.comparison import BUDGET, DEFAULT_MODELS, MAX_TRIALS, compare
from cfnade.compare.parts import own_split
from cfnade.compare.registry import CONTENDERS, Registry, cfnade, contender, named_contenders
from cfnade.compare.sweep import DEFAULT_ALPHAS, SWEPT_MODELS, sweep
from cfnade.errors import ConfigError
from cfnade.scale import als

MODELS: Registry = {**CONTENDERS, als.NAME: als.imf_spark}
"""The models that can be named; only the command line knows of the one on Spark."""

ALPHAS = ",".join(f"{alpha:g}" for alpha in DEFAULT_ALPHAS)
SWEPT = f"cfnade, cfnade-paper, imf, {als.NAME}"

commands = typer.Typer()


@options.command(commands, "evaluate", example="cfnade evaluate plays.csv --set alpha=100")
def evaluate_command(
    data: options.Data,
    test: options.Test = None,
    items: options.ItemsTables = None,
    *,
    table: options.TableOptions,
    protocol: options.ProtocolOptions,
    recipe: options.Recipe = "default",
    settings_file: options.SettingsFile = None,
    settings: options.Set = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Judge one CF-NADE model on held-out items, with chance and popularity for comparison.

    Settings are used as given. The readout is found on a validation part.
    """
    start = options.starting_from(recipe, settings_file)
    changes = {**start.settings, **options.parse_settings(settings)}
    validation_by = protocol.validation_by or changes.get("validation_by")  # as it was tuned
    interactions = table.read(data)
    config = replace(protocol, validation_by=validation_by).config(seed)
    if test is None:
        sha256, split = interactions.fingerprint()["sha256"], own_split(interactions, config)
        start.check_test_is_unseen(sha256, seed=seed, test_share=protocol.test_share, split=split)
    with console.job_progress() as on_progress:
        comparison = compare(
            interactions,
            {
                "random": contender("random", seed),
                "popularity": contender("popularity", seed),
                "cfnade": cfnade(seed, start.recipe, {}, changes),
            },
            dataset=options.dataset_name(data),
            test=table.read_test(test),
            items=items,
            config=config,
            on_progress=on_progress,
        )
    console.show_comparison(comparison, json_file)


@options.command(
    commands,
    "compare",
    example="cfnade compare plays.parquet --models cfnade,imf,popularity --json table.json",
)
def compare_command(
    data: options.Data,
    test: options.Test = None,
    items: options.ItemsTables = None,
    models: Annotated[
        str, typer.Option(help=f"Comma-separated names, or all: {', '.join(MODELS)}.")
    ] = ",".join(DEFAULT_MODELS),
    *,
    table: options.TableOptions,
    protocol: options.ProtocolOptions,
    budget: Annotated[
        str, typer.Option(help="Time for each model's search: 90s, 2m or none.", metavar="TIME")
    ] = f"{BUDGET:g}s",
    trials: Annotated[
        int, typer.Option(help="Maximum number of settings to try per model.", min=1)
    ] = MAX_TRIALS,
    beyond_accuracy: Annotated[
        bool,
        typer.Option(
            "--beyond-accuracy",
            help="Measure coverage, novelty and diversity of the lists as well.",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore results of an interrupted run.")
    ] = False,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Compare models on one split. Each is tuned on validation, then tested once.

    After Ctrl-C the same command continues with the models that are not done.
    """
    contenders = named_contenders(models, seed, MODELS)
    seconds = options.parse_seconds(budget)
    try:
        with console.job_progress() as on_progress:
            comparison = compare(
                table.read(data),
                contenders,
                dataset=options.dataset_name(data),
                test=table.read_test(test),
                items=items,
                config=protocol.config(seed),
                budget=seconds,
                max_trials=trials,
                beyond_accuracy=beyond_accuracy,
                keep=kept_models(),
                fresh=fresh,
                on_progress=on_progress,
            )
    except KeyboardInterrupt:
        console.say("stopped; the same command continues with the models that are not done")
        raise
    console.show_comparison(comparison, json_file)


def kept_models() -> Path:
    """The folder of finished models of interrupted comparisons."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cfnade" / "compare"


@options.command(
    commands, "sweep", example="cfnade sweep plays.csv --alphas 1,10,100 --figure mpr.svg"
)
def sweep_command(
    data: options.Data,
    test: options.Test = None,
    items: options.ItemsTables = None,
    alphas: Annotated[str, typer.Option(help="Comma-separated numbers.")] = ALPHAS,
    models: Annotated[
        str, typer.Option(help=f"Comma-separated names of models with an alpha, such as {SWEPT}.")
    ] = ",".join(SWEPT_MODELS),
    figure: Annotated[
        Path | None, typer.Option(help="Where to draw the figure: .svg or .png.")
    ] = None,
    *,
    table: options.TableOptions,
    protocol: options.ProtocolOptions,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Draw the paper's Figure 2: test MPR of CF-NADE and IMF against alpha."""
    options.check_figure(figure)
    try:
        numbers = [float(part) for part in alphas.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(f"--alphas takes numbers separated by commas, got {alphas!r}") from None
    with console.job_progress() as on_progress:
        swept = sweep(
            table.read(data),
            numbers,
            models=named_contenders(models, seed, MODELS),
            dataset=options.dataset_name(data),
            test=table.read_test(test),
            items=items,
            config=protocol.config(seed),
            on_progress=on_progress,
        )
    console.report(console.sweep_table(swept), swept.to_json(), json_file)
    if figure is not None:
        from cfnade.compare.plots import save_figure, sweep_plot

        save_figure(sweep_plot(swept), figure)
        console.say(f"drew {figure}")
