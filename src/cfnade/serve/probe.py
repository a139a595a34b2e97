"""A model is tried out before it serves: a damaged one is refused while the old one answers."""

from __future__ import annotations

import math
from typing import Any

from cfnade.errors import ArtifactError
from cfnade.serve import scoring
from cfnade.serve.loaded import LoadedModel
from cfnade.serve.wire import ExplainRequest, RecommendRequest, SimilarRequest

_N_HISTORY = 5


def check_answers(loaded: LoadedModel) -> None:
    """Ask a model what a service asks, and look at the answers.

    What it finds is kept by the model, so the first real request needs not wait for it.

    Args:
        loaded: The model.

    Raises:
        ArtifactError: If an answer is not one.
    """
    try:
        _ask(loaded)
    except ArtifactError:
        raise
    except Exception as error:
        raise ArtifactError(
            f"the model cannot answer a first request ({type(error).__name__}: {error})"
        ) from error


def _ask(loaded: LoadedModel) -> None:
    columns, _ = loaded.search.find("", _N_HISTORY + 1)
    texts = [str(loaded.ids[column]) for column in columns]
    seen = list(dict.fromkeys(texts))  # a text may mean two ids
    history = dict.fromkeys(seen[1:], 3.0)
    disliked: list[str | int] = [*seen[:1]]
    asked = [
        RecommendRequest(),
        RecommendRequest(history=history, explain=True, spread=True),
        RecommendRequest(history=history, disliked=disliked, explain=True),
    ]
    for request, answer in zip(asked, scoring.recommend(loaded, asked), strict=True):
        n_left = loaded.n_items - len(request.history) - len(request.disliked)
        found = [entry["probability"] for entry in answer["recommendations"]]
        _see(len(found) == min(request.n, n_left), "has a wrong number of recommendations")
        _see(all(math.isfinite(p) and 0 <= p <= 1 for p in found), "has no probabilities")
        _see(found == sorted(found, reverse=True), "is not in the order of probabilities")
    explained: Any = scoring.explain(loaded, ExplainRequest(history=history, item=seen[0]))
    _see(math.isfinite(explained["logit"]), "explains by no number")
    alike: Any = scoring.similar(loaded, SimilarRequest(item=seen[0]))
    _see(len(alike["similar"]) == min(10, loaded.n_items - 1), "has too few similar items")


def _see(is_right: bool, what: str) -> None:
    if not is_right:
        raise ArtifactError(f"an answer of the model to a first request {what}")
