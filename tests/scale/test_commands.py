"""The commands, as people run them, on the cluster."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from cfnade.cli import main as cli
from cfnade.estimator import ImplicitCFNADE
from tests.markdown_examples import ROOT, blocks
from tests.scale.cluster import environment

pytestmark = pytest.mark.scale


def cfnade(cluster, *arguments):
    conf = [f"--conf={name}={value}" for name, value in cluster.settings().items()]
    command = [sys.executable, "-m", "cfnade", *map(str, arguments)]
    return subprocess.run(
        [*command, "--master", cluster.url, *conf],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_prepare_train_and_score_go_together(cluster, plays, tmp_path):
    ready, model, out = tmp_path / "ready", tmp_path / "model", tmp_path / "out"
    log = pd.read_parquet(plays)
    log["action"] = np.where(log["plays"] > 3, "replay", "play")
    log.to_parquet(tmp_path / "log.parquet", index=False)
    done = cfnade(
        cluster, "scale", "prepare", tmp_path / "log.parquet", "--out", ready, "--shards", 2,
        "--validation-users", 100, "--event-weights", "play=1,replay=2.5", "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["n_users"] == 400 and facts["n_validation_pairs"] > 0
    assert cli.run(
        ["scale", "train", str(ready), "--out", str(model), "--set", "n_hidden=8", "--set",
         "max_epochs=2", "--set", "batch_size=100"]
    ) == 0  # fmt: skip
    fitted = ImplicitCFNADE.load(model)
    assert fitted.n_features_in_ == facts["n_items"] and fitted.validation_mpr_ < 50
    assert fitted.event_weights_ == {"play": 1.0, "replay": 2.5}
    done = cfnade(cluster, "scale", "score", model, "--data", ready, "--out", out, "-n", 3)
    assert done.returncode == 0, done.stderr
    assert "n users" in done.stdout and "400" in done.stdout


def test_the_commands_of_the_page_run_on_this_machine(needs_spark, tmp_path):
    first = blocks((ROOT / "docs" / "scale-out.md").read_text(), "sh")[0]
    starts = {"cfnade": ["cfnade"], "torchrun": ["torch.distributed.run"]}
    for line in first.text.splitlines():
        command, *rest = shlex.split(line)
        done = subprocess.run(
            [sys.executable, "-m", *starts[command], *rest],
            env=environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    recommended = pd.read_parquet(tmp_path / "recommended")
    assert recommended.groupby("user_id").size().max() == 10
