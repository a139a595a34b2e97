"""A simulated service on disk, with its limits: how well the true preferences would rank."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.checks import check_at_least
from cfnade.data.ingest.scan import quote_text
from cfnade.data.interactions import CountMatrix
from cfnade.data.ratings import RelativeRating
from cfnade.data.simulation.simulate import SimulatedService, Watched
from cfnade.data.splitting import MIN_ITEMS, hold_out
from cfnade.errors import DataError

USERS_AT_ONCE = 256
DRAWS_PER_AFFINITY = 32
AFFINITIES = np.linspace(-2.0, 6.0, 17, dtype=np.float32)
"""Where expected ratings are tabulated; affinities are standard normal, watched ones near 2."""


@dataclass(frozen=True)
class OracleLimits:
    """Mean percentage ranking (Eq. 15), in percent, of the best and of the simplest ranking."""

    n_users_judged: int  # users with something held out
    n_held_out: int  # their held-out pairs
    oracle_mpr: float  # by true preference, weighted by relative rating: no model is better
    oracle_mpr_unweighted: float  # by true preference, all pairs alike
    popularity_mpr: float  # by the number of watchers in the training part, weighted
    popularity_mpr_unweighted: float  # by the number of watchers, all pairs alike


def limits(
    service: SimulatedService,
    counts: CountMatrix,
    *,
    n_users: int = 20_000,
    rng: int | np.random.Generator = 0,
) -> OracleLimits:
    """Evaluate the true preferences, and popularity, as any model is evaluated.

    10 % of each user's pairs are held out, relative ratings are fitted on the rest, and the
    candidates are the items outside the kept history. The best order for the unweighted figure is
    by propensity; for the weighted one, by propensity times expected relative rating. Simulated
    users are independent, so the first `n_users` are a fair sample.
    """
    check_at_least(1, n_users=n_users)
    rng = np.random.default_rng(rng)
    kept, held_out = hold_out(counts, rng=rng)
    ratings = RelativeRating().fit(kept)
    watchers = np.bincount(kept.indices, minlength=kept.shape[1]).astype(np.float32)  # (n_items,)
    log_rating = np.log(_expected_ratings(service, ratings, rng))

    def by_weighted_preference(users: NDArray[np.integer]) -> NDArray[np.float32]:
        return service.preferences(users) + _interpolate(log_rating, service.affinities(users))

    def by_popularity(users: NDArray[np.integer]) -> NDArray[np.float32]:
        return np.tile(watchers, (len(users), 1))

    kept, held_out = kept[:n_users], held_out[:n_users]
    if held_out.nnz == 0:
        raise DataError(
            f"none of the {kept.shape[0]} users has {MIN_ITEMS} items or more, so there is nothing "
            "to hold out; raise mean_history, or set oracle_users to 0"
        )
    weight = ratings.transform(held_out).data  # (n_held_out,)
    unweighted_oracle = percentile_ranks(service.preferences, kept, held_out)
    weighted_oracle = percentile_ranks(by_weighted_preference, kept, held_out)
    popularity = percentile_ranks(by_popularity, kept, held_out)
    return OracleLimits(
        n_users_judged=int(np.count_nonzero(np.diff(held_out.indptr))),
        n_held_out=int(held_out.nnz),
        oracle_mpr=100 * float(np.average(weighted_oracle, weights=weight)),
        oracle_mpr_unweighted=100 * float(unweighted_oracle.mean()),
        popularity_mpr=100 * float(np.average(popularity, weights=weight)),
        popularity_mpr_unweighted=100 * float(popularity.mean()),
    )


def percentile_ranks(
    scores: Callable[[NDArray[np.integer]], NDArray[np.float32]],
    kept: CountMatrix,
    held_out: CountMatrix,
) -> NDArray[np.float64]:
    """Rank of each held-out pair among the user's candidates: all items that were not kept.

    Ranks are 0 for the best to 1 for the worst, ties at their mean, in the order of
    `held_out.indices`. `scores` turns user numbers, (n,), into scores that may be overwritten,
    (n, n_items).
    """
    n_candidates = kept.shape[1] - np.diff(kept.indptr)  # (n_users,)
    ranks: list[float] = []
    for first in range(0, kept.shape[0], USERS_AT_ONCE):
        users = np.arange(first, min(first + USERS_AT_ONCE, kept.shape[0]))
        block = scores(users)  # (n, n_items)
        block[kept[users].nonzero()] = -np.inf  # behind every candidate
        rows, items = held_out[users].nonzero()
        for row, item in zip(rows, items, strict=True):
            n_before = np.count_nonzero(block[row] > block[row, item])
            n_tied = np.count_nonzero(block[row] == block[row, item]) - 1
            ranks.append((n_before + n_tied / 2) / (n_candidates[first + row] - 1))
    return np.array(ranks)


def _expected_ratings(
    service: SimulatedService, ratings: RelativeRating, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Mean relative rating of an item's watchers at each of `AFFINITIES`, (n_items, n_affinities).

    Ratings of shows rise with affinity; movies, mostly seen once, are all rated high.
    """
    items = np.repeat(np.arange(service.config.n_items), DRAWS_PER_AFFINITY)
    columns = []
    for affinity in AFFINITIES:
        counts = service.draw_counts(items, np.full(len(items), affinity), rng)
        drawn = ratings.of_pairs(items, counts.astype(np.float64))
        columns.append(drawn.reshape(-1, DRAWS_PER_AFFINITY).mean(axis=1))
    return np.stack(columns, axis=1).astype(np.float32)


def _interpolate(table: NDArray[np.float32], at: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each item's value at each affinity, interpolated between the tabulated ones, (n, n_items)."""
    columns = [np.interp(x, AFFINITIES, y) for x, y in zip(at.T, table, strict=True)]
    return np.stack(columns, axis=1).astype(np.float32)


def write_service(
    service: SimulatedService,
    folder: str | Path,
    *,
    oracle_users: int = 20_000,
    users_per_shard: int = 65_536,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write a service and its limits into a folder.

    - `interactions/part-*.parquet`: user, item, count;
    - `items.parquet`: item, name, kind, episodes;
    - `service.json`: the figures returned, and the settings; written last.

    Args:
        service: What to write.
        folder: Created if missing.
        oracle_users: Users to measure the limits on, with all counts in memory, sparse. 0 skips
            the limits and holds at most one shard.
        users_per_shard: Rounded as the block size of `SimulatedService.blocks`.
        progress: Called with the number of users written so far.

    Returns:
        Sizes, the seed, and the fields of `OracleLimits` unless `oracle_users` is 0.
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
    if oracle_users:
        counts = service.interactions(written_blocks()).counts
        figures |= asdict(limits(service, counts, n_users=oracle_users))
    else:
        for _ in written_blocks():
            pass
    numbers = np.arange(service.config.n_items, dtype=np.int32)
    _write_parquet({"item": numbers, **vars(service.items)}, items)
    facts = figures | {"settings": asdict(service.config)}
    summary.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return figures


def _write_parquet(columns: dict[str, NDArray[Any]], path: Path) -> None:
    import duckdb

    place = quote_text(str(path))
    with duckdb.connect() as connection:
        connection.register("columns", columns)
        connection.execute(f"COPY columns TO {place} (FORMAT parquet, COMPRESSION zstd)")
