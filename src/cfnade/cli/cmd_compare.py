"""Commands that judge models on held-out items: `evaluate`, `compare` and `sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfnade.cli import console, options
from cfnade.cli.options import Reading
from cfnade.compare.comparison import DEFAULT_MODELS, MAX_TRIALS, compare
from cfnade.compare.protocol import ProtocolConfig
from cfnade.compare.registry import CONTENDERS, Registry, cfnade, contender, named_contenders
from cfnade.compare.sweep import DEFAULT_ALPHAS, SWEPT_MODELS, sweep
from cfnade.data.summary import fingerprint
from cfnade.errors import ConfigError
from cfnade.scale import als

MODELS: Registry = {**CONTENDERS, als.NAME: als.imf_spark}
"""The models that can be named; only the command line knows of the one on Spark."""

ALPHAS = ",".join(f"{alpha:g}" for alpha in DEFAULT_ALPHAS)
SWEPT = f"cfnade, cfnade-paper, imf, {als.NAME}"


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("evaluate", epilog="Example: cfnade evaluate plays.csv --set alpha=100")(
        evaluate_command
    )
    app.command(
        "compare",
        epilog="Example: cfnade compare plays.parquet --models cfnade,imf,popularity "
        "--json table.json",
    )(compare_command)
    app.command(
        "sweep", epilog="Example: cfnade sweep plays.csv --alphas 1,10,100 --figure mpr.svg"
    )(sweep_command)


def evaluate_command(
    data: options.Data,
    test: options.Test = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    min_user_items: options.MinUserItems = 0,
    min_item_users: options.MinItemUsers = 0,
    test_share: options.TestShare = 0.1,
    candidates: options.CandidatesOption = "unseen",
    ratings_from: options.RatingsFromOption = "train",
    validation_by: options.ValidationBy = None,
    recipe: options.RecipeOption = "default",
    settings_file: options.SettingsFile = None,
    settings: options.Set = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Judge one CF-NADE model on held-out items, with chance and popularity for comparison.

    Settings are used as given. The number of epochs is found on a validation part.
    """
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    start = options.starting_from(recipe, settings_file)
    changes = {**start.settings, **options.parse_settings(settings)}
    validation_by = validation_by or changes.get("validation_by")  # as it was tuned
    interactions = reading.read(data)
    if test is None:
        sha256 = fingerprint(interactions)["sha256"]
        start.check_test_is_unseen(sha256, seed=seed, test_share=test_share)
    with console.job_progress() as on_progress:
        comparison = compare(
            interactions,
            {
                "random": contender("random", seed),
                "popularity": contender("popularity", seed),
                "cfnade": cfnade(seed, start.recipe, {}, changes),
            },
            dataset=options.dataset_name(data),
            test=reading.read_test(test),
            config=_protocol(test_share, seed, candidates, ratings_from, validation_by),
            on_progress=on_progress,
        )
    console.show_comparison(comparison, json_file)


def compare_command(
    data: options.Data,
    test: options.Test = None,
    models: Annotated[
        str,
        typer.Option(help=f"Comma-separated names, or all: {', '.join(MODELS)}."),
    ] = ",".join(DEFAULT_MODELS),
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    min_user_items: options.MinUserItems = 0,
    min_item_users: options.MinItemUsers = 0,
    test_share: options.TestShare = 0.1,
    candidates: options.CandidatesOption = "unseen",
    ratings_from: options.RatingsFromOption = "train",
    validation_by: options.ValidationBy = None,
    trials: options.Trials = MAX_TRIALS,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Compare models on one split. Each is tuned on validation, then tested once."""
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    contenders = named_contenders(models, seed, MODELS)
    with console.job_progress() as on_progress:
        comparison = compare(
            reading.read(data),
            contenders,
            dataset=options.dataset_name(data),
            test=reading.read_test(test),
            config=_protocol(test_share, seed, candidates, ratings_from, validation_by),
            max_trials=trials,
            on_progress=on_progress,
        )
    console.show_comparison(comparison, json_file)


def sweep_command(
    data: options.Data,
    test: options.Test = None,
    alphas: Annotated[str, typer.Option(help="Comma-separated numbers.")] = ALPHAS,
    models: Annotated[
        str, typer.Option(help=f"Comma-separated names of models with an alpha, such as {SWEPT}.")
    ] = ",".join(SWEPT_MODELS),
    figure: Annotated[
        Path | None, typer.Option(help="Where to draw the figure: .svg or .png.")
    ] = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    min_user_items: options.MinUserItems = 0,
    min_item_users: options.MinItemUsers = 0,
    test_share: options.TestShare = 0.1,
    candidates: options.CandidatesOption = "unseen",
    ratings_from: options.RatingsFromOption = "train",
    validation_by: options.ValidationBy = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Draw the paper's Figure 2: test MPR of CF-NADE and IMF against alpha."""
    if figure is not None and figure.suffix not in (".svg", ".png"):
        raise ConfigError(f"--figure must end in .svg or .png, got {figure.name!r}")
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    with console.job_progress() as on_progress:
        swept = sweep(
            reading.read(data),
            options.parse_numbers(alphas, "--alphas"),
            models=named_contenders(models, seed, MODELS),
            dataset=options.dataset_name(data),
            test=reading.read_test(test),
            config=_protocol(test_share, seed, candidates, ratings_from, validation_by),
            on_progress=on_progress,
        )
    console.report(console.sweep_table(swept), swept.to_json(), json_file)
    if figure is not None:
        from cfnade.compare.plots import save_figure, sweep_plot

        save_figure(sweep_plot(swept), figure)
        console.say(f"drew {figure}")


def _protocol(
    test_share: float, seed: int, candidates: str, ratings_from: str, validation_by: str | None
) -> ProtocolConfig:
    return ProtocolConfig(
        test_share=test_share,
        seed=seed,
        candidates=candidates,  # type: ignore[arg-type]  # checked there
        ratings_from=ratings_from,  # type: ignore[arg-type]  # checked there
        validation_by=validation_by,  # type: ignore[arg-type]  # checked there
    )
