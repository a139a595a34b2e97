"""What `make dist` built works in empty environments, and the README's lines run there as printed.

Two environments are enough: one with `train`, and one that starts with nothing, recommends with
the first one's model, and then gets `serve`. Then the sdist takes the wheel's place in both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tarfile
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.markdown_examples import ROOT, blocks

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]  # torch takes a while to install

README = (ROOT / "README.md").read_text()
ELSEWHERE = {"compare": "it needs the extra `bench`; test_readme.py runs it"}
"""Commands of the README that are not run here, and why."""
PORT = 8765


class Environment:
    """An empty environment, and a folder with a table in which its commands run."""

    def __init__(self, folder: Path, plays: Path) -> None:
        venv.create(folder / "env", with_pip=True)
        self.bin = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        self.folder = plays.parent
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.variables = kept | {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        }

    def install(self, *words: str) -> None:
        self("pip", "install", "--quiet", *words)

    def __call__(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            [self.bin / words[0], *words[1:]],
            cwd=at or self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def has(self, module: str) -> bool:
        code = f"import importlib.util as u; print(u.find_spec('{module}') is not None)"
        return self("python", "-c", code).strip() == "True"

    def answers(self, *words: str) -> bytes:
        """Start a service, ask whether it is ready and for its page, and stop it."""
        command = [self.bin / words[0], *words[1:], "--port", str(PORT)]
        service = subprocess.Popen(command, cwd=self.folder, env=self.variables)
        try:
            for path in ("/readyz", "/"):
                page = self._read(f"http://127.0.0.1:{PORT}{path}", service)
        finally:
            service.terminate()
            assert service.wait(timeout=60) == 0
        return page

    def _read(self, address: str, service: subprocess.Popen[bytes]) -> bytes:
        for _ in range(300):
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:
                    return answer.read()
            except OSError:
                assert service.poll() is None, "the service ended"
                time.sleep(0.1)
        raise AssertionError(f"no answer from {address}")


@pytest.fixture(scope="module")
def wheel() -> Path:
    return _only("*.whl")


@pytest.fixture(scope="module")
def sdist() -> Path:
    return _only("*.tar.gz")


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "plays.csv"
    rows = [(u, i) for u in range(60) for i in range(1, 21) if (i + u) % 2 and (i * u) % 7]
    lines = [f"u{u},show-{i},{1 + (u * i) % 9}" for u, i in rows]
    path.write_text("\n".join(["user,item,count", *lines]))
    return path


@pytest.fixture(scope="module")
def training(wheel, plays, tmp_path_factory) -> Iterator[Environment]:
    environment = Environment(tmp_path_factory.mktemp("train"), plays)
    environment.install("torch", "implicit")  # by the pins, so that pip looks for torch only once
    environment.install(f"{wheel}[train]")
    return environment


@pytest.fixture(scope="module")
def trained(training) -> Environment:
    """The environment with `train`, where the README's model was made."""
    _run_the_readme(training)
    return training


@pytest.fixture(scope="module")
def empty(wheel, plays, tmp_path_factory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("empty"), plays)
    environment.install(str(wheel))
    return environment


def _only(pattern: str) -> Path:
    found = list((ROOT / "dist").glob(pattern))
    assert len(found) == 1, f"`make dist` leaves one {pattern}, found {found}"
    return found[0]


def _lines(program: str) -> list[list[str]]:
    """The lines of the README's shell blocks that run a program, in words."""
    return [
        shlex.split(line, comments=True)
        for block in blocks(README, "sh")
        for line in block.text.splitlines()
        if line.startswith(f"{program} ")
    ]


def _commands(*names: str, without: tuple[str, ...] = ()) -> list[list[str]]:
    wanted = [words for words in _lines("cfnade") if not names or words[1] in names]
    return [words for words in wanted if words[1] not in without]


def _run_the_readme(environment: Environment) -> None:
    shutil.rmtree(environment.folder / "model", ignore_errors=True)
    for block in blocks(README, "python"):
        environment("python", "-c", block.text)
    for words in _commands(without=("serve", *ELSEWHERE)):
        environment(*words)
    assert (environment.folder / "model" / "model.json").exists()


def test_the_readme_runs_with_train(trained):
    assert trained.has("torch")


def test_a_model_recommends_with_nothing_else_installed(trained, empty):
    assert not empty.has("torch") and not empty.has("starlette")
    for words in _commands("recommend"):
        assert empty(*words)


def test_the_readme_runs_with_serve(trained, empty, wheel):
    empty.install(f"{wheel}[serve]")
    assert not empty.has("torch")
    for words in _commands("serve"):
        assert b"<html" in empty.answers(*words)


def test_the_readme_runs_from_the_sdist(training, empty, sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    empty.install(f"{wheel}[serve]")  # what the service needs
    for environment in (training, empty):
        environment("pip", "uninstall", "--quiet", "--yes", "cfnade")
        assert not environment.has("cfnade")
    installs = _lines("pip")
    assert ["pip", "install", ".[train]"] in installs
    for words in installs:
        training(*words, at=source)
    empty("pip", "install", "--no-deps", ".", at=source)
    _run_the_readme(training)
    for words in _commands("serve"):
        assert b"<html" in empty.answers(*words)


def test_every_extra_that_the_readme_installs_exists(wheel):
    offered = re.findall(r"^Provides-Extra: (\S+)", _metadata(wheel), flags=re.MULTILINE)
    named = re.findall(r"'(?:\.|cfnade)\[([\w,]+)\]'", README)
    assert named
    assert {extra for names in named for extra in names.split(",")} <= set(offered)


def test_no_link_of_the_description_needs_the_repository_around_it(wheel):
    targets = re.findall(r"\]\(([^)]+)\)", _metadata(wheel))
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_sdist_has_the_tests_and_what_they_read_but_no_results(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = "src/cfnade/py.typed tests/test_dist.py docs/tutorial.md examples/new_user_service.py"
    assert set(needed.split()) | {"constraints.txt", "requirements.lock", "LICENSE"} <= names
    assert [n for n in names if "results/" in n or n.endswith((".npz", ".csv", ".parquet"))] == []
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    if kept:  # in a clone
        assert names - set(kept.split("\n")) <= {"PKG-INFO"}


def test_the_wheel_is_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"cfnade", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()
