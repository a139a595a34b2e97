"""Commands for a saved model: `inspect` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cfnade.cli import console, options
from cfnade.errors import ArtifactError
from cfnade.storage.folder import inspect_artifact, load_artifact
from cfnade.storage.onnx_export import export_onnx

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `fit` saved.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("inspect", epilog="Example: cfnade inspect model --verify")(inspect_command)
    app.command("export", epilog="Example: cfnade export model --onnx model.onnx")(export_command)


def inspect_command(
    model: Model,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare checksums too, which reads all files.")
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Describe a saved model without loading its weights."""
    described = inspect_artifact(model, verify=verify)
    if json_file != "-":
        console.show(_table(model, described))
    if json_file is not None:
        console.write_json(json_file, described)
    broken = [name for name, file in described["files"].items() if not _is_whole(file)]
    if broken:
        state = described["files"][broken[0]]["state"]
        raise ArtifactError(
            f"{model / broken[0]} is not what was saved ({state}); "
            "copy the model again or train it anew"
        )


def export_command(
    model: Model,
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


def _is_whole(file: dict[str, Any]) -> bool:
    return file["state"] in ("ok", "not verified")


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
    table = Table(title=escape(str(model)), show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for part, facts in parts.items():
        table.add_section()
        named = facts if isinstance(facts, dict) else {"": facts}
        for place, (name, value) in enumerate(named.items()):
            cells = (part if place == 0 else "", name, value)
            table.add_row(*(escape(_text(cell)) for cell in cells))
    return table


def _text(value: Any) -> str:
    """As text; characters that a terminal cannot print are escaped."""
    if value is None:
        return "none"
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value.isprintable():
        return value
    return ascii(value) if isinstance(value, str) else json.dumps(value)
