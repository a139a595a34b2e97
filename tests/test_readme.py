"""What the README shows can be run."""

from __future__ import annotations

import re
import shlex

import pytest

from cfnade.cli.main import app, run
from tests.markdown_examples import ROOT, commands, run_page
from tests.networks import group_counts
from tests.serve.running import running

README = ROOT / "README.md"


MOST_WORDS = 900
QUICK = {"compare": ["--trials", "1"]}
"""Options that make a command of the README quick enough for a test."""


def test_it_is_short_and_says_first_how_to_install():
    text = README.read_text()
    assert len(text.split()) <= MOST_WORDS
    assert "pip install" in "".join(text.splitlines(keepends=True)[:20])


@pytest.fixture
def plays(tmp_path, monkeypatch):
    """A folder with `plays.csv`, of the items that the README names."""
    monkeypatch.chdir(tmp_path)
    counts = group_counts().tocoo()
    names = [f"{'show' if item % 2 else 'film'}-{item}" for item in range(20)]
    rows = zip(counts.row, counts.col, counts.data, strict=True)
    lines = ["user,item,count", *(f"u{user},{names[item]},{n:g}" for user, item, n in rows)]
    (tmp_path / "plays.csv").write_text("\n".join(lines))
    return tmp_path


def test_the_python_example_runs(plays):
    scope, _ = run_page(README, languages=("python",))
    assert len(scope["ids"]) == 5
    assert (plays / "model" / "model.json").exists()


@pytest.mark.filterwarnings("ignore:.*threadpool:RuntimeWarning")
def test_the_commands_run_as_printed(plays):
    pytest.importorskip("irspack")
    for words in commands(README.read_text()):
        if words[1] == "serve":
            with running(plays / words[2], plays / "log.txt") as service:
                assert service.get("/").status == 200
        else:
            assert run([*words[1:], *QUICK.get(words[1], [])]) == 0, shlex.join(words)
    assert (plays / "quickstart" / "report.html").exists()


@pytest.mark.parametrize("words", commands(README.read_text()), ids=shlex.join)
def test_every_command_shown_exists_with_its_options(words, capsys):
    names = [command.name for command in app.registered_commands]
    groups = [group.name for group in app.registered_groups]
    command = words[1:3] if words[1] in groups else words[1:2]
    assert command[0] in [*names, *groups]
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--"))


def test_the_make_targets_shown_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README.read_text(), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
