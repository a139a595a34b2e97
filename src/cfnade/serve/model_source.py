"""The model that answers now, and how a new one takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from cfnade.errors import ArtifactError
from cfnade.serve.heap import give_back
from cfnade.serve.loaded import LoadedModel, Stamp, is_changed_in_place, load, stamp_of
from cfnade.serve.probe import check_answers

logger = logging.getLogger(__name__)

Outcome: TypeAlias = Literal["loaded", "swapped", "refused"]

RENAME = "; copy to a folder beside this one and rename that into place, never copy over it"
"""What is added to a refusal: the weights in use are mapped from the folder."""

IN_PLACE = "; a file in use was changed in place, which can end the service" + RENAME
"""The same if the files are those in use, with other content."""


class ModelSource:
    """Holds one model. A request takes it once and is answered by it, whatever comes after.

    That goes for all histories of a batch too, also if they are answered in several passes.

    A new model is loaded and tried out in a thread of its own while the old one answers, and
    takes its place by one assignment. One that cannot be used is refused, and not looked at
    again until the folder changes.
    """

    def __init__(
        self, folder: Path, on_outcome: Callable[[Outcome], None] = lambda outcome: None
    ) -> None:
        self.folder = folder
        self.refused: str | None = None
        """Why the newest model in the folder was not taken; None if it was."""
        self._on_outcome = on_outcome
        self._refused_stamp: Stamp | None = None
        self._lock = threading.Lock()
        self._wake: asyncio.Event | None = None
        self.current: LoadedModel = self._load()
        on_outcome("loaded")

    def check(self, *, is_asked_for: bool = False) -> bool:
        """Look at the folder, and take over a new model if there is one; blocks.

        Args:
            is_asked_for: Load it even if it looks like the one in use or one that was refused.

        Returns:
            Whether there is a new model.
        """
        with self._lock:
            found = stamp_of(self.folder)
            known = (self.current.stamp, self._refused_stamp)
            if found == self.current.stamp:  # the old one was put back
                self.refused = self._refused_stamp = None
            if not is_asked_for and (found is None or found in known):
                return False  # none, or in the middle of being replaced
            try:
                new = self._load()
            except ArtifactError as error:
                hint = IN_PLACE if is_changed_in_place(self.current.stamp, found) else RENAME
                self.refused, self._refused_stamp = f"{error}{hint}", found
                logger.error("refused a new model, the old one stays: %s", self.refused)
                self._on_outcome("refused")
                return False
            old, self.current = self.current, new
            self.refused = self._refused_stamp = None
            logger.warning("swapped model %s for %s", old.version, new.version)
            del old, new
            give_back()
            self._on_outcome("swapped")
            return True

    def ask(self) -> None:
        """Have the folder looked at now, by the loop that watches it: what SIGHUP does."""
        if self._wake is not None:
            self._wake.set()

    async def watch(self, seconds: float) -> None:
        """Look at the folder again and again, never in the event loop's own thread.

        Args:
            seconds: Between two looks; 0 looks once now, for what came while the service was
                starting, and then only when asked.
        """
        self._wake = asyncio.Event()
        is_asked_for = False
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="models") as thread:
            while True:
                try:
                    look = partial(self.check, is_asked_for=is_asked_for)
                    await loop.run_in_executor(thread, look)
                except Exception as error:  # nothing may end the watch
                    logger.error("looking for a new model failed: %s", type(error).__name__)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), seconds or None)
                is_asked_for = self._wake.is_set()
                self._wake.clear()

    def _load(self) -> LoadedModel:
        new = load(self.folder)
        check_answers(new)
        return new
