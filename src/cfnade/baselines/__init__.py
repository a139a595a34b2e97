"""The models that CF-NADE is compared with, each a `Scorer`.

`fit` takes counts and returns the model. It raises ConfigError if a setting is invalid,
MissingExtraError if a library is not installed, TrainingError if training fails. May import
`data`, `metrics`, `model`, `beyond` and the foundations.
"""

from __future__ import annotations

from cfnade.baselines.bpr import BPR
from cfnade.baselines.collective import CollectiveIMF
from cfnade.baselines.ease import EASE, EDLAE
from cfnade.baselines.ials import IALS
from cfnade.baselines.imf import IMF
from cfnade.baselines.item_knn import ItemKNN
from cfnade.baselines.logistic_mf import LogisticMF
from cfnade.baselines.lrec import LRec
from cfnade.baselines.multinomial_dae import MultinomialDAE
from cfnade.baselines.popularity import Popularity, RandomScorer
from cfnade.baselines.sampled_als import SampledALS
from cfnade.baselines.slim import SLIM
from cfnade.baselines.weighted_als import ImputedALS, WeightedALS
from cfnade.baselines.without_network import WithoutNetwork

__all__ = [
    "BPR",
    "EASE",
    "EDLAE",
    "IALS",
    "IMF",
    "SLIM",
    "CollectiveIMF",
    "ImputedALS",
    "ItemKNN",
    "LRec",
    "LogisticMF",
    "MultinomialDAE",
    "Popularity",
    "RandomScorer",
    "SampledALS",
    "WeightedALS",
    "WithoutNetwork",
]
