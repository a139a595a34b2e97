"""Users streamed from shards: every one once, the same batches for any number of processes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

from cfnade.errors import ArtifactError, ConfigError
from cfnade.model.config import ModelConfig, TrainingConfig

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from cfnade.model.training import _Run, train  # noqa: E402
from cfnade.scale.prepared import Prepared  # noqa: E402
from cfnade.scale.shards import ShardedRows  # noqa: E402
from tests.scale.shards_on_disk import write_prepared  # noqa: E402

pytestmark = pytest.mark.scale

MODEL = ModelConfig(n_items=30, n_hidden=8)
TRAINING = TrainingConfig(batch_size=40, max_epochs=3, learning_rate=0.02)


def test_every_user_comes_once_an_epoch_and_all_shards_end_together(folder):
    rows = ShardedRows(Prepared.open(folder), 30.0)
    batches = list(rows.batches(TRAINING, 1, np.random.default_rng(0)))
    assert len(batches) == math.ceil(rows.n_users / 40)
    whole = vstack([likes for likes, _ in batches]).toarray()
    literal = all_confidences(folder)
    assert sorted(map(tuple, whole.tolist())) == sorted(map(tuple, literal.tolist()))
    assert max(n_users for _, n_users in batches) <= 40 + 4  # a shard's share is rounded


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
    for step, (likes, n_whole) in enumerate(batches(0, 1)):
        own = [part[step] for part in parts]
        assert (vstack([likes for likes, _ in own]) != likes).nnz == 0
        assert [n_users for _, n_users in own] == [n_whole] * n_processes


def test_another_epoch_or_seed_is_another_order_and_the_same_again_is_not(folder):
    def first(epoch, seed):
        rows = ShardedRows(Prepared.open(folder), 30.0)
        training = TrainingConfig(batch_size=40, seed=seed)
        return next(rows.batches(training, epoch, np.random.default_rng(0)))[0].toarray().tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(2, 0) and first(1, 0) != first(1, 1)


@pytest.mark.parametrize("bias_start", ["zero", "share", "odds"])
def test_training_starts_where_it_does_in_memory(folder, bias_start):
    training = TrainingConfig(batch_size=40, bias_start=bias_start)
    streamed = _Run(MODEL, training, ShardedRows(Prepared.open(folder), 30.0))
    dense = all_confidences(folder)
    ratings = csr_array(np.where(dense > 0, (dense - 1.0) / 30.0, 0.0).astype(np.float64))
    held = _Run(MODEL, training, ratings)
    for name, weight in held.network.named_parameters():
        torch.testing.assert_close(streamed.network.get_parameter(name), weight, atol=1e-5, rtol=0)
    torch.testing.assert_close(streamed.l2, held.l2)


def test_what_cannot_be_streamed_is_refused(folder):
    prepared = Prepared.open(folder)
    with pytest.raises(ConfigError, match="at least as many shards, got 4"):
        ShardedRows(prepared, 30.0, n_processes=5)
    rows = ShardedRows(prepared, 30.0)
    with pytest.raises(ConfigError, match="batches of 2 are too small"):
        rows.batches(TrainingConfig(batch_size=2), 1, np.random.default_rng(0))


def test_a_checkpoint_of_other_shards_is_refused(folder, tmp_path):
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
