"""Commands for a saved model: `inspect` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from cfnade.cli import console, options
from cfnade.cli.model_card import model_card
from cfnade.errors import ArtifactError, ConfigError
from cfnade.storage.folder import inspect_artifact, load_artifact
from cfnade.storage.onnx_export import export_onnx

commands = typer.Typer()


@options.command(commands, "inspect", example="cfnade inspect model --verify")
def inspect_command(
    model: options.Model,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare checksums too, which reads all files.")
    ] = False,
    card: Annotated[
        bool, typer.Option("--card", help="Print a model card in Markdown instead.")
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Describe a saved model without loading its weights."""
    if card and json_file is not None:
        raise ConfigError("--card and --json do not go together; use one of them")
    described = inspect_artifact(model, verify=verify)
    if card:
        typer.echo(model_card(model.resolve().name, described), nl=False)
    else:
        console.report(_table(model, described), described, json_file)
    for name, file in described["files"].items():
        if file["state"] not in ("ok", "not verified"):
            raise ArtifactError(
                f"{model / name} is not what was saved ({file['state']}); "
                "copy the model again or train it anew"
            )


@options.command(commands, "export", example="cfnade export model --onnx model.onnx")
def export_command(
    model: options.Model,
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="ONNX file to write.")],
) -> None:
    """Export a model to ONNX, from the counts of a history to scores.

    Inputs are `items` (columns of the history's items, int64) and `counts` (float64); the output
    is `scores` of all items. Needs the extra `onnx`.
    """
    artifact = load_artifact(model)
    export_onnx(artifact, onnx)
    console.say(
        f"wrote {onnx}: {len(artifact.catalogue):,} items, {onnx.stat().st_size / 1e6:,.1f} MB"
    )


def _table(model: Path, described: dict[str, Any]) -> Table:
    weights = {
        name: f"{tensor['dtype']}, {' x '.join(f'{n:,}' for n in tensor['shape'])}"
        for name, tensor in (described["tensors"] or {}).items()
    }
    files = {
        name: f"{file['bytes']:,} bytes, {file['state']}, sha256 {file['sha256']}"
        for name, file in described["files"].items()
    }
    own = ("format", "cfnade_version", "total_bytes")
    parts = {
        "": {name: described[name] for name in own},
        **{k: v for k, v in described.items() if k not in (*own, "tensors", "files")},
        "weights": weights,
        "files": files,
    }
    columns = [Column(overflow="fold") for _ in range(3)]
    table = Table(*columns, title=console.escape(str(model)), show_header=False)
    for part, facts in parts.items():
        table.add_section()
        named = facts if isinstance(facts, dict) else {"": facts}
        for place, (name, value) in enumerate(named.items()):
            cells = (part if place == 0 else "", name, value)
            table.add_row(*(console.escape(_text(cell)) for cell in cells))
    return table


def _text(value: Any) -> str:
    """As text; characters that a terminal cannot print are escaped."""
    if value is None:
        return "none"
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return value if value.isprintable() else ascii(value)
    return json.dumps(value)
