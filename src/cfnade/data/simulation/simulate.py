"""A simulated streaming service: interactions at any scale, with known true preferences.

It takes the place of an event log. What users watch follows from tastes in a latent space and a
long-tailed popularity; how often, from episodes and rewatching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from cfnade.checks import check_above_zero, check_at_least, check_share
from cfnade.data.interactions import Interactions
from cfnade.errors import ConfigError
from cfnade.threads import available_threads

# Users with one random stream, so that data do not depend on blocks or threads. At 17,348 items
# a unit needs two dense arrays of 18 MB.
USERS_PER_UNIT = 256
MAX_THREADS = 8  # each needs the memory of a unit


@dataclass(frozen=True)
class ServiceConfig:
    """Settings of the service; the defaults have the scale of the paper's data.

    Tastes and popularity make the service about as predictable as real ones: the MPR of
    popularity, a tuned matrix factorisation and the true preferences is near 20, 6 and 4.
    """

    n_users: int = 444_480  # as in the paper
    n_items: int = 17_348  # movies and shows, as in the paper
    n_tastes: int = 20  # dimensions; more make a user harder to predict from a history
    taste_strength: float = 2.35  # standard deviation of an item's log-propensity over users
    popularity_exponent: float = 1.0  # popularity is `(rank + head) ** -exponent`
    popularity_head: float = 0.003  # share of the catalogue before popularity falls
    mean_history: float = 36.0  # items per user
    history_spread: float = 1.1  # standard deviation of the log of a history's length
    min_history: int = 5  # items of the user with the fewest
    show_share: float = 0.25  # of the items; the others are movies
    median_episodes: float = 20.0  # of a show
    rewatching: float = 0.4  # probability that someone who fully likes an episode sees it again

    def __post_init__(self) -> None:
        check_at_least(0, **vars(self))
        above_zero = ("n_users", "n_tastes", "popularity_head", "min_history")
        check_above_zero(**{name: getattr(self, name) for name in above_zero})
        for name in ("show_share", "popularity_head"):
            if getattr(self, name) > 1:
                raise ConfigError(f"{name} is a share, at most 1, got {getattr(self, name)}")
        check_share(rewatching=self.rewatching)
        check_at_least(2, median_episodes=self.median_episodes)
        if not self.min_history <= self.mean_history <= self.n_items / 2:
            raise ConfigError(
                f"expected min_history <= mean_history <= n_items / 2, got {self.min_history}, "
                f"{self.mean_history} and {self.n_items / 2}; choose a mean_history in between"
            )

    @staticmethod
    def sized(size: str, **changes: Any) -> ServiceConfig:
        """One of `SIZES`, with changes; raises `ConfigError` if there is no such size."""
        if size not in SIZES:
            raise ConfigError(f"size {size!r} is not known; choose one of {', '.join(SIZES)}")
        return replace(SIZES[size], **changes)


SIZES = {
    "tiny": ServiceConfig(300, 120, 4, 3.0, 1.5, mean_history=12.0),
    "small": ServiceConfig(5_000, 1_000, 8, 2.8, 1.45, mean_history=30.0),
    "medium": ServiceConfig(60_000, 5_000, 12, 2.5, 1.1),
    "paper": ServiceConfig(),
}
"""Settings by size. A history is a larger part of a small catalogue, which flattens
popularity, and fewer users reveal less about taste: the settings compensate for both."""


@dataclass(frozen=True)
class ItemTable:
    """The items, (n_items,) each."""

    name: NDArray[np.object_]  # such as "Show 00123"
    kind: NDArray[np.object_]  # "show" or "movie"
    episodes: NDArray[np.int32]  # at least 2 for a show, 1 for a movie


@dataclass(frozen=True)
class Watched:
    """Views of a block of users, by user and then by item, (n_pairs,) each."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    count: NDArray[np.int32]


class SimulatedService:
    """A streaming service that knows what its users truly like.

    Each user has a taste, each item a place in the same space, and `preferences` is the
    log-propensity `log popularity + taste_strength * affinity`, where the affinity is the inner
    product of taste and place. A user watches items one after the other without repeats, the
    next always in proportion to `exp(preferences)`. So no model can rank unwatched items better,
    on average, than `preferences` does; `cfnade.metrics.oracle.limits` measures how well they do.

    Attributes:
        config, seed: Same settings and seed, same data.
        items: Names, kinds and episodes of the items.
        log_popularity: The same for all users, 0 for the most popular item, (n_items,).
        places: Unit vectors, (n_items, n_tastes).
        tastes: Standard normal, so an affinity is standard normal too, (n_users, n_tastes).
        history_lengths: How many items each user watches, (n_users,).
    """

    def __init__(self, config: ServiceConfig | None = None, *, seed: int = 0) -> None:
        check_at_least(0, seed=seed)
        self.config = config = config or ServiceConfig()
        self.seed = seed
        # Users and items have streams of their own; every unit of users gets one more in _watch.
        item_rng, user_rng = (_stream(seed, part) for part in (0, 1))
        self.items = _draw_items(config, item_rng)
        self.log_popularity = _draw_log_popularity(config, item_rng)
        places = item_rng.standard_normal((config.n_items, config.n_tastes), dtype=np.float32)
        self.places = places / np.linalg.norm(places, axis=1, keepdims=True)
        shape = (config.n_users, config.n_tastes)
        self.tastes = user_rng.standard_normal(shape, dtype=np.float32)
        self.history_lengths = _draw_history_lengths(config, user_rng)

    def preferences(self, users: NDArray[np.integer]) -> NDArray[np.float32]:
        """The true log-propensity to watch, up to a constant per user, (n, n_items)."""
        preferences = self.affinities(users)
        preferences *= np.float32(self.config.taste_strength)
        preferences += self.log_popularity
        return preferences

    def affinities(self, users: NDArray[np.integer]) -> NDArray[np.float32]:
        """The part of the preferences that is taste, standard normal over users, (n, n_items)."""
        return np.asarray(self.tastes[users] @ self.places.T)

    def blocks(self, block_size: int = 65_536) -> Iterator[Watched]:
        """Simulate all users in order, in blocks.

        The size of a block is rounded up to a multiple of `USERS_PER_UNIT`. It does not affect
        the data.
        """
        check_at_least(1, block_size=block_size)
        n_units = -(-self.config.n_users // USERS_PER_UNIT)
        units_per_block = -(-block_size // USERS_PER_UNIT)
        with ThreadPoolExecutor(min(available_threads(), MAX_THREADS)) as pool:
            for first in range(0, n_units, units_per_block):
                units = range(first, min(first + units_per_block, n_units))
                with threadpool_limits(1, "blas"):  # units use the threads
                    parts = list(pool.map(self._watch, units))
                columns = zip(*(vars(part).values() for part in parts), strict=True)
                yield Watched(*(np.concatenate(column) for column in columns))

    def interactions(self, blocks: Iterable[Watched] | None = None) -> Interactions:
        """All counts, sparse, of these blocks or of new ones; unwatched items are empty columns."""
        blocks = self.blocks() if blocks is None else blocks
        pairs = [(block.count, block.item) for block in blocks]
        count, item = (np.concatenate(column) for column in zip(*pairs, strict=True))
        indptr = np.concatenate([[0], np.cumsum(self.history_lengths)])
        n_users, n_items = self.config.n_users, self.config.n_items
        counts = csr_array((count, item, indptr), shape=(n_users, n_items))
        return Interactions(counts, np.arange(n_users), np.arange(n_items), self.items.name)

    def draw_counts(
        self, items: NDArray[np.integer], affinities: NDArray[np.floating], rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """How often users watch an item: the episodes they saw, and those they saw again.

        Scales differ between items; within one item, counts rise with affinity. All arrays are
        (n_pairs,).
        """
        # Choosing by exp(strength * affinity) moves the affinity, standard normal over all
        # pairs, to a mean near the strength among the watched ones: the middle of the liking.
        surprise = rng.standard_normal(len(items))
        liking = 1 / (1 + np.exp(self.config.taste_strength - affinities - surprise))
        seen = 1 + rng.binomial(self.items.episodes[items] - 1, liking)
        # Each episode seen is seen again, and again, with this chance every time.
        again = rng.negative_binomial(seen, 1 - self.config.rewatching * liking)
        return (seen + again).astype(np.int32)

    def _watch(self, unit: int) -> Watched:
        """Simulate the users of one unit."""
        rng = _stream(self.seed, 2, unit)
        users = np.arange(unit * USERS_PER_UNIT, min((unit + 1) * USERS_PER_UNIT, len(self.tastes)))
        lengths = self.history_lengths[users]
        # Every item rings after an exponential time with the propensity as its rate; the first
        # ones to ring are a draw without replacement in proportion to the propensities.
        ring_times = self.preferences(users)  # (n, n_items), turned into times in place
        np.exp(np.negative(ring_times, out=ring_times), out=ring_times)
        ring_times *= rng.standard_exponential(ring_times.shape, dtype=np.float32)
        first_to_ring = [
            np.sort(np.argpartition(times, length)[:length])
            for times, length in zip(ring_times, lengths, strict=True)
        ]
        user, item = np.repeat(users, lengths), np.concatenate(first_to_ring)
        affinities = np.einsum("pt,pt->p", self.tastes[user], self.places[item])  # (n_pairs,)
        count = self.draw_counts(item, affinities, rng)
        return Watched(user.astype(np.int32), item.astype(np.int32), count)


def _draw_items(config: ServiceConfig, rng: np.random.Generator) -> ItemTable:
    """Movies, and shows whose number of episodes differs widely."""
    is_show = rng.random(config.n_items) < config.show_share
    length = config.median_episodes * rng.lognormal(sigma=1.0, size=config.n_items)
    episodes = np.where(is_show, np.clip(np.rint(length), 2, 50 * config.median_episodes), 1)
    kind = np.where(is_show, "show", "movie").astype(object)
    digits = len(str(config.n_items - 1))
    names = [f"{k.capitalize()} {number:0{digits}d}" for number, k in enumerate(kind)]
    return ItemTable(np.array(names, dtype=object), kind, episodes.astype(np.int32))


def _draw_log_popularity(config: ServiceConfig, rng: np.random.Generator) -> NDArray[np.float32]:
    """A Zipf-Mandelbrot law, `(rank + head) ** -exponent`, over the items in random order."""
    head = config.popularity_head * config.n_items
    rank = rng.permutation(config.n_items)
    return (-config.popularity_exponent * np.log1p(rank / head)).astype(np.float32)


def _draw_history_lengths(config: ServiceConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    """Log-normal above the minimum; nobody watches more than half of the catalogue."""
    spread = config.history_spread
    factor = rng.lognormal(-(spread**2) / 2, spread, config.n_users)  # mean 1
    lengths = config.min_history + (config.mean_history - config.min_history) * factor
    return np.minimum(np.rint(lengths), config.n_items // 2).astype(np.int64)


def _stream(seed: int, *part: int) -> np.random.Generator:
    """An independent random stream for one part of the service."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=part)))
