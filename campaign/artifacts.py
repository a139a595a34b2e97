"""Mutations of a saved model, three quarters of them with checksums made right again."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from campaign.tally import NASTY, Tally, attempt, changed_bytes, in_batches
from cfnade.data.rating_table import read_ratings
from cfnade.estimator import ImplicitCFNADE
from cfnade.fit.rating_estimator import CFNADE
from cfnade.storage.folder import inspect_artifact, save_artifact
from cfnade.storage.rating_folder import RatingArtifact, save_rating_artifact
from tests.model.test_rating_inference import random_numpy_rating_network
from tests.storage.saved import KEPT, random_artifact, seal

NAMES = ("model.json", "weights.safetensors", "ratings.safetensors", "items.json")
MOST_SECONDS = 5.0
RECORD = {
    "training": {
        "best_epoch": 3,
        "n_looks": 2,
        "item_l2": 0.02,
        "readout": {"direct_gain": 2.0, "history_half_life": 9.0, "repeats": [0.1, 0.2, 0.3, 0.4]},
        "features": {"l2": 3.0, "columns": {"genre": 0.5}},
        "clock": "seconds",
        "event_weights": {"view": 0.5, "purchase": 2.0},
        "target_event": "purchase",
        "partial_fits": [{"number": 1, "data_fingerprint": {"n_pairs": 5}, "n_new_items": 0}],
    },
    "data_fingerprint": {"n_pairs": 9, "sha256": "0"},
}
"""Fields of `model.json` that a fit on an event log and later ones write."""


def artifacts(numbers: range, seed: int, until: float) -> Tally:
    """Mutate a model in these ways; each is refused in one line, or loads and answers."""
    with tempfile.TemporaryDirectory(prefix="cfnade-campaign-") as parent:
        folders = [folder for folder in sorted(KEPT.parent.iterdir()) if folder.is_dir()]
        folders = [folder for folder in folders if (folder / "model.json").exists()]
        for number, dtype in enumerate(("float32", "int16")):
            made = random_artifact(np.random.default_rng(number), n_layers=1 + number)
            made.info.update(RECORD)
            folders.append(Path(parent) / dtype)
            save_artifact(made, folders[-1], dtype)  # type: ignore[arg-type]
        folders.append(Path(parent) / "ratings")
        save_rating_artifact(_ratings(), folders[-1], "float32")
        saved = [{name: (folder / name).read_bytes() for name in NAMES} for folder in folders]
        (folder := Path(parent) / "model").mkdir()

        def one(tally: Tally, rng: random.Random, what: str) -> None:
            files = dict(rng.choice(saved))
            name = rng.choice(NAMES)
            if name.endswith(".json") and rng.random() < 0.6:
                files[name] = json.dumps(changed_json(rng, json.loads(files[name]))).encode()
            elif name.endswith("tensors") and rng.random() < 0.4:
                files[name] = _changed_header(rng, files[name])
            else:
                files[name] = changed_bytes(rng, files[name])
            for name, content in files.items():
                (folder / name).write_bytes(content)
            if rng.random() < 0.75:
                with contextlib.suppress(Exception):  # where model.json is no longer an object
                    seal(folder)
            attempt(tally, what, lambda: _use(folder, rng.random() < 0.8), MOST_SECONDS)

        return in_batches(
            "artifacts", one, numbers=numbers, until=until, seed=seed, batch=1000, seconds=300
        )


def _use(folder: Path, verify: bool) -> None:
    described = inspect_artifact(folder, verify=verify)
    with np.errstate(all="ignore"):
        if described.get("kind") == "ratings":
            rater = CFNADE.load(folder, verify=verify)
            rater.recommend(rater.ratings_.user_ids.tolist()[0], n=3)
            return
        model = ImplicitCFNADE.load(folder, verify=verify)
        n_items = model.n_features_in_
        history = csr_array(np.eye(1, n_items))
        ids, scores = model.recommend(0, history, N=3)
        assert len(ids) == len(scores) <= 3
        model.recommend_for({model.catalogue_.ids.tolist()[0]: 2}, n=3)
        model.similar_items(model.catalogue_.ids.tolist()[0], N=2)


def _ratings() -> RatingArtifact:
    levels = csr_array(np.array([[1, 0, 3, 0, 2], [0, 2, 0, 0, 3]], dtype=np.uint8))
    info = {
        "settings": CFNADE(by="users").get_params(),
        "training": {"temperatures": [1.0, 0.5]},
        "metrics": {"validation_rmse": 0.9},
    }
    return RatingArtifact(random_numpy_rating_network(), read_ratings(levels), info)


def changed_json(rng: random.Random, value: Any) -> Any:
    """The value with one entry, at some depth, replaced, removed or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        inner = [changed_json(rng, value[at])] * rng.choice((0, 1, 1, 1, 2, 1000))
        return [*value[:at], *inner, *value[at + 1 :]]
    return rng.choice(
        [None, True, 0, -1, 1.5, 2**31, 2**63, 10**30, 10**400, 9 * 10**4299, 1e300, "", "x",
         [], {}, [[]], {"a": 1},
         "<i8", "decimal", ["int"], ["decimal"], "1E+99999999", rng.choice(NASTY).decode("latin-1")]
    )  # fmt: skip


def _changed_header(rng: random.Random, content: bytes) -> bytes:
    n = int.from_bytes(content[:8], "little")
    header = json.dumps(changed_json(rng, json.loads(content[8 : 8 + n]))).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + n :]
