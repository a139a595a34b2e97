"""Several workers on one socket: one that dies is replaced, and all end with their supervisor."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from cfnade.model.artifact import save_artifact
from tests.model.saved import random_artifact
from tests.serve.running import running, wait_for

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
    assert asked(two) == {200}
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: not is_running(before[0]))
    assert asked(two) == {200}
    after = wait_for(lambda: (w := workers_of(two.process.pid)) != before and len(w) == 2 and w)
    assert before[1] in after and before[0] not in after
    figures = two.get("/metrics").body.decode()
    counted = re.search(r'requests_total{path="/v1/recommend",status="200"} (\d+)', figures)
    assert 79 <= int(counted[1]) <= 80  # one may be answered and not yet counted when it dies


def test_all_workers_take_over_a_new_model(two, folder):
    save_artifact(random_artifact(np.random.default_rng(5)), folder)
    time.sleep(0.2)
    two.signal(signal.SIGHUP)

    def all_new():
        return {two.get("/v1/model").json["n_items"] for _ in range(30)} == {9}

    wait_for(all_new)


def test_workers_do_not_outlive_a_supervisor_that_is_killed(two):
    workers = workers_of(two.process.pid)
    two.process.kill()
    two.process.wait()
    wait_for(lambda: not any(is_running(pid) for pid in workers))
