"""The command for the first ten minutes: `quickstart`."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from cfnade.cli import console, options
from cfnade.compare.quickstart import quick_start
from cfnade.data.ingest import find_name_column
from cfnade.data.interactions import Interactions
from cfnade.progress import fit_progress
from cfnade.storage.folder import check_place

commands = typer.Typer()


@options.command(commands, "quickstart", example="cfnade quickstart plays.csv")
def quickstart_command(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Folder for the model and the report.")] = Path(
        "quickstart"
    ),
    *,
    table: options.TableOptions,
    names: options.Names = None,
    name_col: options.NameCol = None,
    items: options.ItemsTables = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Describe DATA, fit a model with the usual settings, and recommend for three people.

    Writes OUT/model and OUT/report.html, and shows what to type next. Names of the items are taken
    from DATA if a column there has them.
    """
    check_place((out / "model").resolve())
    with fit_progress() as callbacks:
        interactions = _read(table, data, names, name_col)
        found = quick_start(
            interactions,
            out,
            source=data,
            options=_as_written(table),
            items=items,
            seed=seed,
            callbacks=callbacks,
        )
    summary = console.facts_table(options.dataset_name(data), {**found.data, **found.fit})
    console.report(summary, found.to_json(), json_file)
    if json_file == "-":
        return
    for sample in found.samples:
        typer.echo(console.visible(f"\n{sample.title}:"))
        console.out.print(console.recommendation_table(sample.recommendations))
    typer.echo(f"\n{found.about_samples}\n{found.headline}\nreport: {found.report}\nnext:")
    width = max(len(command) for command, _ in found.next_steps)
    for command, purpose in found.next_steps:
        typer.echo(console.visible(f"  {command:{width}}  # {purpose}"))


def _read(
    table: options.TableOptions, data: str, names: str | None, name_col: str | None
) -> Interactions:
    """The table, with the names that are asked for, or else those of a column that has some."""
    is_asked = names is not None or name_col is not None
    if not is_asked:
        name_col = find_name_column(data, item_col=table.item_col)
    interactions = options.read_named(table, data, names, name_col)
    if interactions.item_names is None:
        console.say(
            "items are shown by id: --name-col takes a column of names in DATA, --names a table"
        )
    elif not is_asked:
        console.say(f"names of items from column {name_col!r}")
    return interactions


def _as_written(table: options.TableOptions) -> str:
    """The options that say how the table is read, as they were written."""
    words: list[str] = []
    for field in fields(table):
        value = getattr(table, field.name)
        if value == field.default:
            continue
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):  # of these only `events` may be given as False
            words.append(option if value else "--counts")
        else:
            words += [option, str(value)]
    return "".join(f" {shlex.quote(word)}" for word in words)
