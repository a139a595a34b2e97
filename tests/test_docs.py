"""What the documentation shows can be run, and nothing public is left out of it."""

from __future__ import annotations

import re
import shutil

import pytest

import cfnade
from tests.markdown_examples import ROOT, run_page

pytest.importorskip("torch")
pytest.importorskip("pandas")

DOCS = ROOT / "docs"
API = [DOCS / "api" / "evaluation.md", DOCS / "api" / "settings.md"]
GO_ON = [*sorted(DOCS.glob("guides/*.md")), *API, DOCS / "index.md"]


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
