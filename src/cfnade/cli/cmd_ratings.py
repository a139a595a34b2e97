"""Commands about ratings: `ratings compare`, `ratings fit` and `ratings predict`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cfnade.checkpoints import remove_checkpoints
from cfnade.cli import console, options
from cfnade.compare.rating_comparison import MODELS, compare_ratings, rating_plot
from cfnade.data.catalogue import Catalogue
from cfnade.data.item_lookup import ItemLookup
from cfnade.data.rating_table import RatingTable, read_ratings
from cfnade.errors import ConfigError
from cfnade.fit.rating_estimator import CFNADE
from cfnade.progress import fit_progress
from cfnade.storage.folder import check_place

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Predict ratings, such as stars."
)


@dataclass(frozen=True)
class RatingColumns:
    """Which columns of a table hold what, and the scale of its ratings."""

    user_col: Annotated[str | None, typer.Option(help="Column of user ids.")] = None
    item_col: Annotated[str | None, typer.Option(help="Column of item ids.")] = None
    rating_col: Annotated[str | None, typer.Option(help="Column of ratings.")] = None
    time_col: Annotated[str | None, typer.Option(help="Column of times; `none` has none.")] = None
    scale: Annotated[
        str | None, typer.Option(help="All values of a rating, such as 1,2,3,4,5.")
    ] = None
    drop_missing_ids: options.DropMissingIds = False

    def read(self, data: str) -> RatingTable:
        """Read the ratings of a table."""
        try:
            scale = None if self.scale is None else [float(v) for v in self.scale.split(",")]
        except ValueError:
            raise ConfigError(f"--scale takes numbers such as 1,2,3, got {self.scale!r}") from None
        return read_ratings(data, **{**vars(self), "scale": scale})


@options.command(commands, "fit", example="cfnade ratings fit ratings.csv --out model")
def fit_command(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    *,
    columns: RatingColumns,
    settings: options.Set = None,
    seed: options.Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a fit that stopped.")] = False,
) -> None:
    """Train CF-NADE on the ratings of DATA and save it."""
    out = out.resolve()
    check_place(out)
    model = CFNADE(random_state=seed).set_params(**options.parse_settings(settings))
    checkpoint = out.with_name(out.name + ".checkpoint")
    with fit_progress() as callbacks:
        table = columns.read(data)
        with console.resumable(checkpoint):
            model.fit(table, callbacks=callbacks, checkpoint=checkpoint, resume=resume)
    model.save(out)
    remove_checkpoints(checkpoint)
    rmse = model.validation_rmse_
    shown = "" if rmse is None else f", validation RMSE {rmse:.4f}"
    typer.echo(f"{table.levels.nnz:,} ratings: trained{shown}; saved to {out}")


@options.command(commands, "predict", example="cfnade ratings predict model film-1=5 film-7=2")
def predict_command(
    model: options.Model,
    ratings: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM=RATING]...", help="Anyone's ratings.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="A user of the data, instead of ratings.")
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="Comma-separated items to predict; by default the best.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Maximum number of items.")] = 10,
    json_file: options.Json = None,
) -> None:
    """Predict ratings for a user of the data, or for anyone by their ratings."""
    if (user is None) == (not ratings):
        raise ConfigError("give ratings as ITEM=RATING, or --user")
    fitted = CFNADE.load(model)
    known = fitted.ratings_
    of_items = ItemLookup(Catalogue(known.item_ids))
    of_users = {str(each): each for each in known.user_ids.tolist()}
    given = options.parse_weights(ratings or [], of_items, math.nan, "ITEM=RATING")
    if len(given) < len(ratings or []) or any(map(math.isnan, given.values())):
        raise ConfigError("give each item once, with its rating, such as film-1=5")
    who: Any = given if user is None else of_users.get(user, user)
    if items is None:
        ids = fitted.recommend(who, n)[0].tolist()
    else:
        ids = [of_items.item(item) for item in items.split(",")]
    scale, entries = [f"{value:g}" for value in known.scale], []
    table = Table("item", "rating", *(f"P({value})" for value in scale))
    expected, probabilities = fitted.predict(who, ids), fitted.predict_proba(who, ids)
    for item, rating, p in zip(ids, expected.tolist(), probabilities.tolist(), strict=True):
        by_value = dict(zip(scale, p, strict=True))
        entries.append({"item": item, "rating": rating, "probabilities": by_value})
        table.add_row(console.escape(str(item)), f"{rating:.2f}", *(f"{each:.0%}" for each in p))
    console.report(table, {"items": entries}, json_file)


@options.command(commands, "compare", example="cfnade ratings compare ratings.csv --seeds 5")
def compare_command(
    data: options.Data,
    models: Annotated[str, typer.Option(help="Comma-separated names.")] = ",".join(MODELS),
    *,
    columns: RatingColumns,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random 90/10 splits.")] = 1,
    seed: options.Seed = 0,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try per model and split.")] = 6,
    settings: options.Set = None,
    keep: Annotated[
        Path | None, typer.Option(help="Folder of finished fits, which are not run again.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Figure to draw: .svg or .png.")] = None,
    json_file: options.Json = None,
) -> None:
    """Compare models of ratings by RMSE and MAE. Each is tuned on validation, then tested."""
    options.check_figure(figure)
    names = [name.strip() for name in models.split(",") if name.strip()]
    if unknown := [name for name in names if name not in MODELS]:
        raise ConfigError(f"there is no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    comparison = compare_ratings(
        columns.read(data),
        names,
        range(seed, seed + seeds),
        dataset=options.dataset_name(data),
        max_trials=trials,
        settings=options.parse_settings(settings),
        keep=keep,
        on_cell=lambda model, number: console.say(f"{model}, split {number}"),
    )
    over = f"over {seeds} splits" if seeds > 1 else "over users"
    title = f"{comparison.dataset}: test ratings, 95 % interval {over}"
    table = Table("model", "RMSE", "MAE", "log loss", "ECE", "fit s", title=title)
    for row in comparison.summary():
        known = ("" if row[name] is None else f"{row[name]:.4f}" for name in ("log_loss", "ece"))
        low, high = row["rmse_interval"]
        rmse = f"{row['rmse']:.4f} ({low:.4f}-{high:.4f})"
        table.add_row(row["model"], rmse, f"{row['mae']:.4f}", *known, f"{row['fit_seconds']:.0f}")
    console.report(table, comparison.to_json(), json_file)
    if figure is not None:
        from cfnade.compare.plots import save_figure

        save_figure(rating_plot(comparison), figure)
