"""Commands about data: `data describe` and `data simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfnade.cli import console, options
from cfnade.data.simulation.service_files import write_service
from cfnade.data.simulation.simulate import SIZES, ServiceConfig, SimulatedService
from cfnade.metrics.oracle import limits
from cfnade.progress import progress_bar

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Describe a table, or simulate one."
)


@options.command(commands, "describe", example="cfnade data describe plays.parquet")
def describe_command(
    data: options.Data, *, table: options.TableOptions, json_file: options.Json = None
) -> None:
    """Show how a table is read: users, items, pairs and counts."""
    facts = table.read(data).describe()
    console.report(console.facts_table(options.dataset_name(data), facts), facts, json_file)


@options.command(
    commands, "simulate", example="cfnade data simulate --size small --out runs/service"
)
def simulate_command(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    size: Annotated[
        str, typer.Option(help=f"One of {', '.join(SIZES)}.", metavar="SIZE")
    ] = "paper",
    users: Annotated[int | None, typer.Option(help="Number of users; SIZE's by default.")] = None,
    items: Annotated[int | None, typer.Option(help="Number of items; SIZE's by default.")] = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Simulate a streaming service with known tastes, and measure the best possible MPR.

    Writes OUT/interactions (Parquet), OUT/items.parquet and OUT/service.json.
    """
    changes = {"n_users": users, "n_items": items}
    config = ServiceConfig.sized(size, **{k: v for k, v in changes.items() if v is not None})
    with progress_bar() as progress:
        task = progress.add_task("simulating users", total=config.n_users)
        summary = write_service(
            SimulatedService(config, seed=seed),
            out,
            limits=limits,
            progress=lambda done: progress.update(task, completed=done),
        )
    console.report(console.facts_table(str(out), summary), summary, json_file)
