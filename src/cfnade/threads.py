"""What this machine has: threads that the process may use, and fast products in few bits."""

from __future__ import annotations

import math
import operator
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from timeit import repeat

from threadpoolctl import threadpool_limits

from cfnade.errors import ConfigError

CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
CPU_INFO = Path("/proc/cpuinfo")

_BF16_FLAGS = {"avx512_bf16", "amx_bf16"}  # without such instructions bfloat16 is far slower
_INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}  # without such, sums of products may overflow
_AT_MOST = 0.8  # of float32's time, to be worth it
_TRIAL, _N_TRIALS = (1024, 256, 256), 6  # rows, inner and columns of a trial product


def available_threads(cpu_max: Path = CGROUP_CPU_MAX) -> int:
    """Threads that can run at once: by CPU affinity, container quota and `OMP_NUM_THREADS`.

    `os.cpu_count()` would count the host's cores, however few a container may use.

    Args:
        cpu_max: The cgroup v2 file with quota and period.
    """
    if hasattr(os, "sched_getaffinity"):
        threads = len(os.sched_getaffinity(0))
    else:  # macOS and Windows have no affinity call
        threads = os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        if quota != "max":
            threads = min(threads, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2
    asked_for = os.environ.get("OMP_NUM_THREADS", "")
    if asked_for.isdecimal():
        threads = min(threads, int(asked_for))
    return max(1, threads)


@contextmanager
def limited_threads(n_threads: int | None = None) -> Iterator[int]:
    """Limit numpy, and torch if imported, to some threads; undo this afterwards.

    Args:
        n_threads: At least 1; None for all available.

    Yields:
        The number of threads.
    """
    threads = available_threads() if n_threads is None else n_threads
    if threads < 1:
        raise ConfigError(f"n_threads must be at least 1, or None for all; got {n_threads}")
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    with threadpool_limits(threads):
        if torch:
            torch.set_num_threads(threads)
        try:
            yield threads
        finally:
            if torch:
                torch.set_num_threads(before)


def one_thread() -> None:
    """Limit torch, if imported, to one thread in a new thread: it asks OpenMP, which does not."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@cache
def has_fast_bfloat16(cpu_info: Path = CPU_INFO) -> bool:
    """Whether products in bfloat16 are faster: by the CPU's instructions, and a quick trial.

    Args:
        cpu_info: The file with the CPU's flags.
    """
    return _has_any(_BF16_FLAGS, cpu_info) and _is_fast("bfloat16")


@cache
def has_fast_int8(cpu_info: Path = CPU_INFO) -> bool:
    """Whether `torch._int_mm` is there and faster, as `has_fast_bfloat16`."""
    return _has_any(_INT8_FLAGS, cpu_info) and _is_fast("int8")


def _has_any(flags: set[str], cpu_info: Path) -> bool:
    try:
        return not flags.isdisjoint(cpu_info.read_text().split())
    except OSError:  # not Linux
        return False


def _is_fast(dtype: str) -> bool:
    """Whether torch is installed and multiplies faster with this type than with float32."""
    if find_spec("torch") is None:
        return False
    import torch

    rows, inner, columns = _TRIAL
    by_type = {"int8": getattr(torch, "_int_mm", None)}

    def seconds(dtype: str) -> float:
        kind, product = getattr(torch, dtype), by_type.get(dtype, operator.matmul)
        if product is None:
            return math.inf
        left, right = torch.ones(rows, inner, dtype=kind), torch.ones(inner, columns, dtype=kind)
        times = repeat(
            lambda: product(left, right), number=1, repeat=_N_TRIALS, timer=time.thread_time
        )
        return min(times)  # the first prepares, and others may be disturbed

    with limited_threads(1):  # in this thread alone, whose own time other work does not change
        return seconds(dtype) < _AT_MOST * seconds("float32")
