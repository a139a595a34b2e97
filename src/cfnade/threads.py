"""What this machine has: threads that the process may use, and fast products in bfloat16."""

from __future__ import annotations

import math
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
_BF16_AT_MOST = 0.8  # of float32's time, to be worth it
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


@cache
def has_fast_bfloat16(cpu_info: Path = CPU_INFO) -> bool:
    """Whether the CPU has instructions for bfloat16, and a quick trial shows that they are faster.

    Args:
        cpu_info: The file with the CPU's flags.
    """
    try:
        flags = cpu_info.read_text().split()
    except OSError:  # not Linux
        return False
    if not _BF16_FLAGS.intersection(flags) or find_spec("torch") is None:
        return False
    import torch

    rows, inner, columns = _TRIAL

    def seconds(dtype: torch.dtype) -> float:
        left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
        times = repeat(lambda: left @ right, number=1, repeat=_N_TRIALS, timer=time.thread_time)
        return min(times)  # the first prepares, and others may be disturbed

    with limited_threads(1):  # in this thread alone, whose own time other work does not change
        return seconds(torch.bfloat16) < _BF16_AT_MOST * seconds(torch.float32)
