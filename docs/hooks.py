"""What MkDocs cannot do by itself for this documentation; `mkdocs.yml` names this file."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DECISIONS = "decisions/"
COMMANDS = "<!-- commands -->"
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Put the decision records into the navigation, in the order of their numbers."""
    records = sorted(path.name for path in (DOCS / DECISIONS).glob("*.md"))
    for section in config.nav:
        for place in next(iter(section.values())) if isinstance(section, dict) else []:
            if isinstance(place, dict) and place.get("Decisions") == DECISIONS:
                place["Decisions"] = [DECISIONS + name for name in records]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write the help of all commands where it goes, and unlink what is not in the documentation.

    A link to a file of the source is good in the repository; here its text is left.
    """
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, command_reference())
    folder = (DOCS / page.file.src_uri).parent
    return LINK.sub(lambda link: _without_source(link, folder), markdown)


def command_reference() -> str:
    """A heading and the help of every command, as the command line prints it."""
    from cfnade.cli.main import app, run

    os.environ["COLUMNS"] = "100"
    names = [[command.name] for command in app.registered_commands]
    for group in app.registered_groups:
        names += [
            [group.name, command.name] for command in group.typer_instance.registered_commands
        ]
    sections = []
    for words in names:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = run([*words, "--help"])
        if code != 0:
            raise RuntimeError(f"cfnade {' '.join(words)} --help gives {code}")
        sections.append(f"## {' '.join(words)}\n\n```text\n{out.getvalue().strip()}\n```\n")
    return "\n".join(sections)


def _without_source(link: re.Match[str], folder: Path) -> str:
    text, target = link[1], link[2]
    path = (folder / target).resolve()
    if "://" in target or path.is_relative_to(DOCS):
        return link[0]
    if not path.exists():
        raise FileNotFoundError(f"a link leads to {target}, which is not there")
    return text if text.startswith("`") else f"`{text}`"
