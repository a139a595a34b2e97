"""The models CF-NADE is compared with, each a Scorer."""

from __future__ import annotations

from cfnade.baselines.ease import EASE
from cfnade.baselines.imf import IMF
from cfnade.baselines.popularity import Popularity, RandomScorer

__all__ = ["EASE", "IMF", "Popularity", "RandomScorer"]
