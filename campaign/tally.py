"""What a part of the campaign tried and what broke, and inputs that run in a child process."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfnade.errors import CfnadeError

MOST_SHOWN = 20
LONGEST_LINE = 4_000
BUSY = 10.0
"""Limits are in CPU seconds; a process that waits may take so many times longer.

Others may use the machine, so the clock alone does not show that something hangs.
"""


@dataclass
class Tally:
    """Counts of outcomes by name; whatever is in `broken` must not happen."""

    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        """Number of attempts."""
        return sum(self.outcomes.values())

    def add(self, outcome: str) -> None:
        """Count an outcome that may be."""
        self.outcomes[outcome] += 1

    def fail(self, what: str) -> None:
        """Count, and keep, what must not happen."""
        self.outcomes["broken"] += 1
        if len(self.broken) < MOST_SHOWN:
            self.broken.append(what)

    def merge(self, other: Tally) -> None:
        """Add the counts of another."""
        self.outcomes.update(other.outcomes)
        self.broken += other.broken[: MOST_SHOWN - len(self.broken)]
        self.seconds += other.seconds

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Tally:
        """As `to_json` wrote it."""
        return cls(Counter(found["outcomes"]), list(found["broken"]), found["seconds"])

    def to_json(self) -> dict[str, Any]:
        """For the results."""
        figures = {"tried": self.tried, "seconds": round(self.seconds, 1)}
        return {**figures, "outcomes": dict(self.outcomes), "broken": self.broken}


def attempt(tally: Tally, what: str, work: Callable[[], Any], at_most: float) -> None:
    """Try one input: it is used, or refused in one line, in time; all else is broken."""
    started, started_cpu = time.monotonic(), time.process_time()
    try:
        work()
        outcome = "used"
    except CfnadeError as error:
        text = str(error)
        outcome = "refused"
        if "\n" in text or len(text) > LONGEST_LINE:
            return tally.fail(f"{what}: a message of {len(text)} characters: {text[:200]!r}")
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return tally.fail(f"{what}: {type(error).__name__} {error!s:.200} at {where}")
    waited, used = time.monotonic() - started, time.process_time() - started_cpu
    if max(used, waited / BUSY) > at_most:
        return tally.fail(f"{what}: took {waited:.1f} seconds, {used:.1f} of them computing")
    return tally.add(outcome)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def address_space() -> int:
    """Bytes of this process; libraries alone may take gigabytes of addresses."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def in_child(work: Callable[[Tally], None], *, seconds: float, memory: int = 4 << 30) -> Tally:
    """Run a batch in a child process: a crash or a hang of it is an outcome like others.

    Args:
        work: What the child does; it adds to the tally.
        seconds: CPU time at most.
        memory: Address space at most beside that of this process, in bytes.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        tally, code = Tally(), 1
        try:
            limit = memory + address_space()
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            work(tally)
            code = 0
        except BaseException:
            tally.fail(traceback.format_exc()[-600:])
        finally:
            with os.fdopen(writer, "w") as pipe:
                json.dump({"outcomes": tally.outcomes, "broken": tally.broken}, pipe)
            os._exit(code)
    os.close(writer)
    started, tally, text = time.monotonic(), Tally(), b""
    while True:
        if select.select([reader], [], [], min(1.0, seconds))[0]:
            part = os.read(reader, 1 << 16)
            text += part
            if not part:
                break
        elif max(cpu_seconds(pid), (time.monotonic() - started) / BUSY) > seconds:
            os.kill(pid, signal.SIGKILL)
            tally.fail(f"hung for {time.monotonic() - started:.0f} seconds")
            break
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    if text:
        found = json.loads(text)
        tally.outcomes.update(found["outcomes"])
        tally.broken += found["broken"]
    elif not tally.broken:
        tally.fail(f"the process died with status {status}")
    return tally


def seeded(*parts: Any) -> random.Random:
    """A generator that follows from what it is for."""
    return random.Random("/".join(map(str, parts)))


def in_batches(
    name: str,
    one: Callable[[Tally, random.Random, str], None],
    *,
    numbers: range,
    until: float,
    seed: int,
    batch: int,
    seconds: float,
) -> Tally:
    """Try inputs of these numbers, or as many as time allows, in child processes of `batch` each.

    Each input is made by a generator of its own, so that its number is enough to make it again.
    """
    total, started = Tally(), time.monotonic()
    for first in numbers[::batch]:
        if time.monotonic() > until:
            break

        def work(tally: Tally, first: int = first) -> None:
            for number in range(first, min(first + batch, numbers.stop)):
                one(tally, seeded(name, seed, number), f"{name} {seed}/{number}")

        found = in_child(work, seconds=seconds)
        found.broken = [f"{name} {seed}/{first}+: {text}" for text in found.broken]
        total.merge(found)
    total.seconds = time.monotonic() - started
    return total


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Some bytes flipped, cut, repeated or replaced."""
    data = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.choice((1, 4, 50, len(data)))]
        elif kind == 2:
            data[at:at] = data[at : at + rng.choice((1, 8, 200))] * rng.choice((1, 2, 50))
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 30)))
        elif kind == 4:
            number = rng.choice((0, 1 << 62, (1 << 64) - 1))
            data[at : at + 8] = number.to_bytes(8, "little")
        else:
            data[at:at] = rng.choice(NASTY)
        if not data:
            break
    return bytes(data)


NASTY = [
    b'"', b"'", b",", b";", b"\n", b"\r\n", b"\r", b"\t", b"\0", b"\xff\xfe", b"\xef\xbb\xbf",
    b"1e999", b"NaN", b"-1", b"9" * 400, b"1E+99999999", b"[" * 2_000, b"{" * 50, b"\\ud800",
    b"../../x", b"null", b"true", b"'; DROP TABLE rows; --", b"<script>", b"\x1b[2J", b"%s%n",
    b"a" * 5_000, b"0x10", b"1_000",
]  # fmt: skip
