"""The service under all that may happen to it in a day, in ten minutes; see `serve.py`.

Two workers. A new model every 20 seconds, one of two in turn, a damaged one for some seconds
before every third; one request in ten is bad; midway one worker is killed. Every request is
accounted for: a valid one may be lost only if it was on a connection of the killed worker. Every
model is too: all workers must answer by the new one, and refuse the damaged one, before the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from latency import save_random_model
from serve_load import Client, bodies, connect, request

from cfnade.folders import replace_folder
from serve import memory_of, serving

SWAP_SECONDS, DAMAGED_SECONDS = 20.0, 4.0
SEEN_SECONDS = 10.0
N_CONNECTIONS, PER_SECOND, BAD_SHARE = 16, 80, 10
BAD = [
    (request(b"{"), 400),
    (request(b'{"n": 0}'), 422),
    (request(b'{"history": {"show-1": -1}}'), 422),
    (request(b"{}", "/v1/nowhere"), 404),
    (request(b'{"item": "nothing"}', "/v1/similar"), 404),
    (request(b" " * 1_100_000), 413),
]


def soak(folder: Path, seconds: float) -> dict[str, Any]:
    """Soak a service.

    Args:
        folder: A model; it is replaced again and again.
        seconds: How long.

    Returns:
        What came of the requests, the models and the memory.
    """
    with serving("cfnade-watching", folder, 2) as (port, workers):
        return asyncio.run(_soak(folder, port, workers, seconds))


async def _soak(folder: Path, port: int, workers: list[int], seconds: float) -> dict[str, Any]:
    state = _State(port, time.monotonic() + seconds)
    killed = asyncio.create_task(_kill(workers[0], seconds / 2))
    swapped = asyncio.create_task(_swap(folder, state))
    sampled = asyncio.create_task(_sample(workers[1], state))
    await asyncio.gather(*(_ask(state, place) for place in range(N_CONNECTIONS)))
    kill_time, killed_ports = await killed
    beyond = [
        told
        for told in state.lost
        if told["port"] not in killed_ports or not 0 <= told["at"] - kill_time < 2
    ]
    samples = await sampled
    early, late = samples[len(samples) // 5 : 2 * len(samples) // 5], samples[-len(samples) // 5 :]
    return {
        "seconds": seconds,
        "valid": state.valid,
        "valid_answered": state.answered,
        "bad": state.bad,
        "bad_answered_as_they_should": state.bad_right,
        "other_statuses": dict(state.wrong),
        "lost_on_the_killed_worker": len(state.lost) - len(beyond),
        "lost_beyond": len(beyond),
        **await swapped,
        "p99_ms": round(statistics.quantiles(state.taken, n=100)[98] * 1e3, 1),
        "memory_of_the_worker_that_stayed": {
            name: {
                "second_fifth": round(statistics.median(sample[name] for sample in early), 1),
                "last_fifth": round(statistics.median(sample[name] for sample in late), 1),
                "most": max(sample[name] for sample in samples),
            }
            for name in ("written_mb", "rss_mb")
        },
    }


class _State:
    """What has happened so far."""

    def __init__(self, port: int, end: float) -> None:
        self.port, self.end = port, end
        self.valid = self.answered = self.bad = self.bad_right = 0
        self.wrong: Counter[str] = Counter()
        self.lost: list[dict[str, Any]] = []
        self.taken: list[float] = []

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end


async def _ask(state: _State, place: int) -> None:
    """One client: valid and bad requests in turn, a new connection where one was closed."""
    client: Client | None = None
    good = [request(body) for body in bodies(place)[:200]]
    turn = place
    while not state.is_over:
        started = time.perf_counter()
        turn += 1
        is_bad = turn % BAD_SHARE == 0
        content, expected = BAD[turn // BAD_SHARE % len(BAD)] if is_bad else (good[turn % 200], 200)
        if client is None or client.is_lost:
            client = await connect(state.port)
        state.bad += is_bad
        state.valid += not is_bad
        try:
            status = await asyncio.wait_for(client.ask(content), 30)
        except (ConnectionResetError, TimeoutError):
            if not is_bad:
                state.lost.append({"port": client.port, "at": time.monotonic()})
            client = None
            continue
        if status != expected:
            state.wrong[f"{status} for {expected}"] += 1
        elif is_bad:
            state.bad_right += 1
        else:
            state.answered += 1
            state.taken.append(time.perf_counter() - started)
        if expected == 413:
            client.transport.close()
            client = None
        await asyncio.sleep(max(0.0, N_CONNECTIONS / PER_SECOND - time.perf_counter() + started))


async def _kill(worker: int, after: float) -> tuple[float, set[int]]:
    """Kill a worker; gives the time and the clients' ports of its connections."""
    await asyncio.sleep(after)
    ports = _client_ports(worker)
    os.kill(worker, signal.SIGKILL)
    return time.monotonic(), ports


def _client_ports(pid: int) -> set[int]:
    """Ports at the other end of a process' connections."""
    opened = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].split(":")[1], 16) for row in rows if f"socket:[{row[9]}]" in opened}


async def _swap(folder: Path, state: _State) -> dict[str, int]:
    """Put another model in the place of the one in use again and again, now and then a bad one."""
    kept = await asyncio.to_thread(_keep_two, folder)
    versions = [_version(model) for model in kept]
    assert versions[0] != versions[1]
    counts = {"models": 0, "models_taken_over": 0, "damaged_models": 0, "damaged_models_refused": 0}
    while True:
        await asyncio.sleep(SWAP_SECONDS - DAMAGED_SECONDS)
        if state.is_over:
            break
        now = counts["models"] % 2
        old, new = versions[now], versions[1 - now]
        if counts["models"] % 3 == 2:
            await asyncio.to_thread(_put, kept[1 - now], folder, is_damaged=True)
            counts["damaged_models"] += 1
            counts["damaged_models_refused"] += await _is_seen(state, old, is_refused=True)
        await asyncio.sleep(DAMAGED_SECONDS)
        await asyncio.to_thread(_put, kept[1 - now], folder, is_damaged=False)
        counts["models"] += 1
        counts["models_taken_over"] += await _is_seen(state, new, is_refused=False)
    assert counts["models_taken_over"] == counts["models"], counts
    assert counts["damaged_models_refused"] == counts["damaged_models"], counts
    return counts


async def _is_seen(state: _State, version: str, *, is_refused: bool) -> bool:
    """Whether, within some seconds, all workers answer by a model, and refuse the newest or not."""
    until = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < until:
        told = await asyncio.to_thread(_models, state.port)
        seen = {(model["version"], model["refused"] is not None) for model in told}
        if seen == {(version, is_refused)}:
            return True
        await asyncio.sleep(0.25)
    print("not seen by all workers:", told, flush=True)
    return False


def _models(port: int) -> list[dict[str, Any]]:
    """What several new connections, so both workers, say of the model in use."""
    address, told = f"http://127.0.0.1:{port}/v1/model", []
    for _ in range(8):
        with contextlib.suppress(OSError):  # one is killed, once
            told.append(json.loads(urllib.request.urlopen(address, timeout=30).read()))
    return told


def _keep_two(folder: Path) -> list[Path]:
    """The model that is served, and another of the same size beside it."""
    other = folder.parent / "kept-1"
    save_random_model(other, seed=1)
    return [Path(shutil.copytree(folder, folder.parent / "kept-0")), other]


def _version(folder: Path) -> str:
    return str(json.loads((folder / "model.json").read_bytes())["sha256"])[:12]


def _put(kept: Path, folder: Path, *, is_damaged: bool) -> None:
    new = folder.parent / "new"
    shutil.copytree(kept, new)
    if is_damaged:
        with (new / "weights.safetensors").open("r+b") as file:
            file.seek(-1000, os.SEEK_END)
            file.write(b"\x7f" * 500)
    replace_folder(new, folder)


async def _sample(pid: int, state: _State) -> list[dict[str, float]]:
    """Memory of a worker over time, in MB."""
    samples = []
    while not state.is_over:
        samples.append(memory_of(pid))
        await asyncio.sleep(5)
    return samples
