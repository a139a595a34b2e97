"""Finished models of a comparison, kept until all are done, so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cfnade.compare.contender import Contender
from cfnade.compare.outcome import Result
from cfnade.data.described_items import DescribedItems
from cfnade.data.interactions import Interactions
from cfnade.folders import replace_file
from cfnade.metrics.evaluate import Evaluation
from cfnade.metrics.formulas import UserSums

logger = logging.getLogger(__name__)

OLD = 30 * 24 * 3600.0  # seconds, after which a forgotten file is deleted


class KeptModels:
    """A folder with one file for each finished model: its figures, and the sums of each user.

    The name of a file has a checksum of all that its figures depend on, so the result of another
    job is not found.
    """

    def __init__(
        self,
        folder: Path | None,
        data: Interactions,
        test: Interactions | None,
        options: Mapping[str, Any],
    ) -> None:
        """Keep the models of one comparison in a folder, which need not exist; None keeps none."""
        self._folder = folder
        if folder is not None:
            parts = [part.fingerprint()["sha256"] for part in (data, test) if part is not None]
            self._job = {"data": parts, "options": options, "version": version("cfnade")}

    def read(self, name: str, candidate: Contender) -> tuple[Result, Evaluation] | None:
        """The figures of a finished model; None if there are none."""
        path = self._file_of(name, candidate)
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                result = Result.from_json(json.loads(file.metadata()["result"]))
                per_user = {n: UserSums(*file.get_tensor(f"sums/{n}")) for n in result.metrics}
                users, n_pairs = file.get_tensor("users"), int(file.metadata()["n_pairs"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s is fitted again: %s is damaged (%s)", name, path, error)
            return None
        return result, Evaluation(result.metrics, result.intervals, per_user, users, n_pairs)

    def write(self, candidate: Contender, result: Result, evaluation: Evaluation) -> None:
        """Keep a finished model; if that fails, a line says so."""
        path = self._file_of(result.model, candidate)
        if path is None:
            return
        sums = {f"sums/{n}": np.stack([s.total, s.weight]) for n, s in evaluation.per_user.items()}
        try:
            text = {"result": json.dumps(asdict(result)), "n_pairs": str(evaluation.n_pairs)}
            replace_file(path, save({"users": evaluation.users, **sums}, metadata=text))
        except (OSError, TypeError) as error:
            logger.warning("%s cannot be kept in %s: %s", result.model, path.parent, error)

    def clear(self, models: Mapping[str, Contender]) -> None:
        """Delete these models, and old files of any model."""
        for name, candidate in models.items():
            if (path := self._file_of(name, candidate)) is not None:
                with suppress(OSError):  # what is left does no harm
                    path.unlink(missing_ok=True)
                    for other in path.parent.glob("*.safetensors"):
                        if time.time() - other.stat().st_mtime > OLD:
                            other.unlink(missing_ok=True)

    def _file_of(self, name: str, candidate: Contender) -> Path | None:
        if self._folder is None:
            return None
        what = {**self._job, "model": name, "contender": vars(candidate)}
        text = json.dumps(what, sort_keys=True, default=_named)
        return self._folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()}.safetensors"


def _named(value: Any) -> str:
    """Functions and classes as their names, tables as a checksum, anything else as its `repr`."""
    if isinstance(value, DescribedItems):
        return value.features.sha256
    return str(getattr(value, "__qualname__", repr(value)))
