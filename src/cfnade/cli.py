"""The command `cfnade`: one thin command per capability."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cfnade import cli_model, console
from cfnade import cli_options as options
from cfnade.cli_options import Reading
from cfnade.data.describe import describe
from cfnade.data.service_config import SIZES, ServiceConfig
from cfnade.data.service_files import write_service
from cfnade.data.simulate import SimulatedService
from cfnade.errors import ArtifactError, CfnadeError, ConfigError, DataError
from cfnade.evaluation.compare import DEFAULT_MODELS, MAX_TRIALS, compare
from cfnade.evaluation.contenders import CONTENDERS, CFNADEContender, contender
from cfnade.evaluation.protocol import ProtocolConfig
from cfnade.evaluation.sweep import DEFAULT_ALPHAS, sweep
from cfnade.model.artifact import check_place
from cfnade.recommender import ImplicitCFNADE
from cfnade.threads import limited_threads

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Implicit CF-NADE: recommendations from watch, play and purchase counts.",
)
data_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at data, or make some."
)
app.add_typer(data_app, name="data")
cli_model.register(app)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell more on the way.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(message)s", force=True
    )
    if show_version:
        typer.echo(f"cfnade {version('cfnade')}")
        raise typer.Exit


@app.command("demo", epilog="Example: cfnade demo --out runs/demo")
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
        f"try: cfnade recommend {demo.model} --history 'Ground coffee=10'"
    )


@app.command("fit", epilog="Example: cfnade fit plays.parquet --out model --min-item-users 5")
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


@app.command("evaluate", epilog="Example: cfnade evaluate plays.csv --set alpha=100")
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
    preset: options.Preset = "default",
    settings: options.Set = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Judge one CF-NADE model on held-out items, with chance and popularity beside it.

    The settings are taken as given; the number of epochs is found on a validation part.
    """
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    with console.job_progress() as on_progress:
        comparison = compare(
            reading.read(data),
            {
                "random": contender("random", seed),
                "popularity": contender("popularity", seed),
                "cfnade": CFNADEContender(seed, preset, {}, options.parse_settings(settings)),
            },
            dataset=options.dataset_name(data),
            test=reading.read_test(test),
            config=_protocol(test_share, seed, candidates, ratings_from),
            on_progress=on_progress,
        )
    _show(console.comparison_table(comparison), comparison.to_json(), json_file)


@app.command(
    "compare",
    epilog="Example: cfnade compare plays.parquet --models cfnade,imf,popularity --json table.json",
)
def compare_command(
    data: options.Data,
    test: options.Test = None,
    models: Annotated[
        str, typer.Option(help=f"Names with commas between: {', '.join(CONTENDERS)}.")
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
    trials: options.Trials = MAX_TRIALS,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Compare models on one split: each tuned on validation, then tested once."""
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    names = [name.strip() for name in models.split(",") if name.strip()]
    with console.job_progress() as on_progress:
        comparison = compare(
            reading.read(data),
            {name: contender(name, seed) for name in names},
            dataset=options.dataset_name(data),
            test=reading.read_test(test),
            config=_protocol(test_share, seed, candidates, ratings_from),
            max_trials=trials,
            on_progress=on_progress,
        )
    _show(console.comparison_table(comparison), comparison.to_json(), json_file)


@app.command("sweep", epilog="Example: cfnade sweep plays.csv --alphas 1,10,100 --figure mpr.svg")
def sweep_command(
    data: options.Data,
    test: options.Test = None,
    alphas: Annotated[str, typer.Option(help="Numbers with commas between.")] = ",".join(
        f"{alpha:g}" for alpha in DEFAULT_ALPHAS
    ),
    figure: Annotated[
        Path | None, typer.Option(help="Draw the figure there: .svg or .png.")
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
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Draw the paper's Figure 2: test MPR of CF-NADE and IMF against alpha."""
    if figure is not None and figure.suffix not in (".svg", ".png"):
        raise ConfigError(f"a figure is an .svg or a .png, got {figure.name!r}")
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    with console.job_progress() as on_progress:
        swept = sweep(
            reading.read(data),
            options.parse_numbers(alphas, "--alphas"),
            dataset=options.dataset_name(data),
            test=reading.read_test(test),
            config=_protocol(test_share, seed, candidates, ratings_from),
            on_progress=on_progress,
        )
    _show(console.sweep_table(swept), swept.to_json(), json_file)
    if figure is not None:
        from cfnade.evaluation.plot_style import save_figure
        from cfnade.evaluation.plots import sweep_plot

        save_figure(sweep_plot(swept), figure)
        console.say(f"drew {figure}")


@app.command(
    "recommend",
    epilog="Example: cfnade recommend model --history show-1=12 --history film-9 -n 5",
)
def recommend_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `fit` saved.")],
    history: Annotated[
        list[str] | None,
        typer.Option(metavar="ITEM[=COUNT]", help="An item of the history; repeatable."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Take the history from this table.")] = None,
    user: Annotated[str | None, typer.Option(help="Of this user of the table.")] = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Items to recommend.")] = 10,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="ITEM", help="Never recommend this; repeatable.")
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Recommend what is in the history as well.")
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Recommend for a history, written out or taken from a table."""
    recommender = ImplicitCFNADE.load(model)
    catalogue = recommender.catalogue_
    ids = {str(item): item for item in catalogue.ids.tolist()}
    if (user is None) != (data is None):
        raise ConfigError("--user and --data go together: whose history, and from which table")
    if (history is None) == (user is None):
        raise ConfigError("give a history by --history ITEM=COUNT, or by --data TABLE --user ID")
    if user is not None and data is not None:
        reading = Reading(user_col, item_col, count_col, events)
        history_of = options.history_of_user(reading.read(data), user)
        counts = {ids.get(str(item), item): count for item, count in history_of.items()}
        if counts and not any(item in catalogue.column_of for item in counts):
            raise DataError(f"the model knows none of the {len(counts)} items of user {user!r}")
    else:
        counts = options.parse_history(history or [], ids)
    items, scores = recommender.recommend_for(
        counts,
        n,
        filter_already_liked_items=not include_seen,
        filter_items=[ids.get(item, item) for item in exclude or []],
        unknown="raise" if user is None else "warn",
    )
    found = [
        {"item": item, "name": catalogue.label(item), "probability": float(score)}
        for item, score in zip(items.tolist(), scores, strict=True)
    ]
    _show(console.recommendation_table(found), {"recommendations": found}, json_file)


@data_app.command("describe", epilog="Example: cfnade data describe plays.parquet")
def describe_command(
    data: options.Data,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    min_user_items: options.MinUserItems = 0,
    min_item_users: options.MinItemUsers = 0,
    json_file: options.Json = None,
) -> None:
    """Tell how a table is read: users, items, pairs and counts."""
    reading = Reading(user_col, item_col, count_col, events, min_user_items, min_item_users)
    facts = describe(reading.read(data))
    _show(console.facts_table(options.dataset_name(data), facts), facts, json_file)


@data_app.command(
    "simulate", epilog="Example: cfnade data simulate --size small --out runs/service"
)
def simulate_command(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    size: Annotated[
        str, typer.Option(help=f"One of {', '.join(SIZES)}.", metavar="SIZE")
    ] = "paper",
    users: Annotated[int | None, typer.Option(help="Instead of the size's.")] = None,
    items: Annotated[int | None, typer.Option(help="Instead of the size's.")] = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Simulate a streaming service with known tastes, and tell the oracle's MPR.

    Writes OUT/interactions (Parquet), OUT/items.parquet and OUT/service.json.
    """
    changes = {"n_users": users, "n_items": items}
    config = ServiceConfig.sized(size, **{k: v for k, v in changes.items() if v is not None})
    with console.progress_bar() as progress:
        task = progress.add_task("simulating users", total=config.n_users)
        summary = write_service(
            SimulatedService(config, seed=seed),
            out,
            progress=lambda done: progress.update(task, completed=done),
        )
    _show(console.facts_table(str(out), summary), summary, json_file)


def main() -> None:
    """Run the command line: 0 done, 2 wrong use or bad input, 130 Ctrl-C, 1 anything else."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code; whatever goes wrong ends in one line."""
    try:
        with limited_threads():
            return int(app(arguments, standalone_mode=False, prog_name="cfnade") or 0)
    except (DataError, ConfigError, ArtifactError) as error:
        return _fail(str(error), 2)
    except CfnadeError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except typer.Exit as stop:
        return stop.exit_code
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a place that cannot be read or written, or is full
        code = 1 if error.errno == errno.ENOSPC else 2
        return _fail(f"{error.strerror or error}: {error.filename or 'no file'}", code)
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option, as typer finds it
            return _fail(f"{error.format_message()} See cfnade --help", 2)
        if os.environ.get("CFNADE_DEBUG"):
            raise
        reason = f"{type(error).__name__}: {error}"
        return _fail(f"{reason} (set CFNADE_DEBUG=1 to see where)", 1)


def _fail(message: str, code: int) -> int:
    console.say(f"cfnade: {' '.join(message.split())}")
    return code


def _show(table: Table, value: dict[str, Any], json_file: str | None) -> None:
    """A table on standard output, unless JSON goes there; and JSON where it was asked for."""
    if json_file != "-":
        console.show(table)
    if json_file is not None:
        console.write_json(json_file, value)


def _protocol(test_share: float, seed: int, candidates: str, ratings_from: str) -> ProtocolConfig:
    return ProtocolConfig(
        test_share=test_share,
        seed=seed,
        candidates=candidates,  # type: ignore[arg-type]  # checked there
        ratings_from=ratings_from,  # type: ignore[arg-type]  # checked there
    )
