"""Runs the code of a notebook as Jupyter does, without Jupyter: cells in one scope.

`python -m tests.notebook_examples examples/first_model.ipynb` writes what the cells show now into
the notebook.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.markdown_examples import same_output


@dataclass(frozen=True)
class Cell:
    """A cell of code, with what the notebook says it shows and what it shows now."""

    source: str
    said: list[dict[str, Any]]
    shown: list[dict[str, Any]]

    def matches(self) -> bool:
        """Whether both have the same words, and figures that agree."""
        said, shown = _texts(self.said), _texts(self.shown)
        return len(said) == len(shown) and all(map(same_output, said, shown))


def run_notebook(path: Path) -> tuple[dict[str, Any], list[Cell]]:
    """Run all cells of code in the current folder; returns the scope, and what they show."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    found = []
    for number, cell in enumerate(cells, start=1):
        source = "".join(cell["source"])
        found.append(Cell(source, cell["outputs"], _shown(source, scope, number, path)))
    return scope, found


def refresh(path: Path) -> None:
    """Write what the cells show now into the notebook."""
    notebook, (_, cells) = json.loads(path.read_text()), run_notebook(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, found) in enumerate(zip(code, cells, strict=True), start=1):
        cell |= {"outputs": found.shown, "execution_count": number}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def _shown(source: str, scope: dict[str, Any], number: int, path: Path) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last line, as outputs of a notebook."""
    tree, value = ast.parse(source), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    name = f"{path.name}, cell {number}"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, name, "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
    outputs: list[dict[str, Any]] = []
    if out.getvalue():
        text = out.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        result = {"data": data, "execution_count": number, "metadata": {}}
        outputs.append({**result, "output_type": "execute_result"})
    return outputs


def _texts(outputs: list[dict[str, Any]]) -> list[str]:
    return ["".join(each.get("text") or each["data"]["text/plain"]) for each in outputs]


if __name__ == "__main__":
    notebooks = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for notebook in notebooks:
            refresh(notebook)
