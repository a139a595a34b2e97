"""Whatever happens to the folder of a model, the service goes on with what it has."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cfnade.errors import ArtifactError
from cfnade.serve import admission
from cfnade.serve.admission import Admission
from cfnade.storage.folder import save_artifact
from tests.serve.running import running, wait_for
from tests.serve.test_run import workers_of
from tests.storage.saved import random_artifact, seal


@pytest.fixture
def place(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def wait_until_tried(model, seconds=60):
    """Look until a trial is over; gives whether there is a new model."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        is_new = model.look()
        if is_new or model._trial is None:
            return is_new
        time.sleep(0.02)
    raise AssertionError("the trial does not end")


def forge_ids(folder, **items):
    """Write items that no encoder would, with right checksums."""
    path = folder / "items.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **items}))
    seal(folder)


def refusal(place):
    return (place / "refused.txt").read_text()


def test_a_new_model_is_copied_and_tried_before_workers_see_it(folder, place):
    model = Admission(folder, place, watch_seconds=0.01)
    before = (place / "model" / "model.json").read_bytes()
    save_artifact(random_artifact(np.random.default_rng(5)), folder)
    assert not model.look()  # begins the trial
    assert (place / "model" / "model.json").read_bytes() == before
    assert wait_until_tried(model)
    assert (place / "model" / "model.json").read_bytes() == (folder / "model.json").read_bytes()
    assert sorted(path.name for path in place.iterdir()) == ["model"]


def test_a_refused_model_is_tried_once_and_named_and_forgotten_when_the_old_one_is_back(
    folder, place, caplog
):
    n_refused = []
    model = Admission(folder, place, watch_seconds=0.01, on_refused=lambda: n_refused.append(1))
    old = folder.rename(folder.with_name("old"))
    shutil.copytree(old, folder)
    (folder / "items.json").write_text("damaged")
    model.look()
    assert not wait_until_tried(model)
    assert f"{folder / 'items.json'} is not what was saved" in refusal(place)
    assert "refused a new model, the old one stays" in caplog.text
    time.sleep(0.02)
    assert not model.look() and model._trial is None and n_refused == [1]
    model.ask()  # by SIGHUP
    model.look()
    assert not wait_until_tried(model) and n_refused == [1, 1]
    shutil.rmtree(folder)
    old.rename(folder)
    time.sleep(0.02)
    assert not model.look() and not (place / "refused.txt").exists()


def test_the_first_model_is_tried_too(folder, place, tmp_path):
    with pytest.raises(ArtifactError, match=r"there is no model in .*nowhere"):
        Admission(tmp_path / "nowhere", place, watch_seconds=0)
    (folder / "weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match=r"films/weights.safetensors is not what was saved"):
        Admission(folder, place, watch_seconds=0)


def test_what_cannot_be_a_model_or_has_no_room_is_not_copied(folder, place, monkeypatch):
    def copied(*_):
        raise AssertionError("nothing should be copied")

    monkeypatch.setattr(shutil, "copyfileobj", copied)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
        with pytest.raises(ArtifactError, match=r"no room for a copy of .*films .*, 1 are free"):
            Admission(folder, place, watch_seconds=0)
    os.truncate(folder / "items.json", 1 << 40)  # it takes no place, but a copy would
    with pytest.raises(ArtifactError, match=r"size is 1,099,511,627,776 bytes instead of"):
        Admission(folder, place, watch_seconds=0)


@pytest.mark.parametrize("slow", ["pass", "import time; time.sleep(60)"])
def test_a_trial_that_takes_too_long_or_dies_is_a_refusal(folder, place, monkeypatch, slow):
    model = Admission(folder, place, watch_seconds=0)
    monkeypatch.setattr(admission, "TRIAL_SECONDS", 0.5)
    real = subprocess.Popen
    script = f"{slow}; import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **o: real([sys.executable, "-c", script], **o)
    )
    model.ask()
    model.look()
    started = time.monotonic()
    assert not wait_until_tried(model) and time.monotonic() - started < 20
    reason = "its trial ended with -11" if slow == "pass" else "took more than 0.5 seconds"
    assert reason in refusal(place)
    model.ask()
    model.look()
    model.close()


def test_a_model_that_would_stop_all_answers_is_refused(folder, place):
    script = """
import sys, time
from cfnade.serve import admission
admission.PAUSE_SECONDS = 0.2
admission.try_model = lambda folder, copy: sum(range(1 << 25))  # one call that keeps the lock
sys.exit(admission.main(*sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, str(folder), str(place / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "would stop all answers" in done.stdout


def test_a_busy_machine_is_no_reason_to_refuse_a_model(folder, place):
    script = """
import os, signal, subprocess, sys
from cfnade.serve import admission
admission.PAUSE_SECONDS = 0.2
def stopped(folder, copy):  # as if others had the processor
    subprocess.Popen(["sh", "-c", f"sleep 0.6; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
admission.try_model = stopped
sys.exit(admission.main(*sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, str(folder), str(place / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_memory_and_time_of_a_trial_are_limited(folder, place):
    script = """
import sys
import numpy as np
from cfnade.serve import admission
def huge(folder, copy):
    np.ones(1 << 33)
admission.try_model = huge
sys.exit(admission.main(*sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, str(folder), str(place / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "MemoryError" in done.stdout and done.stderr == ""


@pytest.fixture
def one(folder, tmp_path):
    with running(folder, tmp_path / "log.txt", "--watch", "0.1") as service:
        yield service


def test_a_model_copied_over_in_place_hurts_nobody_and_is_taken_over(one, folder, tmp_path):
    save_artifact(random_artifact(np.random.default_rng(5), n_hidden=64), tmp_path / "other")
    (worker,) = workers_of(one.process.pid)
    for name in ("weights.safetensors", "ratings.safetensors", "items.json", "model.json"):
        (folder / name).write_bytes(b"")  # as `cp` begins: the file is cut to nothing
        for _ in range(20):
            assert one.post("/v1/recommend", {"history": {"film-1": 2}}).status == 200
        (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    wait_for(lambda: one.get("/v1/model").json["n_items"] == 9)
    assert worker in workers_of(one.process.pid)
    assert one.get("/v1/model").json["name"] == "films"
    wait_for(lambda: one.get("/v1/model").json["refused"] is None)


def test_a_single_worker_that_dies_is_replaced_though_the_model_on_disk_is_damaged(one, folder):
    (folder / "weights.safetensors").write_bytes(b"damaged")
    wait_for(lambda: one.get("/v1/model").json["refused"])
    counted = 'cfnade_models_total{outcome="refused"} 1.0'  # by the supervisor, a moment later
    wait_for(lambda: counted in one.get("/metrics").body.decode())
    assert "cfnade_model_items 12.0" in one.get("/metrics").body.decode()
    (worker,) = workers_of(one.process.pid)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in workers_of(one.process.pid) and workers_of(one.process.pid))
    wait_for(lambda: one.post("/v1/recommend", {}).status == 200)
    assert "weights.safetensors is not what was saved" in one.get("/v1/model").json["refused"]


def test_a_forged_model_does_not_stop_the_answers(one, folder, tmp_path):
    new = shutil.copytree(folder, tmp_path / "new")
    n_items = 12
    ids = [f"{i}E+99999999" for i in range(1, n_items + 1)]
    forge_ids(new, dtype="<i8", types=["decimal"], ids=ids, packed=None)
    shutil.rmtree(folder)
    new.rename(folder)
    longest, until = 0.0, time.monotonic() + 60
    while time.monotonic() < until:
        started = time.monotonic()
        refused = one.get("/v1/model").json["refused"]
        longest = max(longest, time.monotonic() - started)
        if refused:
            break
        time.sleep(0.01)
    assert refused and longest < 2.0
