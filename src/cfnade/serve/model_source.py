"""The model in use, and how a new one replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cfnade.errors import ArtifactError
from cfnade.estimator import ImplicitCFNADE
from cfnade.serve.loaded import LoadedModel, Stamp
from cfnade.serve.wire import Entry, ExplainRequest, RecommendRequest, SimilarRequest
from cfnade.storage.folder import FILES, MODEL

logger = logging.getLogger(__name__)

Outcome: TypeAlias = Literal["loaded", "swapped", "refused"]

RENAME = "; if it is being copied, copy to another folder and rename that into place"
"""Added to a refusal, as half a copy is the usual reason."""

_N_HISTORY = 5
_TRIES = 3


class ModelSource:
    """Holds the model in use.

    A request or batch takes the model once and is answered by it. A new model is loaded and tested
    in its own thread, then replaces the old one by one assignment. A model that cannot be used is
    refused, and not tried again until the folder changes.
    """

    def __init__(
        self,
        folder: Path,
        on_outcome: Callable[[Outcome], None] = lambda outcome: None,
        name: str | None = None,
    ) -> None:
        self.folder, self._name = folder, name
        self._refused: str | None = None
        self._on_outcome = on_outcome
        self._refused_stamp: Stamp | None = None
        self._lock = threading.Lock()
        self._wake: asyncio.Event | None = None
        self.current: LoadedModel = load(folder, name)
        on_outcome("loaded")

    @property
    def refused(self) -> str | None:
        """Why the newest model was refused, here or by the supervisor; None if it is in use."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._refused or refusal_file(self.folder).read_text(encoding="utf-8")
        return None

    def check(self, *, is_forced: bool = False) -> bool:
        """Load the model in the folder if it is new, and return whether it is now in use; blocks.

        With `is_forced` it is loaded even if it looks like the one in use or one that was refused.
        """
        with self._lock:
            found = stamp_of(self.folder)
            known = (self.current.stamp, self._refused_stamp)
            if found == self.current.stamp:  # the old one was put back
                self._refused = self._refused_stamp = None
            if not is_forced and (found is None or found in known):
                return False  # no model, or one that is being replaced
            try:
                new = load(self.folder, self._name)
            except Exception as error:
                is_ours = isinstance(error, ArtifactError)
                reason = str(error) if is_ours else f"{type(error).__name__}: {error}"
                self._refused, self._refused_stamp = f"{reason}{RENAME}", found
                logger.error("refused a new model, the old one stays: %s", self._refused)
                self._on_outcome("refused")
                return False
            old, self.current = self.current, new
            self._refused = self._refused_stamp = None
            logger.warning("swapped model %s for %s", old.version, new.version)
            del old, new
            release_memory()
            self._on_outcome("swapped")
            return True

    def wake(self) -> None:
        """Make `watch` check the folder now, as SIGHUP asks for."""
        if self._wake is not None:
            self._wake.set()

    async def watch(self, seconds: float) -> None:
        """Check the folder every few seconds, in a thread.

        With 0 it checks once, in case a model came while the service started, and after `wake`.
        """
        self._wake = asyncio.Event()
        is_forced = False
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="models") as thread:
            while True:
                try:
                    await loop.run_in_executor(thread, partial(self.check, is_forced=is_forced))
                except Exception as error:  # nothing may end the watch
                    logger.error("checking for a new model failed: %s", type(error).__name__)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), seconds or None)
                is_forced = self._wake.is_set()
                self._wake.clear()


def refusal_file(folder: Path) -> Path:
    """Where the supervisor leaves the reason why it refused a model; beside its own copy."""
    return folder.with_name("refused.txt")


def load(folder: Path, name: str | None = None) -> LoadedModel:
    """Load a model, compare its checksums, and check its answers to a few requests.

    A folder that is being replaced is tried again. The requests also fill the model's caches, so
    that the first real one is fast.

    Raises:
        ArtifactError: If there is no model or it cannot be used.
    """
    for tries_left in reversed(range(_TRIES)):
        before = stamp_of(folder)
        try:
            model = ImplicitCFNADE.load(folder)
            described = json.loads((folder / MODEL).read_bytes())
        except (ArtifactError, OSError, ValueError) as error:
            if tries_left and stamp_of(folder) != before:
                continue
            if isinstance(error, ArtifactError):
                raise
            raise ArtifactError(f"the model in {folder} cannot be read: {error}") from error
        if before is not None and stamp_of(folder) == before:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            version = str(described.get("sha256", ""))[:12]
            loaded = LoadedModel(model, name or folder.resolve().name, before, version, now)
            try:
                _check_answers(loaded)
            except ArtifactError:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise ArtifactError(f"the model cannot answer a first request ({why})") from error
            return loaded
    raise ArtifactError(f"the model in {folder} changed while it was loaded; try again")


def stamp_of(folder: Path) -> Stamp | None:
    """The state of a folder; None while a file of the model is missing."""
    try:
        states = [(folder / name).stat() for name in (MODEL, *FILES)]
    except OSError:
        return None
    return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def _check_answers(loaded: LoadedModel) -> None:
    columns, _ = loaded.search.find("", _N_HISTORY + 1)
    seen = list(dict.fromkeys(str(loaded.ids[c]) for c in columns))  # two ids may read the same
    history: dict[str, Entry] = dict.fromkeys(seen[1:], 3.0)
    disliked: list[str | int] = [*seen[:1]]
    requests = [
        RecommendRequest(),
        RecommendRequest(history=history, explain=True, spread=True),
        RecommendRequest(history=history, disliked=disliked, explain=True),
    ]
    for request, answer in zip(requests, loaded.recommend(requests), strict=True):
        n_left = loaded.n_items - len(request.history) - len(request.disliked)
        found = answer["recommendations"]
        scores = [entry["score"] for entry in found]
        _check(len(found) == min(request.n, n_left), "has a wrong number of recommendations")
        _check(all(score is not None and math.isfinite(score) for score in scores), "has no scores")
        _check(scores == sorted(scores, reverse=True), "is not sorted by score")
        chances = [entry["probability"] for entry in found if loaded.is_calibrated]
        _check(all(p is not None and 0 <= p <= 1 for p in chances), "has no probabilities")
    explained: Any = loaded.explain(ExplainRequest(history=history, item=seen[0]))
    _check(math.isfinite(explained["score"]), "has an explanation without a score")
    similar: Any = loaded.similar(SimilarRequest(item=seen[0]))
    _check(len(similar["similar"]) == min(10, loaded.n_items - 1), "has too few similar items")


def _check(is_right: bool, fault: str) -> None:
    if not is_right:
        raise ArtifactError(f"an answer of the model to a first request {fault}")


def release_memory() -> None:
    """Return unused memory to the system: loading takes more than serving."""
    gc.collect()
    _malloc_trim()(0)


@cache
def _malloc_trim() -> Callable[[int], object]:
    """Of glibc; without it the process keeps freed arrays of megabytes."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library or system
        return lambda pad: None
    return trim
