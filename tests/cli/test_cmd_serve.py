"""`cfnade serve` as a user meets it when it cannot start; tests/serve has the rest."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys

import pytest

from cfnade.cli.main import run
from tests.markdown_examples import ROOT
from tests.storage.saved import KEPT


def line_of(capsys):
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert run(["serve", str(KEPT)]) == 1
    assert "pip install 'cfnade[serve]'" in line_of(capsys)


@pytest.fixture
def extra():
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")


@pytest.mark.usefixtures("extra")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_model_ends_in_one_line_and_exit_code_2(workers, tmp_path, capsys):
    options = ["--port", "0", "--workers", workers]
    assert run(["serve", str(tmp_path / "nowhere"), *options]) == 2
    assert "there is no model in" in line_of(capsys)


@pytest.mark.usefixtures("extra")
def test_a_port_that_is_taken_is_told(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["serve", str(KEPT), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in line_of(capsys)


@pytest.mark.usefixtures("extra")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "--port must be from 0 to 65535"),
        (["--allow-host", "a*b"], "--allow-host takes a name"),
        (["--watch", "-1"], "--watch must be at least 0 seconds"),
        (["--api-key-file", "nowhere"], "cannot read the API key in nowhere"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_wrong_options_end_in_one_line_and_exit_code_2(options, message, capsys):
    assert run(["serve", str(KEPT), *options]) == 2
    assert message in line_of(capsys)


@pytest.mark.usefixtures("extra")
def test_an_empty_key_file_is_refused_not_taken_for_no_key(tmp_path, capsys):
    (tmp_path / "key").write_text("\n")
    assert run(["serve", str(KEPT), "--api-key-file", str(tmp_path / "key")]) == 2
    assert "the API key must be non-empty ASCII text" in line_of(capsys)


@pytest.mark.usefixtures("extra")
@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_in_the_environment_is_refused_too(monkeypatch, capsys, key):
    monkeypatch.setenv("CFNADE_API_KEY", key)
    assert run(["serve", str(KEPT), "--port", "70000"]) == 2
    assert "CFNADE_API_KEY is empty" in line_of(capsys)


@pytest.mark.usefixtures("extra")
def test_the_command_and_the_service_are_imported_without_torch():
    names = [path.stem for path in (ROOT / "src" / "cfnade" / "serve").glob("*.py")]
    modules = ["cfnade.cli.main", *(f"cfnade.serve.{name}" for name in names if name != "__init__")]
    assert "cfnade.serve.app" in modules and "cfnade.serve.worker" in modules
    blocked = f"import sys; sys.modules['torch'] = None; import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def options_of(words):
    assert words[1] == "serve"
    return [word for word in words if word.startswith("--")]


def test_what_deployments_run_exists(capsys):
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    lists = [json.loads(line) for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.+)$", image, re.M)]
    unit = (ROOT / "deploy" / "cfnade-serve.service").read_text()
    starts = [line.split() for line in re.findall(r"^#?ExecStart=(.+)$", unit, re.M)]
    assert len(lists) == len(starts) == 2
    assert run(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for words in [[*lists[0], *lists[1]], *starts]:
        assert all(option in shown for option in options_of(words))
    for name in re.findall(r"^COPY (?!--)(.+) \S+$", image, re.M):
        assert all((ROOT / part).exists() for part in name.split())


@pytest.mark.parametrize(
    "line",
    [
        "LimitNOFILE=65536", "DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict",
        "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes", "CapabilityBoundingSet=",
        "RestrictNamespaces=yes", "SystemCallFilter=@system-service", "MemoryMax=2G",
    ],
)  # fmt: skip
def test_the_unit_gives_the_service_many_connections_and_few_rights(line):
    unit = (ROOT / "deploy" / "cfnade-serve.service").read_text()
    assert line in unit.splitlines()
