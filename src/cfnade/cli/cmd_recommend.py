"""Commands that ask a saved model: `recommend`, `similar` and `explain`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from cfnade.answer.explain import Effect
from cfnade.answer.recommendation_file import write_recommendations
from cfnade.cli import console, options
from cfnade.cli.options import Reading
from cfnade.data.catalogue import Catalogue, History
from cfnade.errors import ConfigError
from cfnade.estimator import ImplicitCFNADE
from cfnade.model.inputs import full_dislike

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `fit` saved.")]
Entries = Annotated[
    list[str] | None,
    typer.Argument(metavar="ITEM[=COUNT]", help="The history: items with their counts."),
]
Table = Annotated[str | None, typer.Option("--data", help="Take the history from this table.")]
User = Annotated[str | None, typer.Option(help="Of this user of the table.")]
Dislike = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ITEM[=WEIGHT]", help="Known to be disliked, weighing as a like; repeatable."
    ),
]
N = Annotated[int, typer.Option("-n", min=1, help="Items to find.")]
Exclude = Annotated[
    list[str] | None, typer.Option(metavar="ITEM", help="Never give this; repeatable.")
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="ITEM", help="Choose from these alone; repeatable.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(
        "recommend", epilog="Example: cfnade recommend model show-1=12 film-9 -n 5 --explain"
    )(recommend_command)
    app.command("similar", epilog="Example: cfnade similar model show-1")(similar_command)
    app.command("explain", epilog="Example: cfnade explain model show-7 show-1=12 film-9")(
        explain_command
    )


def recommend_command(
    model: Model,
    history: Entries = None,
    data: Table = None,
    user: User = None,
    out: Annotated[
        Path | None, typer.Option(help="Write to this Parquet file, for all users of the table.")
    ] = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    n: N = 10,
    dislike: Dislike = None,
    exclude: Exclude = None,
    only: Only = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Recommend what is in the history as well.")
    ] = False,
    with_reasons: Annotated[
        bool, typer.Option("--explain", help="Tell which items of the history speak for each.")
    ] = False,
    with_probability: Annotated[
        bool,
        typer.Option("--probability", help="Tell the calibrated probability of each as well."),
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Recommend for a history written out, for a user of a table, or for all of its users."""
    asked = Asked(model)
    reading = Reading(user_col, item_col, count_col, events)
    filters: dict[str, Any] = {
        "filter_already_liked_items": not include_seen,
        "filter_items": asked.items(exclude),
        "items": None if only is None else asked.items(only),
    }
    if out is not None:
        others = (history, user is not None, dislike, with_reasons, with_probability)
        if data is None or any(others):
            raise ConfigError("--out is for all users of a table: give it --data TABLE alone")
        _for_all(asked, reading, data, out, n, filters, json_file)
        return
    if with_probability and dislike:
        raise ConfigError("--probability was never fitted with dislikes: leave one of them out")
    known = asked.history(history, data, user, reading)
    disliked = asked.disliked(dislike)
    items, scores = asked.recommender.recommend_for(known, n, disliked=disliked, **filters)
    found = [
        {**asked.item(item), "probability": float(score)}
        for item, score in zip(items.tolist(), scores, strict=True)
    ]
    if with_probability:
        told = asked.recommender.probability(known, items.tolist())
        for entry, value in zip(found, told.tolist(), strict=True):
            entry["calibrated"] = None if math.isnan(value) else value
    if not found:
        seen = "" if include_seen else "; what is in the history is left out (--include-seen)"
        console.say(f"there is nothing to recommend{seen}")
    for entry in found if with_reasons else []:
        explanation = asked.recommender.explain(known, entry["item"], disliked=disliked)
        entry["because"] = [asked.effect(effect) for effect in explanation.because()]
    console.report(console.recommendation_table(found), {"recommendations": found}, json_file)


def similar_command(
    model: Model,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id of an item.")],
    n: N = 10,
    exclude: Exclude = None,
    only: Only = None,
    json_file: options.Json = None,
) -> None:
    """Find the items that are recommended to the same people as ITEM."""
    asked = Asked(model)
    (itemid,) = asked.items([item])
    ids, scores = asked.recommender.similar_items(
        itemid,
        n,
        filter_items=[itemid, *asked.items(exclude)],
        items=None if only is None else asked.items(only),
    )
    found = [
        {**asked.item(other), "similarity": float(score)}
        for other, score in zip(ids.tolist(), scores, strict=True)
    ]
    one = asked.item(itemid)
    console.report(console.similar_table(one, found), {**one, "similar": found}, json_file)


def explain_command(
    model: Model,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id of the item to explain.")],
    history: Entries = None,
    data: Table = None,
    user: User = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    count_col: options.CountCol = None,
    events: options.Events = None,
    dislike: Dislike = None,
    json_file: options.Json = None,
) -> None:
    """Tell what each item of a history does for ITEM: exactly, by leaving it out."""
    asked = Asked(model)
    known = asked.history(history, data, user, Reading(user_col, item_col, count_col, events))
    (itemid,) = asked.items([item])
    explanation = asked.recommender.explain(known, itemid, disliked=asked.disliked(dislike))
    explained = {
        **asked.item(explanation.item),
        "logit": explanation.logit,
        "probability": explanation.probability,
        "effects": [asked.effect(effect) for effect in explanation.effects],
    }
    console.report(console.explanation_table(explained), explained, json_file)


class Asked:
    """A saved model with its items as they are written on the command line."""

    def __init__(self, folder: Path) -> None:
        self.recommender = ImplicitCFNADE.load(folder)
        self.catalogue: Catalogue = self.recommender.catalogue_
        self.ids = {str(item): item for item in self.catalogue.ids.tolist()}

    def items(self, written: list[str] | None) -> list[Any]:
        """Items by their text; one that is not known stays as written."""
        return [self.ids.get(item, item) for item in written or []]

    def item(self, item: Any) -> dict[str, Any]:
        """An item as JSON has it."""
        return {"item": item, "name": self.catalogue.label(item)}

    def effect(self, effect: Effect) -> dict[str, Any]:
        """An effect as JSON has it."""
        return {
            **self.item(effect.item),
            "liked": effect.is_liked,
            "logit": effect.logit,
            "probability": effect.probability,
        }

    def history(
        self, written: list[str] | None, data: str | None, user: str | None, reading: Reading
    ) -> History:
        """The history, written out or from a table.

        A table may hold items that the model does not know, which is told; who writes an item
        out means it, and gets an error later.

        Raises:
            ConfigError: If it is given in neither way, or in both.
        """
        if (user is None) != (data is None):
            raise ConfigError("--user and --data go together: whose history, and from which table")
        if bool(written) == (data is not None):
            raise ConfigError("give a history by ITEM=COUNT ..., or by --data TABLE --user ID")
        if data is not None and user is not None:
            one = options.only_user(reading.read(data), user)
            row: History = self.catalogue.align(one, unknown="warn")
            return row
        return options.parse_weights(written or [], self.ids, 1.0, "ITEM or ITEM=COUNT")

    def disliked(self, written: list[str] | None) -> dict[Any, float] | None:
        """Dislikes as written out."""
        if not written:
            return None
        missing = full_dislike(self.recommender.scorer_.network.config)
        return options.parse_weights(written, self.ids, missing, "ITEM or ITEM=WEIGHT")


def _for_all(
    asked: Asked,
    reading: Reading,
    data: str,
    out: Path,
    n: int,
    filters: dict[str, Any],
    json_file: str | None,
) -> None:
    """Write recommendations for all users of a table."""
    if out.suffix != ".parquet":
        raise ConfigError(f"--out takes a .parquet file, got {out.name!r}")
    table = reading.read(data)
    histories = asked.catalogue.align(table, unknown="warn")
    with console.progress_bar() as progress:
        task = progress.add_task("recommending", total=table.n_users)
        n_rows = write_recommendations(
            asked.recommender,
            histories,
            table.user_ids,
            out,
            n,
            progress=lambda done: progress.update(task, completed=done),
            **filters,
        )
    facts = {"file": str(out), "n_users": table.n_users, "n_recommendations": n_rows}
    console.report(console.facts_table("recommendations", facts), facts, json_file)
