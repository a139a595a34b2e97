"""CF-NADE as a LensKit component, judged by LensKit beside its own models.

Needs `pip install 'cfnade[train]' lenskit`.

    python examples/lenskit_evaluation.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from lenskit.als import ImplicitMFScorer
from lenskit.batch import recommend
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery, from_interactions_df
from lenskit.metrics import NDCG, Recall, RunAnalysis
from lenskit.pipeline import Component, topn_pipeline
from lenskit.splitting import SampleFrac, sample_users
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel

from cfnade import ImplicitCFNADE, Interactions


class CFNADEConfig(BaseModel):
    """Settings of the component, by name."""

    count_field: str | None = "count"
    """Attribute of the interactions that holds counts; None takes every pair as 1."""

    n_hidden: int = 256
    alpha: float = 30.0
    max_epochs: int = 200


class CFNADEScorer(Component[ItemList], Trainable):
    """Scores items by a user's history; somebody without one gets what is liked in general."""

    config: CFNADEConfig
    model: ImplicitCFNADE | None = None

    def train(self, data: Dataset, options: TrainingOptions) -> None:
        """Fit the model on a data set."""
        if self.model is not None and not options.retrain:
            return
        field = self.config.count_field
        counts = data.interactions().matrix().scipy(field)
        settings = self.config.model_dump(exclude={"count_field"})
        seed = int(options.random_generator().integers(2**31))
        self.model = ImplicitCFNADE(**settings, random_state=seed).fit(
            Interactions(counts, data.users.ids(), data.items.ids())
        )

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Score items for a query; those that the model does not know get NaN."""
        catalogue = self.model.catalogue_
        history = RecQuery.create(query).query_items
        counts: dict = {}
        if history is not None:
            field = self.config.count_field
            values = None if field is None else history.field(field)
            values = np.ones(len(history)) if values is None else values
            counts = dict(zip(history.ids().tolist(), values.tolist(), strict=True))
        (logits,) = self.model.scores(catalogue.history(counts, unknown="ignore"))
        columns = np.array(
            [catalogue.column_of.get(item, -1) for item in items.ids().tolist()], int
        )
        scores = np.where(columns >= 0, logits[columns], np.nan)
        return ItemList(items, scores=scores)


def plays() -> pd.DataFrame:
    """Made-up counts of 400 people with one of four tastes."""
    rng = np.random.default_rng(0)
    is_taste = np.arange(400)[:, None] % 4 == np.arange(60)[None, :] % 4
    users, items = np.nonzero(rng.random((400, 60)) < np.where(is_taste, 0.6, 0.05))
    return pd.DataFrame(
        {"user_id": users, "item_id": items, "count": rng.geometric(0.3, len(users))}
    )


def main() -> pd.DataFrame:
    """Hold out a fifth of 200 people's items, and see who finds them."""
    data = from_interactions_df(plays())
    split = sample_users(data, 200, SampleFrac(0.2, rng=1), rng=1)
    scorers = {
        "cfnade": CFNADEScorer(n_hidden=32, max_epochs=20),
        "lenskit ALS": ImplicitMFScorer(embedding_size=8, epochs=5),
    }
    rows = {}
    for name, scorer in scorers.items():
        pipeline = topn_pipeline(scorer, n=10)
        pipeline.train(split.train, TrainingOptions(rng=1))
        found = recommend(pipeline, split.test, n_jobs=1)
        analysis = RunAnalysis(NDCG(10), Recall(10)).measure(found, split.test)
        rows[name] = analysis.list_summary()["mean"]
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    print(main())
