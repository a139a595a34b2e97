"""Training over several processes: the same as one, to the last batch; what happens if one dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.errors import ConfigError, DataError
from cfnade.estimator import ImplicitCFNADE
from cfnade.metrics.evaluate import evaluate
from cfnade.progress import Callbacks
from tests.scale.cluster import descendants, free_port

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from cfnade.scale.prepared import Prepared  # noqa: E402
from cfnade.scale.shard_training import train_on_spark, train_prepared  # noqa: E402
from tests.scale.dying import LAST_EPOCH  # noqa: E402
from tests.scale.processes import (  # noqa: E402
    SETTINGS,
    largest_difference,
    run,
    settings,
    start,
    torchrun,
    weights,
)

pytestmark = pytest.mark.scale


def train_command(folder, out, *more, module=("-m", "cfnade")):
    return [*module, "scale", "train", folder, "--out", out, *more]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("validation_share", 0.2, "--validation-share"),
        ("validation_by", "events", "--split"),
        ("memory_limit", "4GB", "one row group per shard"),
        ("recipe__trials", 3, "trains once"),
        ("choose_by", "ndcg@20", "by MPR"),
        ("recipe__start", "factors", "all users in memory"),
        ("readout__direct_gain", 2.0, "no direct path"),
        ("readout__direct_neighbours", 2, "no direct path"),
        ("readout__direct_l2", 2.0, "no direct path"),
    ],
)
def test_settings_that_cannot_be_changed_on_shards_are_refused(
    folder, tmp_path, name, value, reason
):
    with pytest.raises(ConfigError, match=f"{name} cannot .*{reason}.*leave out {name}"):
        train_prepared(folder, tmp_path / "model", {name: value})


def test_a_folder_that_is_not_prepared_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a prepared folder"):
        train_prepared(tmp_path, tmp_path / "model")


@pytest.mark.parametrize(
    "changes",
    [{}, {"recipe__optimizer": "sgd", "recipe__n_layers": 2, "learning_rate": 0.5}],
    ids=["adam", "sgd, two layers"],
)
def test_two_processes_end_in_the_weights_of_one(folder, tmp_path, changes):
    alone = train_prepared(folder, tmp_path / "one", {**SETTINGS, **changes})
    done = run(torchrun(*train_command(folder, tmp_path / "two", *settings(**changes))))
    assert done.returncode == 0, done.stderr
    assert largest_difference(weights(tmp_path / "one"), weights(tmp_path / "two")) < 1e-5
    told = json.loads((tmp_path / "two" / "model.json").read_text())
    assert told["training"]["best_epoch"] == alone.best_epoch
    assert told["metrics"]["validation_mpr"] == pytest.approx(alone.validation_mpr, abs=1e-3)
    assert "MB sent per update" in done.stdout and done.stdout.count("saved to") == 1
    assert not (tmp_path / "two.checkpoint").exists()


def test_processes_on_unlike_machines_train_in_the_precision_of_the_first(folder, tmp_path):
    script = tmp_path / "unlike.py"
    script.write_text(UNLIKE)
    done = run(torchrun(script, folder, tmp_path / "unlike"))
    assert done.returncode == 0, done.stderr
    rounded = settings(recipe__precision="bfloat16")
    done = run(torchrun(*train_command(folder, tmp_path / "alike", *rounded)))
    assert done.returncode == 0, done.stderr
    unlike, alike = weights(tmp_path / "unlike"), weights(tmp_path / "alike")
    assert largest_difference(unlike, alike) < 1e-6
    train_prepared(folder, tmp_path / "exact", SETTINGS)
    assert largest_difference(weights(tmp_path / "exact"), alike) > 1e-5


UNLIKE = """
import os, sys
from cfnade.fit import plan
from cfnade.scale.shard_training import train_prepared
from tests.scale.processes import SETTINGS

plan.has_fast_bfloat16 = lambda: os.environ["RANK"] == "0"
train_prepared(sys.argv[1], sys.argv[2], {**SETTINGS, "recipe__precision": None})
"""


def test_a_killed_process_stops_the_job_and_resume_goes_on(folder, tmp_path):
    # Without torchrun, which may end the other process before it can report.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
    }
    module = (sys.executable, "-m", "tests.scale.dying", tmp_path / "mark")
    long = settings(max_epochs=400, patience=400)
    command = train_command(folder, tmp_path / "m", *long, module=module)
    first, second = (start(command, RANK=str(rank), **place) for rank in range(2))
    _, errors = first.communicate(timeout=300)
    second.communicate(timeout=300)
    assert (first.returncode, second.returncode) == (1, -signal.SIGKILL), errors
    assert "lost another one" in errors and "--resume" in errors
    state = json.loads((tmp_path / "m.checkpoint" / "training" / "state.json").read_text())
    n_done = len(state["epochs"])
    assert n_done == LAST_EPOCH

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
    done = run(torchrun(*train_command(folder, tmp_path / "m", "--resume", *short)))
    assert done.returncode == 0, done.stderr
    assert f"(resumed after epoch {n_done})" in done.stdout
    for name in ("one", "m"):
        assert largest_difference(weights(tmp_path / name), weights(tmp_path / "whole")) < 1e-4


def test_a_resumed_run_reports_the_bytes_of_its_own_updates(folder, tmp_path):
    script = tmp_path / "again.py"
    script.write_text(AGAIN)
    done = run(torchrun(script, folder, tmp_path / "m"))
    assert done.returncode == 0, done.stderr
    for number in range(2):
        found = json.loads((tmp_path / f"found-{number}.json").read_text())
        whole, resumed, resumed_after = found
        assert resumed == pytest.approx(whole, rel=0.05)  # not a tenth of it
        assert resumed_after == 18


AGAIN = """
import json, shutil, sys
from pathlib import Path
from cfnade.progress import Callbacks
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
found = [whole.bytes_per_update, resumed.bytes_per_update, resumed.resumed_after]
out.with_name(f"found-{exchange.process_number()}.json").write_text(json.dumps(found))
"""


def test_torchrun_starts_a_killed_job_again_if_asked_to(folder, tmp_path):
    module = ("-m", "tests.scale.dying", tmp_path / "mark")
    command = train_command(folder, tmp_path / "m", *settings(max_epochs=9), module=module)
    done = run(torchrun(*command, options=["--max-restarts=1"]))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mark").exists() and "(resumed after epoch " in done.stdout
    train_prepared(folder, tmp_path / "one", {**SETTINGS, "max_epochs": 9})
    assert largest_difference(weights(tmp_path / "m"), weights(tmp_path / "one")) < 1e-4


def test_two_machines_go_on_though_only_one_of_them_counts_the_restart(folder, tmp_path):
    """An agent of `torchrun` each: the one whose process fails counts it, the other does not."""
    options = [
        "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=job",
        "--max-restarts=1", "--local-addr=127.0.0.1",
    ]  # fmt: skip
    module = ("-m", "tests.scale.dying", tmp_path / "mark")
    command = train_command(folder, tmp_path / "m", *settings(max_epochs=9), module=module)
    agents = [start(torchrun(*command, n_processes=1, options=options)) for _ in range(2)]
    try:
        ends = [agent.communicate(timeout=200) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                for pid in [*descendants(agent.pid), agent.pid]:
                    os.kill(pid, signal.SIGKILL)
    assert [agent.returncode for agent in agents] == [0, 0], ends
    assert (tmp_path / "mark").exists()
    assert "(resumed after epoch " in "".join(output for output, _ in ends)
    train_prepared(folder, tmp_path / "one", {**SETTINGS, "max_epochs": 9})
    assert largest_difference(weights(tmp_path / "m"), weights(tmp_path / "one")) < 1e-4


@pytest.mark.filterwarnings("ignore")
def test_spark_starts_the_same_training(spark, prepared, tmp_path):
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
