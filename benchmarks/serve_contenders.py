"""Services to compare with: python benchmarks/serve_contenders.py KIND MODEL SOCKET.

All have the same HTTP server, the same path, the same checks and the same thread that computes;
they differ in what that thread does. `nothing` gives one ready answer. `als` computes the user's
factors by `implicit`'s `recalculate_user` and then the ten best items, one request after the
other; `als-together` those of all requests that wait, in one call.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import numpy as np
from pydantic_core import to_json
from scipy.sparse import csr_matrix

from cfnade.serve.app import Service
from cfnade.serve.loaded import LoadedModel
from cfnade.serve.service_settings import ServeSettings
from cfnade.serve.wire import RecommendRequest
from cfnade.serve.worker import run_worker

N_FACTORS = 256

Asked = tuple[LoadedModel, RecommendRequest]


class Nothing(Service):
    """Takes requests and gives a ready answer."""

    ready = to_json({"recommendations": [], "unknown": []})

    def _answer_together(self, asked: list[Asked]) -> list[bytes]:
        return [self.ready] * len(asked)


class Als(Service):
    """`implicit`, with random factors: what it computes takes as long as with learnt ones."""

    def __init__(self, settings: ServeSettings) -> None:
        from implicit.cpu.als import AlternatingLeastSquares

        super().__init__(settings)
        rng = np.random.default_rng(0)
        shape = (self.source.current.n_items, N_FACTORS)
        self.als = AlternatingLeastSquares(N_FACTORS, num_threads=1)
        self.als.item_factors = rng.normal(0, 0.1, shape).astype(np.float32)
        self.als.user_factors = np.zeros((1, N_FACTORS), dtype=np.float32)

    def _answer_together(self, asked: list[Asked]) -> list[bytes]:
        loaded, requests = self.source.current, [request for _, request in asked]
        known = [loaded.columns(list(request.history))[0] for request in requests]
        values = [30.0 * count for request in requests for count in request.history.values()]
        ends = np.cumsum([0, *map(len, known)])
        shape = (len(asked), loaded.n_items)
        user_items = csr_matrix((values, np.concatenate(known), ends), shape, dtype=np.float32)
        users = np.arange(len(asked))
        found = self.als.recommend(users, user_items, N=requests[0].n, recalculate_user=True)
        answers = []
        for ids, scores in zip(*found, strict=True):
            listed = [
                {**loaded.items[column], "score": score, "probability": None}
                for column, score in zip(ids.tolist(), scores.tolist(), strict=True)
            ]
            answers.append(to_json({"recommendations": listed, "unknown": []}))
        return answers


if __name__ == "__main__":
    kind, folder, number = sys.argv[1:]
    together = 1 if kind == "als" else 32
    settings = ServeSettings(Path(folder), watch_seconds=0, most_together=together)
    contender = Nothing if kind == "nothing" else Als
    run_worker(settings, socket.socket(fileno=int(number)), kind=contender)
