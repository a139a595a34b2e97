"""Measure partial_fit with a tenth of the items held back: python benchmarks/new_items.py DATA.

DATA is the folder of data sets, as for benchmarks/accuracy.py. A model is fitted without a random
tenth of the items, and then gets all pairs by `partial_fit`, with known items trained or kept. It
is compared with a model fitted on all pairs: default settings, the same held-out pairs.
Writes benchmarks/results/new_items.json and benchmarks/results_new_items.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_sets import SETS
from numpy.typing import NDArray
from results import OUTCOMES, ROOT
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, Interactions, RelativeRating
from cfnade.data.interactions import CountMatrix, as_count_matrix
from cfnade.data.splitting import hold_out
from cfnade.fit.extend import N_EPOCHS
from cfnade.metrics.evaluate import evaluate

NAMES = ("online-retail", "lastfm-2k")
NEW_SHARE = 0.1
SEED = 0
TEXT = ROOT / "benchmarks" / "results_new_items.md"


def run(data: Interactions) -> dict[str, Any]:
    """Fit, grow and test on one data set."""
    rng = np.random.default_rng(SEED)
    known, test = hold_out(data.counts, share=0.1, rng=rng)
    is_new = np.zeros(data.n_items, dtype=np.bool_)
    is_new[rng.permutation(data.n_items)[: round(NEW_SHARE * data.n_items)]] = True
    everything = Interactions(known, data.user_ids, data.item_ids)
    before = Interactions(known[:, ~is_new], data.user_ids, data.item_ids[~is_new])
    relevance = RelativeRating().fit(known).transform(test)
    parts = {"all": np.ones_like(is_new), "known": ~is_new, "new": is_new}

    def judge(model: ImplicitCFNADE) -> dict[str, dict[str, float]]:
        columns = np.array([data.item_index[item] for item in model.catalogue_.ids.tolist()])
        histories = as_count_matrix(known[:, columns])
        return {
            part: evaluate(
                model,
                histories,
                as_count_matrix(_of_items(test, items)[:, columns]),
                as_count_matrix(_of_items(relevance, items)[:, columns]),
                metrics=("mpr", "ndcg@100"),
                n_bootstrap=0,
            ).metrics
            for part, items in parts.items()
        }

    models: dict[str, Any] = {}

    def timed(name: str, make: Callable[[], ImplicitCFNADE], *, judged: bool = True) -> None:
        started = time.perf_counter()
        model = make()
        seconds = time.perf_counter() - started
        models[name] = {"seconds": seconds, "n_epochs": model.best_epoch_}
        if judged:
            models[name] |= judge(model)
        print(name, models[name], flush=True)

    with tempfile.TemporaryDirectory() as folder:

        def fit_before() -> ImplicitCFNADE:
            model = ImplicitCFNADE(random_state=SEED).fit(before)
            model.save(f"{folder}/model")
            return model

        def grow(**options: Any) -> Callable[[], ImplicitCFNADE]:
            model = ImplicitCFNADE.load(f"{folder}/model")
            return lambda: model.partial_fit(everything, **options)

        timed("fit without the new items", fit_before, judged=False)
        timed("partial_fit, n_epochs=0", grow(n_epochs=0))
        timed('partial_fit, train="new"', grow(train="new"))
        timed('partial_fit, train="all"', grow(train="all"))
        timed("fit on everything", lambda: ImplicitCFNADE(random_state=SEED).fit(everything))
    return {
        "n_users": data.n_users,
        "n_items": data.n_items,
        "n_new_items": int(is_new.sum()),
        "n_test_pairs": int(test.nnz),
        "n_new_test_pairs": int(_of_items(test, is_new).nnz),
        "n_epochs": N_EPOCHS,
        "seed": SEED,
        "models": models,
    }


def _of_items(counts: CountMatrix, items: NDArray[np.bool_]) -> CountMatrix:
    """The pairs of some items, in the same shape."""
    keep = items[counts.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[counts.indptr]
    return csr_array((counts.data[keep], counts.indices[keep], indptr), shape=counts.shape)


def text(outcomes: dict[str, Any]) -> str:
    """A section for docs/results.md."""
    lines = [
        "## New items without starting over",
        "",
        "A first fit lacks a random tenth of the items. Then `partial_fit` gets all training "
        f"pairs, for {N_EPOCHS} epochs, and trains all items or only new ones; with 0 epochs, new "
        "items keep their start weights. The last row is a new fit on all pairs. Test pairs are "
        "10 % of each user's items; default settings, one split, seed 0. MPR in percent and "
        "nDCG@100 over all test pairs, those of known and of new items, ranked among all items "
        "outside the history. `make bench-new-items DATA=folder`",
    ]
    for name, outcome in outcomes.items():
        lines += [
            "",
            f"{SETS[name].title}: {outcome['n_items']:,} items, "
            f"{outcome['n_new_items']:,} of them new; {outcome['n_test_pairs']:,} test pairs, "
            f"{outcome['n_new_test_pairs']:,} of new items.",
            "",
            "| | all: MPR | nDCG | known items: MPR | nDCG | new items: MPR | nDCG | seconds |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for model, found in outcome["models"].items():
            figures = [
                figure
                for part in ("all", "known", "new")
                for figure in (
                    [f"{found[part]['mpr']:.2f}", f"{found[part]['ndcg@100']:.3f}"]
                    if part in found
                    else ["", ""]
                )
            ]
            lines.append(f"| {model} | {' | '.join(figures)} | {found['seconds']:.1f} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    outcomes = {name: run(SETS[name].read(folder)[0]) for name in sys.argv[2:] or NAMES}
    (OUTCOMES / "new_items.json").write_text(json.dumps(outcomes, indent=1) + "\n")
    TEXT.write_text(text(outcomes))
