"""Sums over the processes of a training, by torch.distributed: what an update touched, no more.

A plain data-parallel wrapper would send the gradient of every weight. All processes draw the same
split here, so they know which rows of V have one: a run of them, which is summed where it lies. Of
W and A it is the rows that somebody's context has.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from cfnade.errors import TrainingError
from cfnade.model.exchange import Alone, Exchange

_SMALL = 1 << 16  # bytes: what is below travels together, as each message costs its time


class Together:
    """Sums over all processes; counts the bytes that this one hands over."""

    def __init__(self) -> None:
        self.n_bytes = 0

    @property
    def is_first(self) -> bool:
        """Whether this process keeps the checkpoints."""
        return dist.get_rank() == 0

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in place."""
        small = [tensor for tensor in tensors if tensor.nbytes < _SMALL]
        for tensor in tensors:
            if tensor.nbytes >= _SMALL:
                self._reduce(tensor, dist.ReduceOp.SUM)
        if small:
            packed = torch.cat([tensor.reshape(-1).double() for tensor in small])
            self._reduce(packed, dist.ReduceOp.SUM)
            totals = torch.split(packed, [tensor.numel() for tensor in small])
            for tensor, total in zip(small, totals, strict=True):
                tensor.copy_(total.view_as(tensor))

    def add_up_rows(
        self, rows: Tensor, values: Sequence[Tensor], n_rows: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Sum arrays of which each process has some rows; only rows that anyone has travel."""
        has_row = torch.zeros(n_rows, dtype=torch.uint8)
        has_row[rows] = 1
        self._reduce(has_row, dist.ReduceOp.MAX)
        any_rows = has_row.nonzero()[:, 0]
        place = torch.searchsorted(any_rows, rows)
        total = values[0].new_zeros(len(values), len(any_rows), values[0].shape[1])
        for array, own in zip(total, values, strict=True):
            array.index_copy_(0, place, own)
        self._reduce(total, dist.ReduceOp.SUM)
        return any_rows, list(total)

    def _reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
        self.n_bytes += tensor.nbytes
        with _told():
            dist.all_reduce(tensor, operation)


def weighted_mean(exchange: Exchange, value: float, weight: float) -> float:
    """The mean of a value over the processes, each with its weight."""
    sums = torch.tensor([value * weight, weight], dtype=torch.float64)
    exchange.add_up([sums])
    return float(sums[0] / sums[1])


def n_processes() -> int:
    """How many processes `torchrun` has started together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_number() -> int:
    """Number of this process among them, from 0."""
    return int(os.environ.get("RANK", "0"))


def n_restarts() -> int:
    """How often `torchrun` has started the processes again after one failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def joined(timeout: float = 1800.0) -> Iterator[Exchange]:
    """Join the other processes that `torchrun` started; alone without it.

    Training computes on the CPU, so the processes talk by gloo.

    Args:
        timeout: Seconds to wait for another process before giving up.

    Raises:
        TrainingError: If the others cannot be reached, or one of them is gone.
    """
    if n_processes() == 1:
        yield Alone()
        return
    with _told():
        _join(datetime.timedelta(seconds=timeout))
    try:
        yield Together()
    finally:
        dist.destroy_process_group()


def _join(timeout: datetime.timedelta) -> None:
    """Meet the others where `torchrun` says.

    The place is the same after a restart, and holds the addresses of processes that are gone: so
    each start has names of its own there.
    """
    store, rank, n = next(rendezvous("env://", timeout=timeout))
    store = dist.PrefixStore(f"start-{n_restarts()}", store)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", timeout=timeout, store=store, rank=rank, world_size=n)


@contextmanager
def _told() -> Iterator[None]:
    """Say what it means if talking to the others fails."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainingError(
            f"process {process_number()} of {n_processes()} lost another one ({reason:.300}); see "
            "why that one ended, and go on from the checkpoint with the same command and --resume"
        ) from error
