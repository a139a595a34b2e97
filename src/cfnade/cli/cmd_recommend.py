"""Commands that query a saved model: `recommend`, `similar` and `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cfnade.answer.all_users import write_recommendations
from cfnade.answer.user_table import UserTable
from cfnade.cli import console, options
from cfnade.cli.dial_options import DialOptions
from cfnade.cli.options import ColumnOptions, Model
from cfnade.data.catalogue import Catalogue, History
from cfnade.data.interactions import Interactions
from cfnade.data.item_lookup import ItemLookup
from cfnade.errors import ConfigError
from cfnade.estimator import ImplicitCFNADE

Entries = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ITEM[=[EVENT:]COUNT[@WHEN]]",
        help="The history: ids or names of items with counts, perhaps with kinds of events or "
        "times: shoes=view:3@2024-05-31.",
    ),
]
Table = Annotated[str | None, typer.Option("--data", help="Table to take the history from.")]
User = Annotated[str | None, typer.Option(help="User of the table.")]
Dislike = Annotated[
    list[str] | None, typer.Option(metavar="ITEM[=WEIGHT]", help="A disliked item; repeatable.")
]
N = Annotated[int, typer.Option("-n", min=1, help="Maximum number of items.")]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ITEM|COLUMN=VALUE",
        help="Item to leave out, or a category, such as genre=Horror; repeatable.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ITEM|COLUMN=VALUE",
        help="Item to choose from, or a category, such as category=film; repeatable.",
    ),
]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Recommend items of the history as well.")
]

commands = typer.Typer()


@options.command(
    commands, "recommend", example="cfnade recommend model show-1=12 film-9 -n 5 --explain"
)
def recommend_command(
    model: Model,
    history: Entries = None,
    data: Table = None,
    user: User = None,
    out: Annotated[
        Path | None, typer.Option(help="Parquet file to write, for all users of the table.")
    ] = None,
    *,
    columns: ColumnOptions,
    n: N = 10,
    dislike: Dislike = None,
    exclude: Exclude = None,
    only: Only = None,
    include_seen: IncludeSeen = False,
    dials: DialOptions,
    with_reasons: Annotated[
        bool,
        typer.Option("--explain", help="Show the items of the history that speak most for each."),
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Recommend for a history, for a user of a table, or for all of its users."""
    asked = ModelOnDisk(model)
    filters = asked.filters(exclude, only, include_seen=include_seen)
    filters["dials"] = dials.read(asked.lookup)
    if out is not None:
        if data is None or history or user is not None or dislike or with_reasons:
            raise ConfigError("--out is for all users of a table: use it with --data TABLE alone")
        if out.suffix != ".parquet":
            raise ConfigError(f"--out takes a .parquet file, got {out.name!r}")
        facts = asked.write_all(columns.read(data), out, n, filters)
        console.report(console.facts_table("recommendations", facts), facts, json_file)
        return
    known, owned = asked.history(history, data, user, columns)
    disliked = asked.disliked(dislike)
    if owned is not None and not include_seen:
        filters["filter_items"] += owned
        filters["filter_already_liked_items"] = False
    query = asked.answers.query(known, n, disliked=disliked, explain=with_reasons, **filters)
    (answer,) = asked.answers.recommend([query])
    found = answer.to_json(asked.catalogue.entry)
    if not found["recommendations"]:
        seen = "" if include_seen else "; items of the history are left out (see --include-seen)"
        console.say(f"there is nothing to recommend{seen}")
    console.report(console.recommendation_table(found["recommendations"]), found, json_file)


@options.command(commands, "similar", example="cfnade similar model show-1")
def similar_command(
    model: Model,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id or name of an item.")],
    n: N = 10,
    exclude: Exclude = None,
    only: Only = None,
    json_file: options.Json = None,
) -> None:
    """Find the items that are recommended to the same people as ITEM."""
    asked = ModelOnDisk(model)
    (itemid,) = asked.items([item])
    left_out = [itemid, *asked.excluded(exclude)]
    chosen = None if only is None else asked.chosen(only)
    ids, similarities = asked.model.similar_items(itemid, n, filter_items=left_out, items=chosen)
    column_of = asked.catalogue.column_of
    found = [
        {**asked.catalogue.entry(column_of[other]), "similarity": float(similarity)}
        for other, similarity in zip(ids.tolist(), similarities, strict=True)
    ]
    one = asked.catalogue.entry(column_of[itemid])
    console.report(console.similar_table(one, found), {**one, "similar": found}, json_file)


@options.command(commands, "explain", example="cfnade explain model show-7 show-1=12 film-9")
def explain_command(
    model: Model,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id or name of the item to explain.")],
    history: Entries = None,
    data: Table = None,
    user: User = None,
    *,
    columns: ColumnOptions,
    dislike: Dislike = None,
    json_file: options.Json = None,
) -> None:
    """Show the exact effect of each item of a history on ITEM."""
    asked = ModelOnDisk(model)
    known, _ = asked.history(history, data, user, columns)
    (column,) = asked.catalogue.columns(asked.items([item]))
    query = asked.answers.query(known, disliked=asked.disliked(dislike))
    effects = asked.answers.effects(query, np.array([column]))
    explained = effects.explained(0, column, asked.catalogue.entry)
    console.report(console.explanation_table(explained), explained, json_file)


class ModelOnDisk:
    """A saved model, with items as they are written on the command line."""

    def __init__(self, folder: Path) -> None:
        self.model = ImplicitCFNADE.load(folder)
        self.answers = self.model.answers_
        self.catalogue: Catalogue = self.model.catalogue_
        n_watchers = self.model.scorer_.relative_rating.n_watchers
        self.lookup = ItemLookup(self.catalogue, n_watchers)

    def items(self, written: list[str] | None) -> list[Any]:
        """Ids of items by id or name; raises `DataError` for an unknown one."""
        return [self.lookup.item(item) for item in written or []]

    def filters(
        self, exclude: list[str] | None, only: list[str] | None, *, include_seen: bool
    ) -> dict[str, Any]:
        """Keywords of `recommend` that say which items to choose from."""
        return {
            "filter_already_liked_items": not include_seen,
            "filter_items": self.excluded(exclude),
            "items": None if only is None else self.chosen(only),
        }

    def excluded(self, written: list[str] | None) -> list[Any]:
        """Items to leave out: those written, and all of the categories."""
        items, categories = self._categories(written)
        for column, values in categories.items():
            found = self.catalogue.with_features({column: values})
            items += self.catalogue.ids[found].tolist()
        return items

    def chosen(self, written: list[str]) -> list[Any]:
        """Items to choose from: those written, or those with a value in each named column."""
        items, categories = self._categories(written)
        if not categories:
            return items
        if items:
            raise ConfigError(
                f"--only takes items or categories, not both; got {items[0]!r} and "
                f"{next(iter(categories))!r}"
            )
        found: list[Any] = self.catalogue.ids[self.catalogue.with_features(categories)].tolist()
        return found

    def _categories(self, written: list[str] | None) -> tuple[list[Any], dict[str, list[str]]]:
        """Items, and values of categories by column; an id may contain an equals sign."""
        items: list[Any] = []
        categories: dict[str, list[str]] = {}
        for text in written or []:
            column, equals, value = text.partition("=")
            if equals and text not in self.lookup:
                categories.setdefault(column, []).append(value)
            else:
                items += self.items([text])
        return items, categories

    def history(
        self, written: list[str] | None, data: str | None, user: str | None, columns: ColumnOptions
    ) -> tuple[History, list[Any] | None]:
        """The history, from the command line or else from a table.

        Unknown items of a table are logged; one on the command line is an error later. With a kind
        of event to predict, the items of the table that have it are returned too: only they are
        left out.
        """
        if (user is None) != (data is None):
            raise ConfigError("--user and --data go together; give both or neither")
        if bool(written) == (data is not None):
            raise ConfigError("give a history by ITEM=COUNT ..., or by --data TABLE --user ID")
        if data is not None and user is not None:
            one = UserTable.of(self.answers, options.only_user(columns.read(data), user), "warn")
            owned = one.owned
            left_out = None if owned is None else self.catalogue.ids[owned.indices].tolist()
            return one.histories, left_out
        return options.parse_history(written or [], self.lookup), None

    def disliked(self, written: list[str] | None) -> dict[Any, float] | None:
        """Confidences of disliked items from the command line."""
        if not written:
            return None
        weight = self.answers.dislike_weight(len(set(written)))
        return options.parse_weights(written, self.lookup, weight, "ITEM or ITEM=WEIGHT")

    def write_all(
        self, table: Interactions, out: Path, n: int, filters: dict[str, Any]
    ) -> dict[str, Any]:
        """Recommend for all users of a table, and write a file; returns what was written."""
        users = UserTable.of(self.answers, table, "warn")
        with console.progress_bar() as bar:
            task = bar.add_task("recommending", total=table.n_users)

            def on_done(done: int) -> None:
                bar.update(task, completed=done)

            n_rows = write_recommendations(
                self.answers,
                users.histories,
                users.user_ids,
                out,
                n,
                progress=on_done,
                owned=users.owned,
                **filters,
            )
        return {"file": str(out), "n_users": table.n_users, "n_recommendations": n_rows}
