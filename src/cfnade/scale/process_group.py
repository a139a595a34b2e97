"""Sums over training processes with torch.distributed: only what an update touched is sent.

A plain data-parallel wrapper would send the gradient of every weight. Here all processes draw the
same split, so they know which rows of V have a gradient: a run, which is summed in place. Of W and
A, these are the rows in anyone's context.
"""

from __future__ import annotations

import datetime
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from cfnade.errors import TrainingError
from cfnade.model.batches import Exchange

_SMALL = 1 << 16  # bytes: smaller tensors are sent in one message


class Together(Exchange):
    """Sums over all processes; counts the bytes that this one sends."""

    def __init__(self, n_earlier_starts: int = 0) -> None:
        self.is_first = dist.get_rank() == 0
        self.n_earlier_starts = n_earlier_starts

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
        """Sum arrays of which each process has some rows; send only rows that anyone has."""
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

    def check_same(self, numbers: Sequence[int], what: str) -> None:
        """Raise `TrainingError` unless all processes have the numbers of the first."""
        (n_others,) = _sums(self, float(from_first(self, numbers) != list(numbers)))
        if n_others > 0:
            raise TrainingError(
                f"{n_others:.0f} of {n_processes()} processes found something else in "
                f"{what} than the first; put it where all machines see the same files"
            )

    def _reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
        self.n_bytes += tensor.nbytes
        with _lost_process():
            dist.all_reduce(tensor, operation)


def _sums(exchange: Exchange, *numbers: float) -> list[float]:
    """Each number, summed over the processes."""
    sums = torch.tensor(numbers, dtype=torch.float64)
    exchange.add_up([sums])
    return list(sums.tolist())


def from_first(exchange: Exchange, numbers: Sequence[int]) -> list[int]:
    """The numbers of the first process, in all of them; whole, of at most 53 bits."""
    own = numbers if exchange.is_first else [0] * len(numbers)
    return [int(number) for number in _sums(exchange, *own)]


def number_of_first(exchange: Exchange, number: float | None) -> float | None:
    """The number of the first process, in all of them."""
    own = (float(number is not None), number or 0.0) if exchange.is_first else (0.0, 0.0)
    is_known, value = _sums(exchange, *own)
    return value if is_known else None


def is_started_again(exchange: Exchange) -> bool:
    """Whether `torchrun` restarted the job; the same in all processes.

    `torchrun` counts restarts only on the machine where a process failed, so the counts are summed.
    """
    n_restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return _sums(exchange, n_restarts + exchange.n_earlier_starts)[0] > 0


def weighted_mean(exchange: Exchange, total: float, weight: float) -> float:
    """The mean of weighted values over the processes; `total` is this one's weighted sum."""
    total, weight = _sums(exchange, total, weight)
    return total / weight


def n_processes() -> int:
    """Number of processes that `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_number() -> int:
    """Number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def joined(timeout: float = 1800.0) -> Iterator[Exchange]:
    """Join the other processes that `torchrun` started; alone without it.

    Raises `TrainingError` if another process does not come within `timeout` seconds, or is gone.
    """
    if n_processes() == 1:
        yield Exchange()
        return
    with _lost_process():
        together = _join(timeout)
    try:
        yield together
    finally:
        dist.destroy_process_group()


def _join(timeout: float) -> Together:
    """Meet the others at the store of `torchrun`, under names of this start alone.

    After a restart the store is the same, and holds addresses of dead processes.
    """
    limit = datetime.timedelta(seconds=timeout)
    store, rank, n = next(rendezvous("env://", timeout=limit))
    n_earlier_starts = store.add("cfnade/starts", 1) - 1 if rank == 0 else 0
    store = dist.PrefixStore(agreed_name(store, rank, n, timeout), store)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", timeout=limit, store=store, rank=rank, world_size=n)
    return Together(n_earlier_starts)


def agreed_name(store: Any, rank: int, n: int, timeout: float = 1800.0) -> str:
    """A name that the processes of one start agree on, and no earlier start had.

    No number of `torchrun` is the same on all machines after a restart. So the first process makes
    up a name and answers everyone who asks, even processes of earlier starts, which are gone.
    Raises `RuntimeError` if one of the `n` processes does not come within `timeout` seconds.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"cfnade/asks/{rank}", own)
        name = str(store.get(f"cfnade/answer/{own}").decode())
        store.add(f"cfnade/{name}/n_here", 1)
        return name
    until = time.monotonic() + timeout
    while (n_here := store.add(f"cfnade/{own}/n_here", 0)) < n - 1:
        if time.monotonic() > until:
            raise RuntimeError(f"only {n_here + 1} of {n} processes came within {timeout:g} s")
        for other in range(1, n):
            if store.check([f"cfnade/asks/{other}"]):
                asks = store.get(f"cfnade/asks/{other}").decode()
                store.set(f"cfnade/answer/{asks}", own)
        time.sleep(0.02)
    return own


@contextmanager
def _lost_process() -> Iterator[None]:
    """Explain errors of the communication."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainingError(
            f"process {process_number()} of {n_processes()} lost another one ({reason:.300}); find "
            "out why it ended, and continue with the same command and --resume"
        ) from error
