"""The files around the package agree with each other: versions, pins, hashes, targets, hooks."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.markdown_examples import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, flags=re.MULTILINE)
CALLERS = [".ci/run", "CONTRIBUTING.md", ".github/workflows/test.yml"]
CALLERS += [".github/workflows/docs.yml", ".github/workflows/release.yml", "docs/versioning.md"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    lines = re.findall(r"^([\w.-]+)==([\w.+!]+)", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {normal(package): version for package, version in lines}


def test_citation_and_changelog_have_the_version_of_the_project():
    version = re.escape(PROJECT["version"])
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {version}$", citation, flags=re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None and newest[1] == PROJECT["version"]


def test_the_lock_file_has_the_pins_and_all_that_a_service_needs():
    locked, pinned = pins("requirements.lock"), pins("constraints.txt")
    assert locked == {name: pinned.get(name) for name in locked}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["serve"]]
    needed = {normal(re.split(r"[^\w.-]", requirement)[0]) for requirement in wanted}
    assert needed <= set(locked)


def test_everything_locked_has_hashes_and_no_address():
    text = (ROOT / "requirements.lock").read_text()
    assert "//" not in text and "index" not in text
    entries = [entry for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if "==" in entry]
    assert len(entries) == len(pins("requirements.lock")) > 10
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry) for entry in entries)


@pytest.mark.parametrize("name", CALLERS)
def test_every_make_target_that_a_file_names_exists(name):
    text = (ROOT / name).read_text()
    calls = re.findall(r"(?:^|run: |`)make ([a-z -]+)", text, flags=re.MULTILINE)
    calls += re.findall(r"target: \[([^\]]+)\]", text)
    words = {word for call in calls for word in re.split(r"[, ]+", call.strip())}
    assert words and words - {""} <= set(TARGETS)


def test_every_target_is_phony_and_has_a_group():
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, flags=re.MULTILINE)
    assert phony is not None and sorted(phony[1].split()) == sorted(TARGETS)
    assert MAKEFILE.index("##@ ") < MAKEFILE.index("\nsetup:")


def test_pre_commit_runs_what_make_check_runs():
    hooks = re.findall(r"entry: \.venv/bin/([^,]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    (recipe,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, flags=re.MULTILINE)
    lines = re.findall(r"\$\(BIN\)/(.+)", recipe)
    assert [line.removesuffix(" .") for line in lines] == hooks


def test_supported_pythons_are_the_ones_that_ci_runs():
    found = [re.fullmatch(r".* :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    classifiers = [match[1] for match in found if match]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    matrix = re.search(r"python: \[(.+)\]", workflow)
    assert matrix is not None and re.findall(r"3\.\d+", matrix[1]) == classifiers
    assert PROJECT["requires-python"] == f">={classifiers[0]}"
    loop = re.search(r"for version in ([\d. ]+);", MAKEFILE)
    assert loop is not None and loop[1].split() == classifiers


def test_the_image_is_locked_and_can_copy_what_it_names():
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements.lock" in image
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", image, flags=re.MULTILINE)
    assert {f"!{name}" for names in copied for name in names.split()} <= set(allowed)


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.stem)
def test_links_of_the_pages_beside_the_readme_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]+)#?([^)\s]*)", page.read_text()):
        assert (ROOT / target).exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", (ROOT / target).read_text(), flags=re.MULTILINE)
            plain = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
            assert anchor in [re.sub(r"[-\s]+", "-", title) for title in plain], anchor
