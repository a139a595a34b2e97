"""Several workers on one socket: one that dies is replaced, and all end with their supervisor."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import cfnade
from cfnade.serve.run import Supervisor
from cfnade.serve.service_settings import ServeSettings
from cfnade.storage.folder import save_artifact
from tests.serve.running import STOPS_IN, Running, running, wait_for
from tests.storage.saved import random_artifact

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds the workers in /proc"
)


def workers_of(supervisor: int) -> list[int]:
    listed = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
    return sorted(int(pid) for pid in listed.split())


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def asked(service, n=40):
    return {service.post("/v1/recommend", {"history": {"film-1": 2}}).status for _ in range(n)}


@pytest.fixture
def two(folder, tmp_path):
    with running(folder, tmp_path / "log.txt", "--workers", "2", "--watch", "0.1") as service:
        wait_for(lambda: len(workers_of(service.process.pid)) == 2)
        yield service


def test_a_worker_that_is_killed_is_replaced_and_figures_are_those_of_all(two):
    before = workers_of(two.process.pid)
    environment = Path(f"/proc/{before[1]}/environ").read_text().split("\0")
    (shared,) = [v for v in environment if v.startswith("PROMETHEUS_MULTIPROC_DIR=")]
    folder = Path(shared.partition("=")[2])

    def files():
        return {path.name for path in folder.glob("counter_*")}

    wait_for(lambda: len(files()) == 2)  # both workers have loaded the model
    assert asked(two) == {200}
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: not is_running(before[0]))
    assert asked(two) == {200}
    after = wait_for(lambda: (w := workers_of(two.process.pid)) != before and len(w) == 2 and w)
    assert before[1] in after and before[0] not in after
    figures = two.get("/metrics").body.decode()
    counted = re.search(r'requests_total{path="/v1/recommend",status="200"} (\d+)', figures)
    assert 79 <= int(counted[1]) <= 80  # one may be answered and not yet counted when it dies
    assert files() == {"counter_0.db", "counter_1.db"}  # none of the dead is left


@pytest.mark.parametrize("n_workers", ["1", "2"])
def test_no_code_of_the_current_folder_runs(folder, tmp_path, n_workers):
    """Somebody unpacks a model next to a file with the name of a package, and serves it."""
    for name in ("uvicorn", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    # As the installed command starts: without the current folder on the path.
    command = [sys.executable, "-P", "-m", "cfnade"]
    path = {"PYTHONPATH": str(Path(cfnade.__file__).parents[1])}
    place = {"command": command, "cwd": tmp_path, "env": {**os.environ, **path}}
    with running(folder, tmp_path / "log.txt", "--workers", n_workers, **place) as service:
        assert asked(service) == {200}
        save_artifact(random_artifact(np.random.default_rng(5)), folder)
        wait_for(lambda: service.get("/v1/model").json["n_items"] == 9)
    assert not (tmp_path / "ran").exists()


def test_all_workers_take_over_a_new_model(two, folder):
    save_artifact(random_artifact(np.random.default_rng(5)), folder)
    two.signal(signal.SIGHUP)

    def all_new():
        return {two.get("/v1/model").json["n_items"] for _ in range(30)} == {9}

    wait_for(all_new)


@pytest.mark.parametrize("n_workers", ["1", "2"])
def test_sighup_while_it_starts_does_no_harm(folder, tmp_path, n_workers):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "cfnade", "serve", folder, "--port", str(port)]
    log = tmp_path / "log.txt"
    with log.open("w") as err:
        process = subprocess.Popen([*command, "--workers", n_workers], stderr=err)
    try:
        service = Running(process, port, log)
        wait_for(lambda: is_listening(port), process)

        def is_ready():
            process.send_signal(signal.SIGHUP)
            return "serving" in log.read_text()

        wait_for(is_ready, process)
        for _ in range(20):
            process.send_signal(signal.SIGHUP)
            time.sleep(0.05)  # the second worker may still be importing
        assert asked(service) == {200}
        assert "ended" not in log.read_text()
        process.terminate()
        assert process.wait(STOPS_IN) == 0
    finally:
        process.kill()
        process.wait()


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def kept_signals():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def supervise(model, is_over, seconds=30):
    """Supervise one worker in this process until something has happened; gives what was said."""
    said = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        supervisor = Supervisor(
            ServeSettings(model, grace_seconds=5), listening, on_ready=lambda: said.append("ready")
        )

        def stop():
            until = time.monotonic() + seconds
            while not is_over(said) and time.monotonic() < until:
                time.sleep(0.05)
            supervisor.is_stopping = True

        thread = threading.Thread(target=stop)
        thread.start()
        supervisor.run()
        thread.join()
    return said


@pytest.mark.usefixtures("kept_signals")
def test_it_is_not_said_to_serve_before_a_worker_has_a_model(folder, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert supervise(folder, lambda said: "ended (1)" in caplog.text) == []


@pytest.mark.usefixtures("kept_signals")
def test_a_worker_that_cannot_be_started_is_tried_again(folder, monkeypatch, caplog):
    real, n_tries = subprocess.Popen, 0

    def fail_twice(*args, **options):
        nonlocal n_tries
        n_tries += 1
        if n_tries <= 2:
            raise OSError(errno.EAGAIN, "no process left")
        return real(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", fail_twice)
    assert supervise(folder, lambda said: said) == ["ready"]
    assert caplog.text.count("cannot start a worker (no process left)") == 2


def test_workers_do_not_outlive_a_supervisor_that_is_killed(two):
    workers = workers_of(two.process.pid)
    two.process.kill()
    two.process.wait()
    wait_for(lambda: not any(is_running(pid) for pid in workers))
