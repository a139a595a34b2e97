"""The command `cfnade`: its groups of commands, exit codes and one-line errors."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from functools import cache
from importlib.metadata import version
from typing import Annotated

import typer

from cfnade.cli import (
    cmd_audience,
    cmd_compare,
    cmd_data,
    cmd_fit,
    cmd_model,
    cmd_quickstart,
    cmd_ratings,
    cmd_recommend,
    cmd_scale,
    cmd_serve,
    cmd_tune,
    console,
)
from cfnade.errors import ArtifactError, CfnadeError, ConfigError, DataError
from cfnade.threads import limited_threads

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Implicit CF-NADE: recommendations from watch, play and purchase counts.",
)
groups = (
    cmd_quickstart,
    cmd_fit,
    cmd_tune,
    cmd_compare,
    cmd_recommend,
    cmd_audience,
    cmd_serve,
    cmd_model,
)
for module in groups:
    app.registered_commands += module.commands.registered_commands
app.add_typer(cmd_data.commands, name="data")
app.add_typer(cmd_ratings.commands, name="ratings")
app.add_typer(cmd_scale.commands, name="scale")


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show more log output.")] = False,
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_LineFormatter())
    logging.getLogger("cfnade.progress").setLevel(logging.INFO)  # a line per stage, if no bar
    if show_version:
        typer.echo(f"cfnade {version('cfnade')}")
        raise typer.Exit


def main() -> None:
    """Run the command line: 0 done, 2 wrong use or bad input, 130 Ctrl-C, 1 anything else."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; any error is printed in one line."""
    try:
        with limited_threads():
            code = int(app(arguments, standalone_mode=False, prog_name="cfnade") or 0)
        sys.stdout.flush()  # notice here that a reader has ended, not when Python exits
        return code if code != 130 else _fail("interrupted", code)  # typer returns it for Ctrl-C
    except (DataError, ConfigError, ArtifactError) as error:
        return _fail(str(error), 2)
    except CfnadeError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except typer.Exit as stop:
        return stop.exit_code
    except (BrokenPipeError, SystemExit) as error:  # a reader such as `head` has ended
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise  # by somebody else than typer, which exits if a reader has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that cannot be read or written, or a full disk
        code = 1 if error.errno == errno.ENOSPC else 2
        return _fail(f"{error.strerror or error}: {error.filename or 'no file'}", code)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of typer
            where = getattr(getattr(error, "ctx", None), "command_path", "cfnade")
            return _fail(f"{error.format_message().rstrip('. ')}; see {where} --help", 2)
        if os.environ.get("CFNADE_DEBUG"):
            raise
        reason = f"{type(error).__name__}: {error}"
        return _fail(f"{reason} (set CFNADE_DEBUG=1 to see where)", 1)


class _LineFormatter(logging.Formatter):
    """Lines of the log, made visible, with options in place of Python arguments."""

    def format(self, record: logging.LogRecord) -> str:
        """The message of a record."""
        return console.visible(_with_options(super().format(record)))


def _fail(message: str, code: int) -> int:
    console.say(f"cfnade: {_with_options(' '.join(message.split()))}")
    return code


def _with_options(message: str) -> str:
    """The message with options in place of Python arguments."""
    options = _options()
    return re.sub(rf"(?<![\w-])({'|'.join(options)})\b", lambda found: options[found[1]], message)


@cache
def _options() -> dict[str, str]:
    """Options by the Python argument that a message may name."""
    return {"events=True": "--events", "drop_missing_ids=True": "--drop-missing-ids"} | {
        parameter.name: parameter.opts[0]
        for command in typer.main.get_group(app).commands.values()
        for parameter in command.params
        if parameter.name and "_" in parameter.name and parameter.opts[0].startswith("--")
    }
