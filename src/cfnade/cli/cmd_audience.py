"""The command that finds users for an item: `recommend-users`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cfnade.answer.audience import Audience, find_audiences, write_audiences
from cfnade.answer.explain import as_numbers
from cfnade.answer.user_table import UserTable
from cfnade.cli import console, options
from cfnade.cli.cmd_recommend import ModelOnDisk
from cfnade.cli.options import ColumnOptions, Model
from cfnade.errors import ConfigError

commands = typer.Typer()


@options.command(
    commands,
    "recommend-users",
    example="cfnade recommend-users model show-1 --data plays.parquet -n 100 --out users.parquet",
)
def recommend_users_command(
    model: Model,
    items: Annotated[
        list[str], typer.Argument(metavar="ITEM...", help="Ids or names of the items.")
    ],
    data: Annotated[str, typer.Option(help="Table of the users' histories.")],
    out: Annotated[
        Path | None, typer.Option(help="Parquet file to write instead of showing the users.")
    ] = None,
    *,
    columns: ColumnOptions,
    n: Annotated[int, typer.Option("-n", min=1, help="Maximum number of users.")] = 10,
    include_owners: Annotated[
        bool, typer.Option("--include-owners", help="Keep users who have the item already.")
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Find the users of a table to recommend ITEM to: those with its highest score."""
    if out is not None and out.suffix != ".parquet":
        raise ConfigError(f"--out takes a .parquet file, got {out.name!r}")
    asked = ModelOnDisk(model)
    places = asked.catalogue.columns(asked.items(items))
    table = UserTable.of(asked.answers, columns.read(data), "warn")
    found = find_audiences(
        asked.answers,
        table.histories,
        places,
        n,
        include_owners=include_owners,
        owned=table.owned,
    )
    if out is not None:
        ids = asked.catalogue.ids[places]
        n_rows = write_audiences(out, ids, table.user_ids, found)
        facts = {"file": str(out), "n_items": len(places), "n_rows": n_rows}
        console.report(console.facts_table("users", facts), facts, json_file)
        return
    described = [
        {**asked.catalogue.entry(place), "users": _users(audience, table)}
        for place, audience in zip(places, found, strict=True)
    ]
    console.report(console.audience_table(described), {"items": described}, json_file)


def _users(audience: Audience, table: UserTable) -> list[dict[str, Any]]:
    """Users, scores and probabilities for JSON (docs/json.md)."""
    ids = np.asarray(table.user_ids)[audience.users].tolist()
    values = zip(as_numbers(audience.scores), as_numbers(audience.probabilities), strict=True)
    return [
        {"user": user, "score": score, "probability": probability}
        for user, (score, probability) in zip(ids, values, strict=True)
    ]
