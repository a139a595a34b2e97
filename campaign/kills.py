"""A fit over an old model, killed at random instants and at every call to the file system.

After each kill a model must be at its place, the old one or the new; then the fit is resumed, and
its weights are compared with those of a fit that nobody disturbed, bit for bit. Also a full disk,
a read-only folder, no file handles, SIGTERM, and two fits at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors.numpy

from campaign.tally import Tally, seeded
from cfnade import folders
from cfnade.cli.main import run
from cfnade.errors import ArtifactError
from cfnade.fit import pipeline
from cfnade.storage.folder import load_artifact
from tests.cli.helpers import set_options, write_events

DISK = tempfile.gettempdir()  # other parts of the campaign use a folder in memory
OLD = set_options(n_hidden=4, max_epochs=2)
NEW = set_options(n_hidden=8, max_epochs=4, learning_rate=0.02)
SHORTAGES = ("full disk", "no file handles", "SIGTERM", "two at once", "read-only folder")
_CAPABILITY_VERSION = 0x20080522  # of Linux, with 24 bytes of capabilities
STRIDE = 61  # between calls that are tried one after the other; a prime number meets all of them
N_SAVED = 6  # files of arrays that a fit writes: four checkpoints, weights and ratings
CALLS = {
    "open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.listdir",
    "os.scandir", "shutil.rmtree", "tempfile.mkdtemp", "ctypes.dlsym",
}  # fmt: skip


class Fits:
    """Fits of one small table in child processes, which share what this process imported."""

    def __init__(self, parent: Path) -> None:
        self.data, self.out = write_events(parent / "events.csv"), parent / "m"
        self.place = parent
        self._import_once(parent / "modules.txt")
        self.old = self.weights()
        self._kept = self.out.rename(parent / "old")
        self.fit(*NEW)
        self.new = self.weights()
        self.put_old_back()

    def _import_once(self, listed: Path) -> None:
        """Fit the old model, and import what that needed here, once for all children."""
        self.fit(*OLD, after=lambda: listed.write_text("\n".join(sys.modules)))
        for name in listed.read_text().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        listed.unlink()

    def put_old_back(self) -> None:
        """Begin again with the old model at the place."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self._kept, self.out)

    def weights(self) -> bytes:
        """Of the model at the place, which must be whole."""
        load_artifact(self.out)
        return (self.out / "weights.safetensors").read_bytes()

    def start(
        self,
        *options: str,
        before: Callable[[], Any] = lambda: None,
        after: Callable[[], Any] = lambda: None,
    ) -> int:
        """Begin a fit, with something to do before and after it; gives the process."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
                pipeline.CHECKPOINT_SECONDS = 0.0
                before()
                code = run(["fit", str(self.data), "--out", str(self.out), *options])
                after()
            finally:
                os._exit(code)
        return pid

    def fit(self, *options: str, **around: Callable[[], Any]) -> int:
        """Fit, and give the exit code; below 0 for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.start(*options, **around), 0)[1])

    def left(self) -> list[str]:
        """What is beside the model and the data."""
        return sorted({path.name for path in self.place.iterdir()} - {"m", "old", "events.csv"})

    def check(self, tally: Tally, what: str) -> None:
        """See that a model is there, finish the fit, and put the old model back."""
        try:
            tally.add(self._finish())
        except (AssertionError, ArtifactError) as error:
            tally.fail(f"{what}: {error}")
        for name in self.left():
            shutil.rmtree(self.place / name)
        self.put_old_back()

    def _finish(self) -> str:
        """Finish the fit; gives how. An error says what is wrong."""
        assert self.weights() in (self.old, self.new), "neither the old nor the new model"
        has_checkpoint = any((self.place / "m.checkpoint").glob("[!.]*"))
        code = self.fit("--resume", *NEW) if has_checkpoint else 2
        kind = "resumed"
        if code != 0:  # no checkpoint was complete
            code, kind = self.fit(*NEW), "fitted again"
        assert code == 0, f"{kind} with exit code {code}"
        assert self.weights() == self.new, f"{kind} with other weights"
        assert not self.left(), f"left behind {self.left()}"
        return kind


@contextlib.contextmanager
def prepared() -> Iterator[Fits]:
    """A folder with a table and an old model."""
    with tempfile.TemporaryDirectory(prefix="cfnade-campaign-", dir=DISK) as parent:
        yield Fits(Path(parent))


def die_at(number: int, place: Path, count: mmap.mmap) -> Callable[[], None]:
    """A function that has this process killed before its n-th call on files in a folder.

    The calls so far are in `count`, which processes share.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        is_elsewhere = event != "ctypes.dlsym" and not str(arguments[:1]).count(str(place))
        if event not in CALLS or is_elsewhere:
            return
        n_calls = int.from_bytes(count[:8], "little")
        if n_calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        count[:8] = (n_calls + 1).to_bytes(8, "little")

    def install() -> None:
        count[:8] = bytes(8)
        sys.addaudithook(hook)

    return install


def die_writing(number: int) -> Callable[[], None]:
    """A function that has this process killed when it has written half of its n-th file of arrays.

    safetensors writes to a file beside, in calls that Python does not see.
    """
    numbers = itertools.count()

    def write(arrays: dict[str, Any], path: Path) -> None:
        if next(numbers) == number:
            content = safetensors.numpy.save(arrays)
            path.with_name(".tmpaB3dE6").write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        safetensors.numpy.save_file(arrays, path)

    return lambda: setattr(folders, "save_file", write)


def kills(numbers: range, seed: int, until: float) -> Tally:
    """Kill fits: half at the next of their calls, others while they write or at any instant."""
    tally, started = Tally(), time.monotonic()
    with prepared() as fits, mmap.mmap(-1, 8) as count:
        begun = time.monotonic()
        fits.fit(*NEW, before=die_at(-1, fits.place, count))
        seconds, n_calls = time.monotonic() - begun, int.from_bytes(count[:8], "little")
        fits.put_old_back()
        for number in numbers:
            if time.monotonic() > until:
                break
            rng = seeded("kills", seed, number)
            if number % 2 == 0 and number // 2 < n_calls:  # each call once, the last one first
                call = (n_calls - 1 - STRIDE * (number // 2)) % n_calls
                what = f"killed before call {call} of {n_calls}"
                if fits.fit(*NEW, before=die_at(call, fits.place, count)) != -signal.SIGKILL:
                    tally.fail(f"{what}: it was not made")
            elif number % 4 == 1:
                what = f"killed while it writes arrays, {seed}/{number}"
                n_saved = number // 4 % N_SAVED
                if fits.fit(*NEW, before=die_writing(n_saved)) != -signal.SIGKILL:
                    tally.fail(f"{what}: it was not made")
            else:
                what = f"killed at an instant, {seed}/{number}"
                pid = fits.start(*NEW)
                time.sleep(rng.uniform(0, seconds))
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            fits.check(tally, what)
    tally.seconds = time.monotonic() - started
    return tally


def shortages(numbers: range, seed: int, until: float) -> Tally:
    """Fits that run out of disk or of file handles, are asked to stop, or are two at once."""
    tally, started = Tally(), time.monotonic()
    rng = seeded("shortages", seed)

    def full_disk() -> None:
        """A file cannot grow beyond some bytes: as on a full disk, writing fails."""
        most = rng.choice((0, 100, 2_000, 4_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    def no_handles() -> None:
        n_open = len(list(Path("/proc/self/fd").iterdir()))
        most = n_open + rng.randrange(12)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def no_privileges() -> None:
        """Drop capabilities: without them permissions hold for root, too."""
        header, none = struct.pack("=II", _CAPABILITY_VERSION, 0), bytes(24)
        if ctypes.CDLL(None).capset(header, none) != 0:
            os._exit(1)

    with prepared() as fits:
        for number in numbers:
            if time.monotonic() > until:
                break
            rng.seed(f"shortages/{seed}/{number}")
            kind = SHORTAGES[number % len(SHORTAGES)]
            what = f"{kind}, {seed}/{number}"
            if kind in ("full disk", "no file handles"):
                code = fits.fit(*NEW, before=full_disk if kind == "full disk" else no_handles)
                if code not in (0, 1, 2):
                    tally.fail(f"{what}: exit code {code}")
                    continue
            elif kind == "read-only folder":
                (fits.out if rng.random() < 0.5 else fits.place).chmod(0o555)
                code = fits.fit(*NEW, before=no_privileges)
                fits.place.chmod(0o755)
                fits.out.chmod(0o755)
                if code not in (0, 2) or fits.left():
                    tally.fail(f"{what}: exit code {code}, left behind {fits.left()}")
                    continue
            else:
                pids = [fits.start(*NEW) for _ in range(1 + (kind == "two at once"))]
                if kind == "SIGTERM":
                    time.sleep(rng.uniform(0, 0.5))
                    os.kill(pids[0], signal.SIGTERM)
                codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
                if kind == "two at once" and (0 not in codes or not set(codes) <= {0, 2}):
                    tally.fail(f"{what}: exit codes {codes}")
                    continue
            fits.check(tally, what)
    tally.seconds = time.monotonic() - started
    return tally
