"""`cfnade inspect` and `cfnade export` as a user meets them; `inspect` needs no torch."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from cfnade.cli.main import run
from tests.storage.saved import KEPT


@pytest.fixture
def model(tmp_path):
    return Path(shutil.copytree(KEPT, tmp_path / "model"))


def test_inspect_tells_all(model, capsys):
    assert run(["inspect", str(model)]) == 0
    told = capsys.readouterr().out
    described = json.loads((model / "model.json").read_text())
    for expected in [
        described["cfnade_version"],
        described["data_fingerprint"]["sha256"],
        described["files"]["weights.safetensors"]["sha256"],
        "learning_rate",
        "validation_mpr",
        "three groups",
        "film-0",
        "F32, 12 x 4",
        "not verified",
    ]:
        assert expected in told, expected


def test_inspect_writes_what_is_documented_as_json(model, capsys):
    assert run(["inspect", str(model), "--verify", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        "format", "cfnade_version", "network", "settings", "training", "metrics", "data",
        "data_fingerprint", "files", "total_bytes", "tensors", "items",
    }  # fmt: skip
    assert {file["state"] for file in told["files"].values()} == {"ok"}


def test_inspect_does_not_need_the_weights_to_tell_the_rest(model, capsys):
    (model / "weights.safetensors").unlink()
    assert run(["inspect", str(model), "--json", "-"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["metrics"]["validation_mpr"] > 0
    assert "weights.safetensors is missing" in shown.err


def test_a_changed_file_ends_in_one_line_and_exit_code_2(model, capsys):
    content = bytearray((model / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (model / "weights.safetensors").write_bytes(content)
    assert run(["inspect", str(model)]) == 0
    assert run(["inspect", str(model), "--verify"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "weights.safetensors is not what was saved (checksum differs)" in line


@pytest.mark.parametrize("command", [["inspect"], ["export", "--onnx", "x.onnx"]])
def test_no_model_ends_in_one_line_and_exit_code_2(command, capsys):
    assert run([*command, "nowhere"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "there is no model in nowhere" in line


def test_export_writes_an_onnx_file(model, tmp_path, capsys):
    pytest.importorskip("onnx")
    target = tmp_path / "deep" / "model.onnx"
    assert run(["export", str(model), "--onnx", str(target)]) == 0
    assert target.stat().st_size > 1000
    assert "12 items" in capsys.readouterr().err


def test_export_without_the_extra_says_how_to_get_it(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert run(["export", str(model), "--onnx", str(tmp_path / "model.onnx")]) == 1
    assert "pip install 'cfnade[onnx]'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "export"])
def test_every_command_has_help_with_an_example(command, capsys):
    assert run([command, "--help"]) == 0
    assert f"Example: cfnade {command}" in capsys.readouterr().out
