"""Jobs of several processes, for tests of what they do together."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from cfnade.storage.folder import load_artifact
from tests.scale.cluster import environment

SETTINGS = {
    "n_hidden": 8, "batch_size": 40, "max_epochs": 4, "learning_rate": 0.02,
    "recipe__precision": "float32",  # bfloat16 rounds the gradients of each process
}  # fmt: skip


def torchrun(*command, n_processes=2, options=()):
    """A command of several processes: a script or `-m module`, and its arguments."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--master-addr=127.0.0.1",
        "--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
        f"--nproc-per-node={n_processes}", *options, *map(str, command),
    ]  # fmt: skip


def settings(**changes):
    return [f"--set={name}={value}" for name, value in {**SETTINGS, **changes}.items()]


def run(command, **changes):
    return subprocess.run(
        list(map(str, command)),
        env={**environment(), **changes},
        capture_output=True,
        text=True,
        timeout=500,
    )


def start(command, **changes):
    return subprocess.Popen(
        list(map(str, command)),
        env={**environment(), **changes},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def weights(model):
    return load_artifact(model).network.weights


def largest_difference(a, b):
    assert a.keys() == b.keys()
    return max(float(np.abs(np.asarray(a[name]) - np.asarray(b[name])).max()) for name in a)
