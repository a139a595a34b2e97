"""Sums over the processes of a training, by torch.distributed: what an update touched, no more.

A plain data-parallel wrapper would send the gradient of every weight. All processes draw the same
split here, so they know which rows of V have one: a run of them, which is summed where it lies. Of
W and A it is the rows that somebody's context has.
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
from cfnade.model.exchange import Alone, Exchange

_SMALL = 1 << 16  # bytes: what is below travels together, as each message costs its time


class Together:
    """Sums over all processes; counts the bytes that this one hands over.

    Args:
        device: Where tensors are summed: nccl does so on a GPU only, and they are brought there.
        n_earlier_starts: Of the same job, as far as the first process knows.
    """

    def __init__(self, device: torch.device | None = None, n_earlier_starts: int = 0) -> None:
        self.n_bytes = 0
        self.device = device or torch.device("cpu")
        self.n_earlier_starts = n_earlier_starts

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

    def check_same(self, numbers: Sequence[int], what: str) -> None:
        """Make sure that all processes have the numbers of the first."""
        expected = from_first(self, numbers)
        n_others = torch.tensor([float(expected != list(numbers))], dtype=torch.float64)
        self.add_up([n_others])
        if n_others.item() > 0:
            raise TrainingError(
                f"{n_others.item():.0f} of {n_processes()} processes found something else in "
                f"{what} than the first one; put it where all machines see the same files"
            )

    def _reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
        self.n_bytes += tensor.nbytes
        with _told():
            there = tensor.to(self.device)  # itself, if it is there
            dist.all_reduce(there, operation)
            if there is not tensor:
                tensor.copy_(there)


def from_first(exchange: Exchange, numbers: Sequence[int]) -> list[int]:
    """What the first process says, in all of them; whole numbers of up to 53 bits."""
    own = numbers if exchange.is_first else [0] * len(numbers)
    told = torch.tensor(own, dtype=torch.float64)
    exchange.add_up([told])
    return [int(number) for number in told.tolist()]


def is_started_again(exchange: Exchange) -> bool:
    """Whether the job ran before and was started again by `torchrun`; the same in all processes.

    With several machines `torchrun` counts restarts on each one alone, and only where a process
    failed: so all are asked, and the first one knows how often they met.
    """
    here = n_restarts() > 0 or (isinstance(exchange, Together) and exchange.n_earlier_starts > 0)
    told = torch.tensor([float(here)], dtype=torch.float64)
    exchange.add_up([told])
    return told.item() > 0


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
    """How often `torchrun` has started the processes again after one failed on this machine."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def joined(timeout: float = 1800.0) -> Iterator[Exchange]:
    """Join the other processes that `torchrun` started; alone without it.

    Training computes on the CPU, and the processes talk by gloo; by nccl if each has a GPU.

    Args:
        timeout: Seconds to wait for another process before giving up.

    Raises:
        TrainingError: If the others cannot be reached, or one of them is gone.
    """
    if n_processes() == 1:
        yield Alone()
        return
    with _told():
        together = _join(timeout)
    try:
        yield together
    finally:
        dist.destroy_process_group()


def _join(timeout: float) -> Together:
    """Meet the others where `torchrun` says.

    The place is the same after a restart, and holds the addresses of processes that are gone: so
    each start has names of its own there.
    """
    limit = datetime.timedelta(seconds=timeout)
    store, rank, n = next(rendezvous("env://", timeout=limit))
    n_earlier_starts = store.add("cfnade/starts", 1) - 1 if rank == 0 else 0
    store = dist.PrefixStore(agreed_name(store, rank, n, timeout), store)  # type: ignore[attr-defined]
    own = _own_gpu()
    backend = "gloo" if own is None else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=limit, store=store, rank=rank, world_size=n)
    all_have_one = torch.tensor([int(own is not None)])
    dist.all_reduce(all_have_one, dist.ReduceOp.MIN)
    return Together(own if all_have_one.item() else None, n_earlier_starts)


def agreed_name(store: Any, rank: int, n: int, timeout: float = 1800.0) -> str:
    """A name that the processes of one start agree on, and that no earlier start had.

    No number that `torchrun` gives is the same on all machines after a restart. So the first
    process makes one up, and answers everyone who asks; what is left of earlier starts is answered
    as well, and heard by nobody.

    Args:
        store: Where they meet; it outlives them.
        rank: Number of this process.
        n: How many there are.
        timeout: Seconds to wait for the others.

    Raises:
        RuntimeError: If somebody does not come.
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


def _own_gpu() -> torch.device | None:
    """The GPU of this process; None if there are fewer than processes on this machine."""
    n_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return None
    if torch.cuda.device_count() < n_here:
        return None
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


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
