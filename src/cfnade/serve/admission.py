"""How the supervisor lets in a new model: copied, tried in a child process, then put in place.

Workers load the copy, so nothing that happens to the folder of the model can hurt them: it may be
written over, cut short or hold a forged model. A worker that is restarted finds the last good one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cfnade.errors import ArtifactError
from cfnade.folders import replace_file, replace_folder
from cfnade.serve.loaded import Stamp
from cfnade.serve.model_source import RENAME, load, refusal_file, stamp_of
from cfnade.storage.folder import FILES, MODEL, check_size, read_description
from cfnade.storage.untrusted import folder_handle, open_plain

if sys.platform != "win32":
    import resource

logger = logging.getLogger(__name__)

TRIAL_SECONDS = 120
"""Time for a new model to be copied, loaded and tried."""

PAUSE_SECONDS = 5.0
"""Longest time for which loading a model may keep other threads from running."""

_SPARE_BYTES = 1 << 30  # of memory for a trial, beyond four times the size of the files
_TRIES = 3  # to copy a folder that is being replaced
_TICK_SECONDS = 0.01


class Admission:
    """The model of a service: the copy that workers load, and what becomes of newer ones."""

    def __init__(
        self,
        folder: Path,
        place: Path,
        *,
        watch_seconds: float,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the first model of a folder to a place of our own, and try it.

        Raises:
            ArtifactError: If there is no model or it cannot be used.
        """
        self.folder, self.copy, self._new = folder, place / "model", place / "new"
        self._watch_seconds, self._on_refused = watch_seconds, on_refused
        self._trial: subprocess.Popen[str] | None = None
        self._tried: Stamp | None = None  # by the trial that runs, or refused by the last one
        self._in_use = stamp_of(folder)
        self._is_asked = False
        self._due = self._end = 0.0
        try_model(folder, self.copy)

    def ask(self) -> None:
        """Have the model tried at the next look, even if it is in use or was refused."""
        self._is_asked = True

    def look(self) -> bool:
        """Do what is due, without waiting; returns whether there is a new model for the workers."""
        now = time.monotonic()
        if self._trial is not None:
            return self._look_at_trial(self._trial, now)
        if not self._is_asked and now < self._due:
            return False
        self._due = now + (self._watch_seconds or float("inf"))
        found = stamp_of(self.folder)
        if found == self._in_use and self._tried is not None:  # the old one was put back
            self._tried = None
            refusal_file(self.copy).unlink(missing_ok=True)
        is_new = found is not None and found not in (self._in_use, self._tried)
        if is_new or self._is_asked:
            self._start(found, now)
        return False

    def close(self) -> None:
        """End a trial that runs."""
        if self._trial is not None:
            self._trial.kill()
            self._trial.communicate()

    def _start(self, found: Stamp | None, now: float) -> None:
        self._is_asked = False
        self._tried, self._end = found, now + TRIAL_SECONDS
        shutil.rmtree(self._new, ignore_errors=True)
        command = [sys.executable, "-P", "-m", __name__, str(self.folder), str(self._new)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            self._trial = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env
            )
        except OSError as error:
            self._refuse(f"no process to try it in ({error.strerror})")

    def _look_at_trial(self, trial: subprocess.Popen[str], now: float) -> bool:
        if trial.poll() is None:
            if now < self._end:
                return False
            trial.kill()
        self._trial = None
        said, _ = trial.communicate()
        if trial.returncode != 0:
            reason = said.strip()[:1000] or f"its trial ended with {trial.returncode}"
            if now >= self._end:
                reason = f"trying it took more than {TRIAL_SECONDS} seconds"
            self._refuse(reason)
            return False
        replace_folder(self._new, self.copy)
        self._in_use, self._tried = self._tried, None
        refusal_file(self.copy).unlink(missing_ok=True)
        return True

    def _refuse(self, reason: str) -> None:
        shutil.rmtree(self._new, ignore_errors=True)
        logger.error("refused a new model, the old one stays: %s%s", reason, RENAME)
        replace_file(refusal_file(self.copy), f"{reason}{RENAME}".encode())
        self._on_refused()


def try_model(folder: Path, copy: Path) -> None:
    """Copy a model and see that the copy answers.

    Raises:
        ArtifactError: If it cannot be used; it names the folder, not the copy.
    """
    for tries_left in reversed(range(_TRIES)):
        before = stamp_of(folder)
        try:
            _copy_files(folder, copy)
            load(copy)
        except ArtifactError as error:
            if tries_left and stamp_of(folder) != before:
                continue  # it is being replaced
            raise ArtifactError(str(error).replace(str(copy), str(folder))) from error
        except OSError as error:
            raise ArtifactError(f"cannot copy {folder} to {copy}: {error.strerror}") from error
        return


def _copy_files(folder: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    with folder_handle(folder) as handle, contextlib.ExitStack() as stack:
        listed = read_description(folder, handle)["files"]
        sources = {
            name: stack.enter_context(os.fdopen(open_plain(folder / name, handle), "rb"))
            for name in (MODEL, *FILES)
        }
        sizes = {name: os.fstat(source.fileno()).st_size for name, source in sources.items()}
        for name in FILES:  # first: a file may seem larger than the disk
            check_size(folder / name, sizes[name], listed[name]["bytes"])
        if (n_bytes := sum(sizes.values())) > (n_free := shutil.disk_usage(copy).free):
            raise ArtifactError(
                f"there is no room for a copy of {folder} in {copy.parent}: it has {n_bytes:,} "
                f"bytes, {n_free:,} are free"
            )
        for name, source in sources.items():
            with (copy / name).open("wb") as target:
                shutil.copyfileobj(source, target)


def main(folder: str, copy: str) -> int:
    """Try a model as a child of the supervisor; a line on standard output says what is wrong."""
    if sys.platform != "win32":
        _limit_resources(Path(folder))
    problem: list[str] = []

    def attempt() -> None:
        try:
            try_model(Path(folder), Path(copy))
        except Exception as error:
            is_ours = isinstance(error, ArtifactError)
            problem.append(str(error) if is_ours else f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=attempt, daemon=True)
    longest, seen, used = 0.0, time.monotonic(), time.process_time()
    thread.start()
    while thread.is_alive():
        time.sleep(_TICK_SECONDS)
        # On a busy machine this process waits for others, which is no fault of the model.
        longest = max(longest, min(time.monotonic() - seen, time.process_time() - used))
        seen, used = time.monotonic(), time.process_time()
    if longest > PAUSE_SECONDS and not problem:
        problem.append(f"loading it would stop all answers for {longest:.0f} seconds")
    if problem:
        print(" ".join(problem[0].split()))
    return 2 if problem else 0


def _limit_resources(folder: Path) -> None:
    """Limit memory and processor time, as a forged model may ask for any amount."""
    n_bytes = sum((folder / n).stat().st_size for n in (MODEL, *FILES) if (folder / n).exists())
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = mapped + 4 * n_bytes + _SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (TRIAL_SECONDS, TRIAL_SECONDS))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
