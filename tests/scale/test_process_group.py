"""What processes that train together exchange and agree on.

Scripts leave their findings in a file each: two processes that print may write into each other.
"""

from __future__ import annotations

import datetime
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from cfnade.scale.process_group import agreed_name  # noqa: E402
from tests.scale.processes import run, torchrun  # noqa: E402

pytestmark = pytest.mark.scale


def test_the_gradients_of_two_processes_are_those_of_one_batch(folder, tmp_path):
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    alone = run([sys.executable, script, folder, tmp_path / "one"])
    assert alone.returncode == 0, alone.stderr
    together = run(torchrun(script, folder, tmp_path / "two"))
    assert together.returncode == 0, together.stderr
    one, first, second = (np.load(tmp_path / name) for name in ("one0.npz", "two0.npz", "two1.npz"))
    for name in set(one.files) - {"n_bytes"}:
        assert np.array_equal(first[name], second[name]), name  # both move by the same
        np.testing.assert_allclose(first[name], one[name], rtol=1e-5, atol=1e-8, err_msg=name)
        assert np.abs(one[name]).max() > 0
    # Only what the update touched was exchanged: what is small in one message, as doubles.
    n_targets, n_liked = (int(one[n].any(axis=1).sum()) for n in ("output_weight", "like_weight"))
    assert n_targets == 15 and n_liked < 16
    small = n_targets * 8 + 30 + 8 + (64 + 8) + 1  # of V, d, b, the second layer, and the loss
    of_rows = 30 + 2 * n_liked * 8 * 4  # who has which, then of W and A
    assert first["n_bytes"] == second["n_bytes"] == 8 * (small + 8) + of_rows


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
    n_bytes = together.n_bytes
    np.savez(f"{sys.argv[2]}{number}.npz", n_bytes=n_bytes, **kept)
"""


def names_agreed_on(store, ranks, n, timeout=20.0):
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(lambda rank: agreed_name(store, rank, n, timeout), ranks))


def test_each_start_agrees_on_a_name_of_its_own_whoever_was_there_before():
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
    done = run(torchrun(script, tmp_path))
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
        said = json.dumps([first, str(error)])
        (pathlib.Path(sys.argv[1]) / f"said-{number}.json").write_text(said)
"""
