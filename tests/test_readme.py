"""What the README shows can be run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cfnade.cli import app, run

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    scope: dict = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert len(scope["ids"]) == 5
    assert (tmp_path / "model" / "model.json").exists()


@pytest.mark.parametrize(
    "line", [line for block in blocks("sh") for line in block.splitlines() if "cfnade " in line]
)
def test_every_command_shown_exists_with_its_options(line, capsys):
    words = shlex.split(line.split("#")[0])
    assert words[0] == "cfnade"
    names = [command.name for command in app.registered_commands]
    command = words[1:3] if words[1] == "data" else words[1:2]
    assert command[0] in [*names, "data"]
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--"))


def test_the_make_targets_shown_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
