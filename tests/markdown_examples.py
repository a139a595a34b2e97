"""Runs what a Markdown page shows: Python blocks in one scope, `cfnade` lines of shell blocks.

A `text` block right after a block that was run shows what it printed. It must match in all but
numbers and the order of lines, which may change with every version of the model:
`python -m tests.markdown_examples docs/tutorial.md` writes today's into the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cfnade.cli.main import run

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Where the text starts, from 1."""
    span: tuple[int, int]
    """Of the text in the page."""


@dataclass(frozen=True)
class Printed:
    """What blocks printed, beside what the page says they print."""

    said: Block
    text: str

    def matches(self) -> bool:
        return without_numbers(self.said.text) == without_numbers(self.text)


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, those of one language or all."""
    found = [
        Block(m[1], m[2], page.count("\n", 0, m.start(2)) + 1, m.span(2))
        for m in FENCE.finditer(page)
    ]
    return [block for block in found if language in (None, block.language)]


def commands(page: str) -> list[list[str]]:
    """The `cfnade` commands of a page's shell blocks, in words."""
    return [words for block in blocks(page, "sh") for words in _commands(block)]


def run_page(
    path: Path, languages: tuple[str, ...] = ("python", "sh")
) -> tuple[dict, list[Printed]]:
    """Run a page's blocks in the current folder, as someone who types them in.

    Args:
        path: The page.
        languages: Of the blocks to run.

    Returns:
        The names that the Python blocks defined, and what was printed where the page says so.
    """
    scope: dict = {"__name__": path.stem}
    printed: list[Printed] = []
    fresh = ""  # printed since the last block that says what is printed
    for block in blocks(path.read_text()):
        if block.language == "text" and fresh:
            printed.append(Printed(block, fresh))
            fresh = ""
        elif block.language in languages:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                _run(block, path, scope)
            fresh = out.getvalue()
    return scope, printed


def refresh(path: Path) -> None:
    """Write what the blocks print now into the page."""
    page = path.read_text()
    for shown in reversed(run_page(path)[1]):
        start, end = shown.said.span
        page = page[:start] + shown.text + page[end:]
    path.write_text(page)


def _run(block: Block, path: Path, scope: dict) -> None:
    if block.language == "python":
        code = "\n" * (block.line - 1) + block.text  # so that errors name the page's line
        exec(compile(code, str(path), "exec"), scope)
        return
    for words in _commands(block):
        assert run(words[1:]) == 0, f"{path.name}, line {block.line}: {shlex.join(words)}"


def _commands(block: Block) -> list[list[str]]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("cfnade ")]


def without_numbers(text: str) -> list[str]:
    """Sorted lines without numbers, and without the signs, space and rules around them."""
    lines = (re.sub(r"\d+([.,]\d+)*(e-?\d+)?", "0", line) for line in text.splitlines())
    return sorted(re.sub(r"[\s─━+-]+", " ", line).strip() for line in lines)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in [ROOT / "docs" / "tutorial.md", *pages]:  # it makes the files of the others
            refresh(page)
