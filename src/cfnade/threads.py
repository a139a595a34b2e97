"""The number of threads that this process may use, and how to limit it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

from cfnade.errors import ConfigError

CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


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
