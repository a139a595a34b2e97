"""How many threads this process may really use, and how to stay within them."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def available_threads(cpu_max: Path = CGROUP_CPU_MAX) -> int:
    """Threads that can run at once: what the scheduler and the container's quota allow.

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
    return max(1, threads)
