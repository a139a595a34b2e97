"""Runs what a Markdown page shows: Python blocks in one scope, `cfnade` lines of shell blocks.

A `text` block right after a block that was run shows what it printed. Words must be the same, in
any order of the lines, and whole numbers; other numbers may differ by a twentieth or by one in
their last digit, which is more than they do between processors. To write today's into a page:
`python -m tests.markdown_examples docs/tutorial.md`. A block that cannot be run has the reason in a
comment before it: `<!-- not run: it needs a cluster -->`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from cfnade.cli.main import run

ROOT = Path(__file__).parent.parent
FENCE = re.compile(
    r"(?:^<!-- not run: ([^\n]+) -->\n+)?^```(\w*)[^\n]*\n(.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
FIGURE = re.compile(
    r"(?<![\w.,-])"  # the 9 of `space-9` is part of a name
    r"[+-]?(?:\d+(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)(?:e[+-]?\d+)?"
)
RELATIVE = 0.05
"""By how much figures that are not whole may differ."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Where the text starts, from 1."""
    span: tuple[int, int]
    """Of the text in the page."""
    not_run: str | None = None
    """Why it is not run, if it is not."""


@dataclass(frozen=True)
class Printed:
    """What blocks printed, beside what the page says they print."""

    said: Block
    text: str

    def matches(self) -> bool:
        return same_output(self.said.text, self.text)


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, those of one language or all."""
    found = [
        Block(m[2], m[3], page.count("\n", 0, m.start(3)) + 1, m.span(3), m[1])
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
        elif block.language in languages and block.not_run is None:
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


def same_output(said: str, now: str) -> bool:
    """Whether two outputs have the same words, and the same figures within what may differ."""
    there, here = _figures_by_words(said), _figures_by_words(now)
    return there.keys() == here.keys() and all(
        len(there[words]) == len(here[words])
        and all(
            len(a) == len(b) and all(map(_are_close, a, b))
            for a, b in zip(there[words], here[words], strict=True)
        )
        for words in there
    )


def _figures_by_words(text: str) -> dict[str, list[list[str]]]:
    """The figures of each line, under what is left of the line; in order where lines are alike.

    Numbers in names, signs, space and rules do not count: items may change places.
    """
    found = defaultdict(list)
    for line in text.splitlines():
        words = re.sub(r"\d+([.,]\d+)*(e-?\d+)?", "0", line)
        words = re.sub(r"[\s─━+-]+", " ", words).strip()
        found[words].append(FIGURE.findall(line))
    return {words: sorted(lines, key=_values) for words, lines in found.items()}


def _values(figures: list[str]) -> list[float]:
    return [float(figure.replace(",", "")) for figure in figures]


def _are_close(said: str, now: str) -> bool:
    there, here = _values([said, now])
    if re.fullmatch(r"[+-]?[\d,]+", said):
        return there == here
    mantissa, _, power = said.partition("e")
    last_digit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(there - here) <= max(RELATIVE * abs(there), 1.01 * last_digit)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in [ROOT / "docs" / "tutorial.md", *pages]:  # it makes the files of the others
            refresh(page)
