"""What the documentation shows can be run, and nothing public is left out of it."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import cfnade
from cfnade.cli.main import app, run
from tests.markdown_examples import ROOT, blocks, run_page

pytest.importorskip("torch")
pytest.importorskip("pandas")

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
API = [DOCS / "api" / "evaluation.md", DOCS / "api" / "settings.md"]
TOP = [DOCS / f"{name}.md" for name in ("choosing", "faq", "how-it-works", "index", "quick-start")]
GO_ON = [*sorted(DOCS.glob("guides/*.md")), *API, *TOP]
RUN = [*GO_ON, DOCS / "tutorial.md", DOCS / "coming-from-implicit.md", ROOT / "README.md"]
COMMAND = re.compile(
    r"^ *(\$ )?(cfnade|curl|docker|git|java|make|pip|python3?|spark-submit|torchrun|cd|export|mv"
    r"|rsync|systemctl) [\w./'{$-]|^(from \w+ )?import ",
    flags=re.MULTILINE,
)
"""A line that somebody would type."""


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """The tutorial as run in a folder of its own, with what it printed and left there."""
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return (folder, *run_page(DOCS / "tutorial.md"))


def assert_printed(printed, at_least=1):
    assert len(printed) >= at_least
    for shown in printed:
        assert shown.matches(), f"line {shown.said.line} of the page; now:\n{shown.text}"


def test_the_tutorial_runs_and_prints_what_it_says(tutorial):
    folder, scope, printed = tutorial
    assert_printed(printed, at_least=10)
    assert scope["model"].validation_mpr_ < 30
    assert (folder / "plays.parquet").exists() and (folder / "model" / "model.json").exists()


@pytest.mark.parametrize("page", GO_ON, ids=lambda page: page.stem)
def test_the_pages_that_go_on_from_the_tutorial_run(page, tutorial, tmp_path, monkeypatch):
    shutil.copytree(tutorial[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    _, printed = run_page(page)
    assert_printed(printed, at_least=0)


@pytest.mark.filterwarnings("ignore:.*threadpool:RuntimeWarning")
def test_coming_from_implicit_runs():
    pytest.importorskip("implicit")
    scope, _ = run_page(DOCS / "coming-from-implicit.md")
    assert scope["ids"].shape == scope["related"].shape == (10,)
    assert scope["ratings"].data.max() == 31.0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_run_or_says_why_not(page):
    for block in blocks(page.read_text()):
        where = f"{page.name}, line {block.line}"
        assert block.language in ("python", "sh", "text", "json"), where
        if block.not_run is None and block.language in ("python", "sh"):
            assert page in RUN, f"{where}: no test runs this page"
            if block.language == "sh":
                lines = block.text.replace("\\\n", " ").splitlines()
                others = [line for line in lines if line and not line.startswith(("cfnade ", "#"))]
                assert not others, f"{where}: no test runs {others}"
        if block.language == "text":
            assert block.not_run or not COMMAND.search(block.text), f"{where}: say `sh` or `python`"


def commands_in_words():
    """Every `cfnade ...` within a line of text or in a block that is not run."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in blocks(text):
            if block.not_run is not None:
                shown = block.text.replace("\\\n", " ")
                found += re.findall(r"^cfnade .+$", shown, flags=re.MULTILINE)
        rest = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        found += re.findall(r"`(cfnade [^`\n]+)`", rest)
    return sorted(set(found))


@pytest.mark.parametrize("words", commands_in_words())
def test_every_command_that_is_named_exists_with_its_options(words, capsys):
    names = [command.name for command in app.registered_commands]
    groups = [group.name for group in app.registered_groups]
    first, *rest = words.split(" #")[0].split()[1:]
    command = [first, rest.pop(0)] if first in groups and rest else [first]
    assert first in [*names, *groups] or first.startswith("-")
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    for option in (word for word in rest if word.startswith("--")):
        assert re.search(rf"{option}\b", shown), option


def test_the_table_of_settings_has_the_measured_figures():
    kept = json.loads((ROOT / "benchmarks" / "results" / "settings.json").read_text())
    page = (DOCS / "guides" / "settings-that-matter.md").read_text()
    rows = {
        line.split("|")[1].strip(): line.split("|")[2:] for line in page.splitlines() if "|" in line
    }
    for part, by_set in kept["parts"].items():
        for cell, name in zip(rows[part], kept["sets"], strict=False):
            shown = [float(figure) for figure in cell.replace("*", "").split("/")]
            measured = [by_set[name][metric][0] for metric in ("mpr", "ndcg@100")]
            assert shown == pytest.approx(measured, abs=0.051), (part, name)


def test_every_public_name_is_in_the_reference():
    text = "".join(page.read_text() for page in DOCS.glob("api/*.md"))
    told = set(re.findall(r"^::: cfnade\.(\w+)$", text, flags=re.MULTILINE))
    assert told == set(cfnade.__all__)


def test_every_link_between_pages_leads_somewhere():
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_example_is_named_in_the_documentation():
    text = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    for script in (ROOT / "examples").glob("*.*"):
        assert f"examples/{script.name}" in text, script.name
