"""The command `cfnade` in a process that kills itself once: `python -m tests.scale.dying MARK ...`.

The second process dies at the start of an epoch, unless the file MARK exists, and leaves it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cfnade.cli.main import run
from cfnade.scale.shards import ShardedRows

LAST_EPOCH = 4
batches = ShardedRows.batches


def dying(rows, training, epoch, rng):
    mark = Path(sys.argv[1])
    if os.environ["RANK"] == "1" and epoch > LAST_EPOCH and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batches(rows, training, epoch, rng)


if __name__ == "__main__":
    ShardedRows.batches = dying
    sys.exit(run(sys.argv[2:]))
