"""How many threads this process may really use, and how to stay within them."""

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
    """Threads that can run at once: what the scheduler and the container's quota allow.

    `OMP_NUM_THREADS`, where it is set, lowers it: libraries beneath keep to it as well.

    `os.cpu_count()` tells the cores of the host; in a container with a quota of two
    cores that is a recipe for sixty-four threads waiting for each other.

    Args:
        cpu_max: The cgroup v2 file with quota and period.

    Returns:
        At least 1.
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
        pass  # no cgroup v2 here: the affinity is all there is
    asked_for = os.environ.get("OMP_NUM_THREADS", "")
    if asked_for.isdecimal():
        threads = min(threads, int(asked_for))
    return max(1, threads)


@contextmanager
def limited_threads(n_threads: int | None = None) -> Iterator[int]:
    """Run numpy, and torch if it is in use, on so many threads; put things back afterwards.

    Args:
        n_threads: None takes what is available.

    Yields:
        The number of threads.

    Raises:
        ConfigError: If it is below 1.
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
