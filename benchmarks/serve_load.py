"""Load from a process of its own: python benchmarks/serve_load.py PORT PLAN, PLAN as JSON.

Open: requests come at random times at a given rate, whether earlier ones are answered or not, and
a latency is counted from the time a request should have been sent. Closed: each of some
connections asks again as soon as it is answered, which finds the most that a service can do.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np
import uvloop

N_ITEMS = 17_348
N_BODIES = 2_000
SHORTEST, LONGEST = 5, 200


def bodies(seed: int = 1) -> list[bytes]:
    """Requests for ten items with histories of 5 to 200."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(N_BODIES):
        size = rng.integers(SHORTEST, LONGEST + 1)
        items = rng.choice(N_ITEMS, size, replace=False).tolist()
        counts = rng.integers(1, 30, size).tolist()
        history = {f"show-{item}": count for item, count in zip(items, counts, strict=True)}
        made.append(json.dumps({"history": history}).encode())
    return made


def request(body: bytes, path: str = "/v1/recommend") -> bytes:
    """A whole HTTP request."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """One connection that is kept; one request at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.answer: asyncio.Future[int] | None = None
        self.received = bytearray()
        self.is_lost = False
        self.port = 0

    def connection_made(self, transport: Any) -> None:
        """Note the local port, by which the server knows the connection."""
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def ask(self, content: bytes) -> asyncio.Future[int]:
        """Send a request; the future gives the status."""
        self.answer = asyncio.get_running_loop().create_future()
        self.received.clear()
        self.transport.write(content)
        return self.answer

    def data_received(self, data: bytes) -> None:
        """Take the status when all of an answer is there."""
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.received.find(b"content-length: ", 0, end)
        length = int(self.received[at + 16 : self.received.find(b"\r\n", at)])
        if len(self.received) >= end + 4 + length and self.answer and not self.answer.done():
            self.answer.set_result(int(self.received[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that is under way, if there is one."""
        self.is_lost = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionResetError("lost"))


async def connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


async def open_load(
    port: int, rate: float, seconds: float, n_connections: int = 64
) -> dict[str, Any]:
    """Requests at random times, `rate` of them a second."""
    rng = np.random.default_rng(2)
    asked = [request(body) for body in bodies()]
    free = deque([await connect(port) for _ in range(n_connections)])
    waiting: deque[tuple[float, bytes]] = deque()
    taken: list[float] = []
    failed = 0
    tasks = set()

    async def one(client: Client, due: float, content: bytes) -> None:
        nonlocal failed
        while True:
            try:
                failed += await client.ask(content) != 200
            except ConnectionResetError:
                failed += 1
                client = await connect(port)
            taken.append(time.perf_counter() - due)
            if not waiting:
                break
            due, content = waiting.popleft()
        free.append(client)

    def send(due: float, content: bytes) -> None:
        if free:
            task = asyncio.create_task(one(free.popleft(), due, content))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        else:
            waiting.append((due, content))

    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    dues = started + np.cumsum(rng.exponential(1 / rate, int(2 * rate * seconds) + 100))

    def keep_time() -> None:
        for n_asked, due in enumerate(dues[dues < started + seconds].tolist()):
            time.sleep(max(0.0, due - time.perf_counter()))
            loop.call_soon_threadsafe(send, due, asked[n_asked % len(asked)])

    await asyncio.to_thread(keep_time)  # the timers of the loop are up to a millisecond late
    await asyncio.sleep(0)
    while tasks:
        await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - started
    return {"rate": rate, **summary(taken, failed, elapsed)}


async def closed_load(port: int, n_connections: int, seconds: float) -> dict[str, Any]:
    """Each connection asks again as soon as it is answered."""
    asked = [request(body) for body in bodies()]
    clients = [await connect(port) for _ in range(n_connections)]
    taken: list[float] = []
    failed = 0
    started = time.perf_counter()

    async def ask(client: Client, place: int) -> None:
        nonlocal failed
        while (now := time.perf_counter()) - started < seconds:
            failed += await client.ask(asked[place % len(asked)]) != 200
            taken.append(time.perf_counter() - now)
            place += n_connections

    await asyncio.gather(*(ask(client, place) for place, client in enumerate(clients)))
    elapsed = time.perf_counter() - started
    return {"connections": n_connections, **summary(taken, failed, elapsed)}


def summary(taken: list[float], failed: int, elapsed: float) -> dict[str, Any]:
    """Requests a second and milliseconds."""
    p50, p95, p99 = np.quantile(taken, [0.5, 0.95, 0.99]) * 1e3
    return {
        "requests": len(taken),
        "failed": failed,
        "per_second": round(len(taken) / elapsed, 1),
        "p50_ms": round(float(p50), 2),
        "p95_ms": round(float(p95), 2),
        "p99_ms": round(float(p99), 2),
        "max_ms": round(float(max(taken)) * 1e3, 2),
    }


async def main(port: int, plan: dict[str, Any]) -> None:
    warm = await closed_load(port, 4, 1.0)
    load = open_load if "rate" in plan else closed_load
    told = {k: v for k, v in plan.items() if k in ("rate", "n_connections", "seconds")}
    found = await load(port, **told)
    print(json.dumps({**found, "with_warm_up": found["requests"] + warm["requests"]}))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), json.loads(sys.argv[2])))
