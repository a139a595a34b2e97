"""Training over several processes: the same as one, to the last batch; what happens if one dies."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import vstack

from cfnade.errors import ConfigError, DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.pipeline import Callbacks
from cfnade.metrics.evaluate import evaluate
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.storage.folder import load_artifact
from tests.scale.cluster import descendants, environment, free_port

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from cfnade.model.training import _Run, train  # noqa: E402
from cfnade.scale.prepared import Prepared  # noqa: E402
from cfnade.scale.shard_training import train_prepared  # noqa: E402
from cfnade.scale.shards import ShardedRows  # noqa: E402
from tests.scale.shards_on_disk import write_prepared  # noqa: E402

pytestmark = pytest.mark.scale

SETTINGS = {"n_hidden": 8, "batch_size": 40, "max_epochs": 4, "learning_rate": 0.02}
MODEL = ModelConfig(n_items=30, n_hidden=8)
TRAINING = TrainingConfig(batch_size=40, max_epochs=3, learning_rate=0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("shards") / "prepared")


def torchrun(*arguments, n_processes=2, options=()):
    return [
        sys.executable, "-m", "torch.distributed.run", "--master-addr=127.0.0.1",
        "--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
        f"--nproc-per-node={n_processes}", *options, "-m", "cfnade", *map(str, arguments),
    ]  # fmt: skip


def settings(**changes):
    return [f"--set={name}={value}" for name, value in {**SETTINGS, **changes}.items()]


def run(command, **changes):
    return subprocess.run(
        command, env={**environment(), **changes}, capture_output=True, text=True, timeout=500
    )


def weights(model):
    return load_artifact(model).network.weights


def largest_difference(a, b):
    assert a.keys() == b.keys()
    return max(float(np.abs(np.asarray(a[name]) - np.asarray(b[name])).max()) for name in a)


# What a batch is ------------------------------------------------------------------------------


def test_every_user_comes_once_an_epoch_and_all_shards_end_together(folder):
    rows = ShardedRows(Prepared.open(folder), 30.0)
    batches = list(rows.batches(TRAINING, 1, np.random.default_rng(0)))
    assert len(batches) == math.ceil(rows.n_users / 40)
    whole = vstack([likes for likes, _ in batches]).toarray()
    literal = all_confidences(folder)
    assert sorted(map(tuple, whole.tolist())) == sorted(map(tuple, literal.tolist()))
    assert max(part.n_users for _, part in batches) <= 40 + 4  # a shard's share is rounded
    assert [part.first for _, part in batches] == [0] * len(batches)


def all_confidences(folder):
    """Literally: every row of every file, as a dense matrix."""
    import pyarrow.parquet as pq

    found = []
    for path in sorted((folder / "users").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            dense = np.zeros(30, dtype=np.float32)
            dense[row["items"]] = 1.0 + 30.0 * np.array(row["ratings"])
            found.append(dense)
    return np.array(found)


@pytest.mark.parametrize("n_processes", [2, 3, 4])
def test_the_parts_of_several_processes_make_up_the_batches_of_one(folder, n_processes):
    def batches(process, n):
        rows = ShardedRows(Prepared.open(folder), 30.0, process=process, n_processes=n)
        return list(rows.batches(TRAINING, 2, np.random.default_rng(0)))

    parts = [batches(process, n_processes) for process in range(n_processes)]
    for step, (likes, whole) in enumerate(batches(0, 1)):
        own = [part[step] for part in parts]
        assert (vstack([likes for likes, _ in own]) != likes).nnz == 0
        assert [part.n_users for _, part in own] == [whole.n_users] * n_processes
        ends = np.cumsum([likes.shape[0] for likes, _ in own])
        assert [part.first for _, part in own] == [0, *ends[:-1]]


def test_another_epoch_or_seed_is_another_order_and_the_same_again_is_not(folder):
    def first(epoch, seed):
        rows = ShardedRows(Prepared.open(folder), 30.0)
        training = TrainingConfig(batch_size=40, seed=seed)
        return next(rows.batches(training, epoch, np.random.default_rng(0)))[0].toarray().tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(2, 0) and first(1, 0) != first(1, 1)


@pytest.mark.parametrize("bias_start", ["zero", "share", "odds"])
def test_training_starts_where_it_does_in_memory(folder, bias_start):
    from scipy.sparse import csr_array

    training = TrainingConfig(batch_size=40, bias_start=bias_start)
    streamed = _Run(MODEL, training, ShardedRows(Prepared.open(folder), 30.0))
    dense = all_confidences(folder)
    ratings = csr_array(np.where(dense > 0, (dense - 1.0) / 30.0, 0.0).astype(np.float64))
    held = _Run(MODEL, training, ratings)
    for name, weight in held.network.named_parameters():
        torch.testing.assert_close(streamed.network.get_parameter(name), weight, atol=1e-5, rtol=0)
    torch.testing.assert_close(streamed.l2, held.l2)


def test_what_cannot_be_streamed_is_refused(folder, tmp_path):
    prepared = Prepared.open(folder)
    with pytest.raises(ConfigError, match="at least as many shards, got 4"):
        ShardedRows(prepared, 30.0, n_processes=5)
    rows = ShardedRows(prepared, 30.0)
    with pytest.raises(ConfigError, match="batches of 2 are too small"):
        rows.batches(TrainingConfig(batch_size=2), 1, np.random.default_rng(0))
    refused = {
        "validation_users": 5,
        "validation_share": 0.2,
        "validation_by": "events",
        "memory_limit": "4GB",
        "refit": True,
    }
    for name, value in refused.items():
        with pytest.raises(ConfigError, match=f"{name} .*leave it out"):
            train_prepared(folder, tmp_path / "model", {name: value})
    with pytest.raises(ConfigError, match="judged by MPR"):
        train_prepared(folder, tmp_path / "model", {"choose_by": "ndcg@20"})
    with pytest.raises(ConfigError, match="start_from_factors needs all users in memory"):
        train_prepared(folder, tmp_path / "model", {"start_from_factors": True})
    with pytest.raises(ConfigError, match=r"one network .* leave n_networks out"):
        train_prepared(folder, tmp_path / "model", {"n_networks": 2})
    readout = ("direct_gain", "direct_neighbours", "direct_l2", "popularity_tilt")
    for name in (*readout, "factor_alpha", "factor_gain"):
        with pytest.raises(ConfigError, match=f"no readout .* leave out {name}"):
            train_prepared(folder, tmp_path / "model", {name: 2.0})
    with pytest.raises(DataError, match="not a prepared folder"):
        train_prepared(tmp_path, tmp_path / "model")


# Several processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"optimizer": "sgd", "n_layers": 2, "zero_share": 0.5, "learning_rate": 0.5}],
    ids=["adam", "sgd, two layers, some zeros"],
)
def test_two_processes_end_in_the_weights_of_one(folder, tmp_path, changes):
    alone = train_prepared(folder, tmp_path / "one", {**SETTINGS, **changes})
    done = run(torchrun("scale", "train", folder, "--out", tmp_path / "two", *settings(**changes)))
    assert done.returncode == 0, done.stderr
    assert largest_difference(weights(tmp_path / "one"), weights(tmp_path / "two")) < 1e-5
    told = json.loads((tmp_path / "two" / "model.json").read_text())
    assert told["training"]["best_epoch"] == alone.best_epoch
    assert told["metrics"]["validation_mpr"] == pytest.approx(alone.validation_mpr, abs=1e-3)
    assert "MB exchanged an update" in done.stdout and done.stdout.count("saved to") == 1
    assert not (tmp_path / "two.checkpoint").exists()


def test_the_gradients_of_two_processes_are_those_of_one_batch(folder, tmp_path):
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    alone = run([sys.executable, script, folder, tmp_path / "one"])
    assert alone.returncode == 0, alone.stderr
    command = torchrun(n_processes=2)
    command[command.index("-m", 3) :] = [str(script), str(folder), str(tmp_path / "two")]
    together = run(command)
    assert together.returncode == 0, together.stderr
    one, first, second = (np.load(tmp_path / name) for name in ("one0.npz", "two0.npz", "two1.npz"))
    for name in one.files:
        assert np.array_equal(first[name], second[name]), name  # both move by the same
        np.testing.assert_allclose(first[name], one[name], rtol=1e-5, atol=1e-8, err_msg=name)
        assert np.abs(one[name]).max() > 0
    # Only what the update touched was exchanged: what is small in one message, as doubles.
    n_targets, n_liked = (int(one[n].any(axis=1).sum()) for n in ("output_weight", "like_weight"))
    assert n_targets == 15 and n_liked < 16
    small = n_targets * 8 + 30 + 8 + (64 + 8) + 1  # of V, d, b, the second layer, and the loss
    of_rows = 30 + 2 * n_liked * 8 * 4  # who has which, then of W and A
    assert together.stdout.count(f"{8 * (small + 8) + of_rows} bytes") == 2


GRADIENTS = """
import sys
import numpy as np
from cfnade.model.config import ModelConfig, TrainingConfig
from cfnade.model.training import _Run
from cfnade.scale import process_group as exchange
from cfnade.scale.prepared import Prepared
from cfnade.scale.shards import ShardedRows

number = exchange.process_number()
with exchange.joined() as together:
    rows = ShardedRows(
        Prepared.open(sys.argv[1]), 30.0, process=number, n_processes=exchange.n_processes()
    )
    training = TrainingConfig(batch_size=40, item_l2=0.0)
    run = _Run(ModelConfig(n_items=30, n_hidden=8, n_layers=2), training, rows, exchange=together)
    kept = {}

    def keep(gradients, rows, rate):
        kept.update({name: gradient.clone().numpy() for name, gradient in gradients.items()})

    run.optimizer.step = keep
    batches = rows.batches(training, 1, None)
    rows.batches = lambda *_: iter([next(batches)])
    run.epoch(None, None)
    np.savez(f"{sys.argv[2]}{number}.npz", **kept)
    print(f"{getattr(together, 'n_bytes', 0)} bytes")
"""


def test_a_killed_process_stops_the_job_and_resume_goes_on(folder, tmp_path):
    long = settings(max_epochs=400, patience=400)
    options = ["--monitor-interval=3"]  # or torchrun may end the other one before it can speak
    command = torchrun("scale", "train", folder, "--out", tmp_path / "m", *long, options=options)
    job = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    kill_a_rank([job], tmp_path / "m.checkpoint")
    _, told = job.communicate(timeout=200)
    assert job.returncode != 0
    assert "lost another one" in told and "--resume" in told
    state = json.loads((tmp_path / "m.checkpoint" / "state.json").read_text())
    n_done = len(state["epochs"])
    assert 0 < n_done < 400

    # Another number of processes may go on: who is in a batch does not depend on it.
    n_more = n_done + 4
    whole = {**SETTINGS, "max_epochs": n_more, "patience": 400}
    everything = train_prepared(folder, tmp_path / "whole", whole)
    assert everything.resumed_after == 0
    shutil.copytree(tmp_path / "m.checkpoint", tmp_path / "one.checkpoint")
    epochs = []
    callbacks = Callbacks(on_epoch=lambda epoch: epochs.append(epoch.number))
    alone = train_prepared(folder, tmp_path / "one", whole, resume=True, callbacks=callbacks)
    assert alone.resumed_after == n_done
    assert epochs == list(range(n_done + 1, n_more + 1))  # no epoch was run again
    short = settings(max_epochs=n_more, patience=400)
    done = run(torchrun("scale", "train", folder, "--out", tmp_path / "m", "--resume", *short))
    assert done.returncode == 0, done.stderr
    assert f"(went on after {n_done})" in done.stdout
    for name in ("one", "m"):
        assert largest_difference(weights(tmp_path / name), weights(tmp_path / "whole")) < 1e-4


def test_a_resumed_run_tells_the_bytes_of_its_own_updates(folder, tmp_path):
    script = tmp_path / "again.py"
    script.write_text(AGAIN)
    command = torchrun(n_processes=2)
    command[command.index("-m", 3) :] = [str(script), str(folder), str(tmp_path / "m")]
    done = run(command)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for whole, resumed, resumed_after in told:
        assert resumed == pytest.approx(whole, rel=0.05)  # not a tenth of it
        assert resumed_after == 18
    assert len(told) == 2


AGAIN = """
import json, shutil, sys
from pathlib import Path
from cfnade.fit.pipeline import Callbacks
from cfnade.scale import process_group as exchange
from cfnade.scale.shard_training import train_prepared

folder, out = sys.argv[1], Path(sys.argv[2])
settings = {"n_hidden": 8, "batch_size": 40, "max_epochs": 20, "patience": 99}
kept, checkpoint = out.with_name("kept"), out.with_name("m.checkpoint")

def keep(epoch):
    if epoch.number == 18:
        shutil.copytree(checkpoint, kept)

whole = train_prepared(folder, out, settings, callbacks=Callbacks(on_epoch=keep))
if exchange.process_number() == 0:
    kept.rename(checkpoint)
resumed = train_prepared(folder, out, settings, resume=True)
print(json.dumps([whole.bytes_per_update, resumed.bytes_per_update, resumed.resumed_after]))
"""


def test_a_checkpoint_of_other_shards_is_refused(folder, tmp_path):
    from cfnade.errors import ArtifactError

    rows = ShardedRows(Prepared.open(folder), 30.0)
    others = write_prepared(tmp_path / "prepared")
    first, second, *_ = sorted((others / "users").glob("*.parquet"))
    first.rename(tmp_path / "aside")
    second.rename(first)  # the same users, and the same files in another order
    (tmp_path / "aside").rename(second)
    again = ShardedRows(Prepared.open(others), 30.0)
    assert rows.identity() != again.identity()
    two = [ShardedRows(Prepared.open(folder), 30.0, process=k, n_processes=2) for k in range(2)]
    assert [part.identity() for part in two] == [rows.identity()] * 2
    train(MODEL, TRAINING, rows, checkpoint=tmp_path / "c")
    with pytest.raises(ArtifactError, match="made with other data"):
        train(MODEL, TRAINING, again, checkpoint=tmp_path / "c", resume=True)


def test_torchrun_starts_a_killed_job_again_if_asked_to(folder, tmp_path):
    long = settings(max_epochs=60, patience=400)
    command = torchrun(
        "scale", "train", folder, "--out", tmp_path / "m", *long, options=["--max-restarts=1"]
    )
    job = start(command)
    kill_a_rank([job], tmp_path / "m.checkpoint")
    said, told = job.communicate(timeout=400)
    assert job.returncode == 0, told
    assert "(went on after " in said
    train_prepared(folder, tmp_path / "one", {**SETTINGS, "max_epochs": 60, "patience": 400})
    assert largest_difference(weights(tmp_path / "m"), weights(tmp_path / "one")) < 1e-4


def test_two_machines_go_on_though_only_one_of_them_counts_the_restart(folder, tmp_path):
    """An agent of `torchrun` each: the one whose process fails counts it, the other does not."""
    options = [
        "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=job",
        "--max-restarts=1", "--local-addr=127.0.0.1",
    ]  # fmt: skip
    long = settings(max_epochs=60, patience=400)
    command = torchrun(
        "scale", "train", folder, "--out", tmp_path / "m", *long, n_processes=1, options=options
    )
    agents = [start(command) for _ in range(2)]
    try:
        kill_a_rank(agents, tmp_path / "m.checkpoint")
        ends = [agent.communicate(timeout=200) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                for pid in [*descendants(agent.pid), agent.pid]:
                    os.kill(pid, signal.SIGKILL)
    assert [agent.returncode for agent in agents] == [0, 0], ends
    assert "(went on after " in "".join(said for said, _ in ends)
    train_prepared(folder, tmp_path / "one", {**SETTINGS, "max_epochs": 60, "patience": 400})
    assert largest_difference(weights(tmp_path / "m"), weights(tmp_path / "one")) < 1e-4


def start(command):
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_a_rank(jobs, checkpoint):
    """Kill the second process, as soon as there is a checkpoint."""
    until = time.monotonic() + 300
    while not (checkpoint / "state.json").exists():
        for job in jobs:
            assert job.poll() is None and time.monotonic() < until, job.communicate()
        time.sleep(0.01)
    for pid in [pid for job in jobs for pid in descendants(job.pid)]:
        if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("there is no second process")


@pytest.mark.filterwarnings("ignore")
def test_spark_starts_the_same_training(spark, prepared, tmp_path):
    from cfnade.scale.on_spark import train_on_spark

    changes = {**SETTINGS, "max_epochs": 2}
    together = train_on_spark(spark, prepared, tmp_path / "two", changes, n_processes=2)
    alone = train_prepared(prepared, tmp_path / "one", changes)
    assert together.best_epoch == alone.best_epoch and together.bytes_per_update > 0
    assert largest_difference(weights(tmp_path / "one"), weights(tmp_path / "two")) < 1e-5
    assert together.test_mpr == pytest.approx(alone.test_mpr, abs=1e-3)
    told = json.loads((tmp_path / "two" / "model.json").read_text())["metrics"]
    assert told["test_mpr"] == together.test_mpr


@pytest.mark.filterwarnings("ignore")
def test_the_test_part_is_judged_as_on_one_machine(prepared, tmp_path):
    import pyarrow.parquet as pq
    from scipy.sparse import csr_array

    outcome = train_prepared(prepared, tmp_path / "m", {**SETTINGS, "max_epochs": 2})
    whole = Prepared.open(prepared)
    known, held = [], []
    for path in whole.shards:
        for row in pq.read_table(path).to_pylist():
            known.append(np.zeros(whole.n_items))
            held.append(np.zeros(whole.n_items))
            for part in ("", "validation_"):
                known[-1][row[f"{part}items"]] = row[f"{part}counts"]
            held[-1][row["test_items"]] = row["test_counts"]
    model = ImplicitCFNADE.load(tmp_path / "m")
    counts = csr_array(np.array(held))
    relevance = whole.relative_rating.transform(counts)
    judged = evaluate(model, csr_array(np.array(known)), counts, relevance)
    assert outcome.test_mpr == pytest.approx(judged.metrics["mpr"], abs=1e-4)
    assert outcome.test_mpr < 45


# What the processes agree on ------------------------------------------------------------------


def names_agreed_on(store, ranks, n, timeout=20.0):
    from concurrent.futures import ThreadPoolExecutor

    from cfnade.scale.process_group import agreed_name

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(lambda rank: agreed_name(store, rank, n, timeout), ranks))


def test_each_start_agrees_on_a_name_of_its_own_whoever_was_there_before():
    import datetime

    store = torch.distributed.HashStore()
    store.set_timeout(datetime.timedelta(seconds=20))
    (first,) = set(names_agreed_on(store, [2, 0, 1], 3))
    store.set("cfnade/asks/2", "gone")  # of a start that not all lived to see
    with pytest.raises(RuntimeError, match="only 1 of 3 processes came"):
        names_agreed_on(store, [0], 3, timeout=0.1)
    (second,) = set(names_agreed_on(store, [0, 1, 2], 3))
    (third,) = set(names_agreed_on(store, [1, 2, 0], 3))
    assert len({first, second, third}) == 3


def test_processes_that_find_different_checkpoints_stop(tmp_path):
    script = tmp_path / "differ.py"
    script.write_text(DIFFER)
    command = torchrun(n_processes=2)
    command[command.index("-m", 3) :] = [str(script), str(tmp_path)]
    done = run(command)
    assert done.returncode == 0, done.stderr
    for number in range(2):
        first, error = json.loads((tmp_path / f"said-{number}.json").read_text())
        assert first == [7, 2]
        assert "1 of 2 processes found something else in the checkpoint" in error


DIFFER = """
import json, pathlib, sys
from cfnade.errors import TrainingError
from cfnade.scale import process_group as exchange

with exchange.joined() as together:
    number = exchange.process_number()
    together.check_same([3, 4], "the same")
    first = [int(value) for value in exchange.from_first(together, [7 + number, 2])]
    try:
        together.check_same([3, number], "the checkpoint")
    except TrainingError as error:
        said = json.dumps([first, str(error)])  # a file each: two that print write into each other
        (pathlib.Path(sys.argv[1]) / f"said-{number}.json").write_text(said)
"""


def test_a_gpu_is_used_if_each_process_of_the_machine_has_one(monkeypatch):
    from cfnade.scale.process_group import _own_gpu

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _own_gpu() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    for n_gpus, device in ((1, None), (2, torch.device("cuda", 1))):
        monkeypatch.setattr(torch.cuda, "device_count", lambda n=n_gpus: n)
        assert _own_gpu() == device
