"""A simulated service on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.ingest.scan import connect, quote_text
from cfnade.data.interactions import CountMatrix
from cfnade.data.simulation.simulate import SimulatedService, Watched
from cfnade.errors import DataError


def write_service(
    service: SimulatedService,
    folder: str | Path,
    *,
    limits: Callable[[SimulatedService, CountMatrix], dict[str, Any]] | None = None,
    users_per_shard: int = 65_536,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write a service, perhaps with its limits, into a folder.

    - `interactions/part-*.parquet`: user, item, count;
    - `items.parquet`: item, name, kind, episodes;
    - `service.json`: the figures returned, and the settings; written last.

    Args:
        service: What to write.
        folder: Created if missing.
        limits: Measures them, as `cfnade.metrics.oracle.limits`, with all counts in memory,
            sparse. Without it, at most one shard is in memory.
        users_per_shard: Rounded as the block size of `SimulatedService.blocks`.
        progress: Called with the number of users written so far.

    Returns:
        Sizes, the seed, and the limits.
    """
    folder = Path(folder)
    shards, items, summary = (folder / n for n in ("interactions", "items.parquet", "service.json"))
    for path in (shards, items, summary):  # old and new shards would mix
        if path.exists():
            raise DataError(f"{path} exists already; delete it or choose another folder")
    shards.mkdir(parents=True)

    def written_blocks() -> Iterator[Watched]:
        for number, block in enumerate(service.blocks(users_per_shard)):
            _write_parquet(vars(block), shards / f"part-{number:05d}.parquet")
            if progress:
                progress(int(block.user[-1]) + 1)
            yield block

    figures: dict[str, Any] = {
        "n_users": service.config.n_users,
        "n_items": service.config.n_items,
        "n_pairs": int(service.history_lengths.sum()),
        "seed": service.seed,
    }
    if limits:
        figures |= limits(service, service.interactions(written_blocks()).counts)
    else:
        for _ in written_blocks():
            pass
    numbers = np.arange(service.config.n_items, dtype=np.int32)
    _write_parquet({"item": numbers, **vars(service.items)}, items)
    facts = figures | {"settings": asdict(service.config)}
    summary.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return figures


def _write_parquet(columns: dict[str, NDArray[Any]], path: Path) -> None:
    with connect() as connection:
        connection.register("columns", columns)
        place = quote_text(str(path))
        connection.execute(f"COPY columns TO {place} (FORMAT parquet, COMPRESSION zstd)")
