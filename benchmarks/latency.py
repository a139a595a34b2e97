"""One request at the paper's scale: python benchmarks/latency.py.

A model of 17,348 items, 256 hidden units and 50 neighbours with random weights is saved, loaded in
a fresh process and asked. Writes benchmarks/results/latency.json; one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from cfnade import ImplicitCFNADE, RelativeRating
from cfnade.data.catalogue import Catalogue
from cfnade.model.config import ModelConfig
from cfnade.model.inference import NumpyNetwork
from cfnade.storage.encoding import weight_shapes
from cfnade.storage.folder import Artifact, save_artifact

OUTCOME = Path(__file__).parent / "results" / "latency.json"
N_ITEMS, N_NEIGHBOURS, N_HISTORY = 17_348, 50, 50


def save_random_model(folder: Path, seed: int = 0) -> None:
    from scipy.sparse import random as random_sparse

    rng = np.random.default_rng(seed)
    config = ModelConfig(N_ITEMS, n_neighbours=N_NEIGHBOURS)
    weights = {
        name: rng.integers(N_ITEMS, size=shape)
        if name == "neighbours"
        else (0.05 * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
    counts = random_sparse(2_000, N_ITEMS, density=0.002, format="csr", random_state=0)
    counts.data = np.ceil(20 * counts.data)
    ratings = RelativeRating().fit(counts)
    catalogue = Catalogue(np.array([f"show-{i}" for i in range(N_ITEMS)], dtype=object))
    save_artifact(Artifact(NumpyNetwork(config, weights), ratings, catalogue, {}), folder)


def ask(folder: Path) -> dict[str, float]:
    """Milliseconds from the start of loading to the first answer, and of later answers."""
    rng = np.random.default_rng(1)
    histories = [
        {f"show-{item}": int(rng.integers(1, 30)) for item in rng.choice(N_ITEMS, N_HISTORY)}
        for _ in range(300)
    ]
    started = time.perf_counter()
    model = ImplicitCFNADE.load(folder)
    model.recommend_for(histories[0], n=10)
    cold = time.perf_counter() - started
    times = {"recommend_for": [], "explain": []}
    for history in histories:
        started = time.perf_counter()
        ids, _ = model.recommend_for(history, n=10)
        recommended = time.perf_counter()
        model.explain(history, ids[0])
        times["recommend_for"].append(recommended - started)
        times["explain"].append(time.perf_counter() - recommended)
    outcome = {"cold_start_ms": 1e3 * cold}
    for name, seconds in times.items():
        outcome[f"{name}_ms"] = 1e3 * float(np.median(seconds))
        outcome[f"{name}_p95_ms"] = 1e3 * float(np.quantile(seconds, 0.95))
    return {name: round(value, 2) for name, value in outcome.items()}


def main() -> None:
    if len(sys.argv) > 1:  # the fresh process
        print(json.dumps(ask(Path(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        save_random_model(folder)
        answer = subprocess.run(
            [sys.executable, __file__, str(folder)], capture_output=True, text=True, check=True
        )
    OUTCOME.write_text(json.dumps(json.loads(answer.stdout), indent=1) + "\n")
    print(OUTCOME.read_text())


if __name__ == "__main__":
    main()
