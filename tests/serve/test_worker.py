from __future__ import annotations

import subprocess
import sys

import pytest

STOPPED_AT_ONCE = """
import os, signal, socket, sys
from pathlib import Path
from cfnade.serve.service_settings import ServeSettings
from cfnade.serve.worker import run_worker

def stop():
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))

with socket.create_server(("127.0.0.1", 0)) as listening:
    run_worker(ServeSettings(Path(sys.argv[1])), listening, on_ready=stop)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_before_the_server_runs_ends_the_worker(folder, name):
    command = [sys.executable, "-c", STOPPED_AT_ONCE, str(folder), name]
    assert subprocess.run(command, timeout=60).returncode == 0
