"""The command `serve`: a saved model over HTTP, with a page to try it."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from cfnade.cli import console, options
from cfnade.errors import ConfigError, MissingExtraError

KEY_VARIABLE = "CFNADE_API_KEY"


commands = typer.Typer()


@options.command(commands, "serve", example="cfnade serve model --port 8000 --workers 2")
def serve_command(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1)] = 1,
    api_key_file: Annotated[
        Path | None, typer.Option(help=f"File with the API key; or set {KEY_VARIABLE}.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Origin of web pages that may send requests; repeatable."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that requests may be sent to; repeatable."),
    ] = None,
    watch: Annotated[
        float, typer.Option(help="Seconds between checks for a new model; 0 waits for SIGHUP.")
    ] = 1.0,
    max_n: Annotated[int, typer.Option(help="Maximum items in an answer.", min=1)] = 100,
    max_history: Annotated[int, typer.Option(help="Maximum items in a history.", min=1)] = 1_000,
    max_batch: Annotated[int, typer.Option(help="Maximum histories in a request.", min=1)] = 64,
    max_body: Annotated[int, typer.Option(help="Maximum bytes of a request.", min=1)] = 1 << 20,
    max_connections: Annotated[
        int, typer.Option(help="Maximum connections of a worker from one address.", min=1)
    ] = 256,
    together: Annotated[int, typer.Option(help="Maximum histories in one pass.", min=1)] = 32,
) -> None:
    """Serve recommendations over HTTP, with a page at / to try them.

    Requests are neither stored nor logged. A new model in the same folder replaces the old one
    while the service runs; a damaged one is refused. Needs the extra `serve`, but no torch.
    """
    try:
        for package in ("httptools", "prometheus_client", "pydantic", "starlette", "uvicorn"):
            import_module(package)
    except ImportError as error:
        raise MissingExtraError(str(error.name), "serve", "serving a model") from error
    from cfnade.serve.run import run
    from cfnade.serve.service_settings import ConnectionLimits, RequestLimits, ServeSettings

    if workers > 1 and sys.platform == "win32":
        raise ConfigError("Windows cannot share a socket between workers; use --workers 1")
    settings = ServeSettings(
        model=model,
        host=host,
        port=port,
        n_workers=workers,
        api_key=_api_key(api_key_file),
        allowed_origins=tuple(allow_origin or ()),
        allowed_hosts=tuple(allow_host or ()),
        watch_seconds=watch,
        most_together=together,
        connections=ConnectionLimits(per_address=max_connections),
        limits=RequestLimits(body_bytes=max_body, history=max_history, n=max_n, batch=max_batch),
    )
    run(settings, console.say)


def _api_key(file: Path | None) -> str | None:
    """Read the key from a file or the environment; an option would show in process lists."""
    if file is None:
        key = os.environ.get(KEY_VARIABLE)
        if key is not None and not key.strip():  # a secret that was not filled in
            raise ConfigError(f"{KEY_VARIABLE} is empty; set it to a key, or unset it for no key")
        return key
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the API key in {file}: {error}") from error
