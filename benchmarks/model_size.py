"""Sizes of saved models, and what 16 bits change: python benchmarks/model_size.py DATA.

DATA is a folder with the Parquet files. The default fit on all counts of each data set, with three
seeds, is saved with each `dtype`; `implicit` ALS with 256 factors is saved by its own `save`. For
every user, the top 10 of the loaded model is compared with that of the model in memory: the share
of users for whom it is the same set of items, all seeds together. Writes
benchmarks/results/model_size.json and prints the table of the docs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
from accuracy_sets import SETS
from implicit.cpu.als import AlternatingLeastSquares
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from cfnade import ImplicitCFNADE
from cfnade.data.interactions import CountMatrix
from cfnade.storage.encoding import WeightType

OUTCOMES = Path(__file__).parent / "results" / "model_size.json"
NAMES = ("ml-100k", "ml-1m", "lastfm-2k", "online-retail", "gowalla-checkins")
DTYPES = get_args(WeightType)
N_SEEDS, N_BEST = 3, 10


def megabytes(path: Path) -> float:
    """Size of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    return sum(f.stat().st_size for f in files) / 1e6


def top(model: ImplicitCFNADE, counts: CountMatrix) -> list[frozenset[Any]]:
    """The best items of every user, without an order."""
    rows: NDArray[Any] = model.recommend(np.arange(counts.shape[0]), counts, N=N_BEST)[0]
    return [frozenset(row) for row in rows]


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Sizes and shares of one data set."""
    counts = SETS[name].read(folder)[0].counts
    sizes: dict[str, float] = {}
    n_same = dict.fromkeys(DTYPES, 0)
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(N_SEEDS):
            model = ImplicitCFNADE(random_state=seed).fit(counts)
            expected = top(model, counts)
            for dtype in DTYPES:
                model.save(Path(scratch) / dtype, dtype=dtype)
                sizes[dtype] = megabytes(Path(scratch) / dtype)
                found = top(ImplicitCFNADE.load(Path(scratch) / dtype), counts)
                n_same[dtype] += sum(a == b for a, b in zip(expected, found, strict=True))
        als = AlternatingLeastSquares(factors=256, iterations=1)
        als.fit(csr_matrix(counts), show_progress=False)
        als.save(Path(scratch) / "als.npz")
        sizes["implicit"] = megabytes(Path(scratch) / "als.npz")
    n_users, n_items = counts.shape
    return {
        "set": name,
        "n_users": n_users,
        "n_items": n_items,
        "n_seeds": N_SEEDS,
        "megabytes": {kind: round(size, 2) for kind, size in sizes.items()},
        "same_top_10_percent": {k: 100.0 * n / (N_SEEDS * n_users) for k, n in n_same.items()},
        "users_with_another_top_10": {k: N_SEEDS * n_users - n for k, n in n_same.items()},
    }


def table(outcomes: list[dict[str, Any]]) -> str:
    """The table of docs/guides/saving-and-serving.md."""
    kinds = (*DTYPES, "implicit")
    lines = [
        f"| data (users x items) | {' | '.join(f'{kind}, MB' for kind in kinds)} "
        "| same top 10, float16 | int16 |",
        "|---" * (len(kinds) + 3) + "|",
    ]
    for outcome in outcomes:
        cells = [f"{outcome['set']} ({outcome['n_users']:,} x {outcome['n_items']:,})"]
        cells += [f"{outcome['megabytes'][kind]:.1f}" for kind in kinds]
        cells += [f"{outcome['same_top_10_percent'][kind]:.2f} %" for kind in DTYPES[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all data sets, write the outcomes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of data sets")
    outcomes = []
    folder = parser.parse_args().data
    for name in NAMES:
        outcomes.append(measure(name, folder))
        print(json.dumps(outcomes[-1]), flush=True)
    OUTCOMES.write_text(json.dumps(outcomes, indent=1) + "\n")
    print(table(outcomes))


if __name__ == "__main__":
    main()
