"""The data sets of the accuracy benchmark: how each is read, split and judged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cfnade import Interactions, read_interactions
from cfnade.compare.protocol import ProtocolConfig
from cfnade.data.datasets import write_purchases

METRICS = ("mpr", "ndcg@100", "recall@20")

Parts = tuple[Interactions, Interactions | None]
"""All counts, or the training part and the fixed test part."""


@dataclass(frozen=True)
class AccuracySet:
    """One data set."""

    title: str
    read: Callable[[Path], Parts]
    metrics: tuple[str, ...] = METRICS
    """The tables it is in."""

    trials: int | None = None
    """Settings that each method may try; None for the command's number."""

    methods: tuple[str, ...] | None = None
    """Methods that can run on it; None for all."""

    max_memory_gb: float | None = None
    """Limit of the dense linear models; None for their default."""

    choose_by: str | None = None
    """Metric that all models are chosen by; None weighs MPR and nDCG@100 alike."""

    cfnade: Mapping[str, Any] = field(default_factory=dict)
    """Settings of CF-NADE; if given, it is not searched."""

    is_extra: bool = False
    """Not one of the six main sets."""

    def protocol_config(self) -> ProtocolConfig:
        """The split is fixed: seed 0, or the files' own test part; unseen items are ranked."""
        return ProtocolConfig(seed=0, candidates="unseen", split="random", choose_by=self.choose_by)


def counts(path: Path) -> Interactions:
    """A table as `cfnade compare` reads it, without times: all of it is split at random."""
    return replace(read_interactions(path), log=None)


def whole(name: str) -> Callable[[Path], Parts]:
    """A table from which a test part is held out."""
    return lambda folder: (counts(folder / f"{name}.parquet"), None)


def with_test_part(name: str) -> Callable[[Path], Parts]:
    """A table with a test part of its own."""
    return lambda folder: (
        counts(folder / f"{name}-train.parquet"),
        counts(folder / f"{name}-test.parquet"),
    )


def complete_journey(folder: Path) -> Parts:
    """The purchases of the embedded data set, read as any event log; needs no file."""
    with tempfile.TemporaryDirectory(prefix="cfnade-") as scratch:
        path = Path(scratch) / "purchases.parquet"
        write_purchases(path)
        return counts(path), None


def tiny(folder: Path) -> Parts:
    """Three hundred users of four tastes, for `--quick`; needs no file."""
    rng = np.random.default_rng(0)
    n_users, n_items, n_tastes = 300, 80, 4
    taste = rng.integers(n_tastes, size=n_users)
    fits = taste[:, None] == np.arange(n_items)[None, :] % n_tastes
    popularity = rng.beta(1.0, 4.0, n_items)
    watched = rng.random((n_users, n_items)) < np.where(fits, 0.2 + popularity, 0.3 * popularity)
    counts = np.where(watched, rng.geometric(0.4, watched.shape), 0).astype(float)
    return Interactions.from_matrix(csr_array(counts)), None


SETS = {
    "ml-1m": AccuracySet("MovieLens 1M", whole("ml-1m")),
    "lastfm-2k": AccuracySet("Last.fm 2K", whole("lastfm-2k")),
    "online-retail": AccuracySet("Online Retail", whole("online-retail")),
    "completejourney": AccuracySet("Complete Journey, product types", complete_journey),
    "gowalla-checkins": AccuracySet("Gowalla check-ins", with_test_part("gowalla-checkins")),
    "tafeng": AccuracySet("Ta-Feng", with_test_part("tafeng")),
    "ml-100k": AccuracySet("MovieLens 100K", whole("ml-100k"), is_extra=True),
    "online-retail-2009": AccuracySet(
        "Online Retail, the year before", whole("online-retail-2009"), is_extra=True
    ),
    "anime-5k": AccuracySet("Anime 5K", whole("anime-5k"), is_extra=True),
    "movietweetings-100k": AccuracySet(
        "MovieTweetings 100K",
        whole("movietweetings-100k"),
        is_extra=True,
    ),
    "foursquare-nyc": AccuracySet(
        "Foursquare NYC", with_test_part("foursquare-nyc"), is_extra=True
    ),
    "brightkite-checkins": AccuracySet(
        "Brightkite check-ins", with_test_part("brightkite-checkins"), is_extra=True
    ),
    "lastfm-lightgcn": AccuracySet(
        "Last.fm, the split of LightGCN", with_test_part("lastfm-lightgcn"), is_extra=True
    ),
    "goodbooks-1m": AccuracySet("Goodbooks 1M", whole("goodbooks-1m"), is_extra=True),
    "citeulike-t": AccuracySet("CiteULike-t", whole("citeulike-t"), is_extra=True),
    "amazon-beauty": AccuracySet("Amazon Beauty", whole("amazon-beauty-events"), is_extra=True),
    "gowalla-lightgcn": AccuracySet(
        "Gowalla, the split of NGCF and LightGCN",
        with_test_part("gowalla-lightgcn"),
        metrics=("recall_full@20", "ndcg@20"),
        trials=4,
        methods=(
            "popularity",
            "imf",
            "ials",
            "knn",
            "bpr",
            "ease",
            "edlae",
            "cfnade",
            "cfnade-network",
            "cfnade-no-network",
            "cfnade-paper",
        ),
        max_memory_gb=8.0,
        choose_by="ndcg@20",
        cfnade={"patience": 10},
        is_extra=True,
    ),
}
"""By name; the first six are the main ones."""

QUICK = {"tiny": AccuracySet("A made-up service", tiny)}

PUBLISHED_GOWALLA = (
    ("NGCF", 0.1570, 0.1327, "Wang et al. 2019"),
    ("YouTubeNet", 0.1754, 0.1473, "RecZoo's table"),
    ("LightGCN", 0.1830, 0.1554, "He et al. 2020"),
    ("LightGCN, PyTorch rerun, 3 layers", 0.1824, 0.1547, "LightGCN-PyTorch"),
    ("UltraGCN", 0.1862, 0.1580, "Mao et al. 2021"),
    ("SimpleX", 0.1872, 0.1557, "Mao et al. 2021; RecZoo's table"),
    ("EASE", 0.1765, 0.1467, "quoted in later papers (not checked at the source)"),
    ("GF-CF", 0.1850, 0.1518, "Shen et al. 2021; README of ChebyCF"),
    ("BSPM", 0.1920, 0.1597, "Choi et al., SIGIR 2023 (not checked at the source)"),
    ("PGSP", 0.1917, 0.1606, "Liu et al. 2023, arXiv 2302.02113 (not checked at the source)"),
    ("ChebyCF", 0.1941, 0.1616, "Kim et al., SIGIR 2025; README of its repository"),
    ("GR-MC", 0.2081, 0.1640, "Scientific Reports 2025, Table 3 (same split not confirmed)"),
)
"""Recall@20 and nDCG@20 as published, all with all items but those in train ranked."""
