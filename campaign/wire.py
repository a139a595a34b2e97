"""Requests to a real service: made from its OpenAPI document, and raw bytes on sockets."""

from __future__ import annotations

import contextlib
import json
import math
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaign.artifacts import changed_json
from campaign.tally import BUSY, NASTY, Tally, changed_bytes, cpu_seconds, seeded
from tests.serve.running import Running, running
from tests.storage.saved import KEPT

MOST_SECONDS = 20.0
GROUP = 16  # inputs that are on their way at once
HEAD = (
    b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 27\r\n\r\n" + b'{"history": {"film-1": 2.5}}'[:27]
)
LINES = [
    b"content-length: 5", b"content-length: -1", b"content-length: \xb2", b"connection: upgrade",
    b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"expect: 100-continue",
    b"upgrade: websocket", b"connection: close", b"host: evil.example", b"range: bytes=0-", b": x",
    b"x:" + b"y" * 40_000, b"cookie: a=b", b"origin: null", b"x-forwarded-for: 1.2.3.4",
    b"a" * 70_000,
]  # fmt: skip


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[Running, Path]]:
    """A service of a small model, and the folder of the model."""
    with tempfile.TemporaryDirectory(prefix="cfnade-campaign-") as parent:
        folder = Path(shutil.copytree(KEPT, Path(parent) / "films"))
        with running(folder, Path(parent) / "log.txt", *options) as service:
            yield service, folder


def wire(numbers: range, seed: int, until: float) -> Tally:
    """Send requests of these numbers, one in four as raw bytes.

    The service answers or closes, and stays well.
    """
    tally, started = Tally(), time.monotonic()
    with serving("--watch", "0") as (service, _):
        workers = children(service.process.pid)
        document = service.get("/openapi.json").json
        sender = Sender(service, tally)
        for first in numbers[::GROUP]:
            if time.monotonic() > until:
                break
            requests, raw = [], []
            for number in range(first, min(first + GROUP, numbers.stop)):
                rng = seeded("wire", seed, number)
                what = f"wire {seed}/{number}"
                if rng.random() < 0.25:
                    raw.append((what, _raw(rng)))
                else:
                    requests.append((what, _from_document(rng, document)))
            sender.send_raw(raw)
            sender.send(requests)
        sender.close()
        if service.get("/healthz").status != 200 or children(service.process.pid) != workers:
            tally.fail("a worker died")
        log = service.log.read_text()
        for word in ("Traceback", "failed", " ended ("):
            if word in log:
                tally.fail(f"the log has {word!r}: {log[log.index(word) :][:300]}")
    tally.seconds = time.monotonic() - started
    return tally


def children(pid: int) -> list[str]:
    """Processes that a process started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


class Sender:
    """Sends inputs to a service and counts what comes back."""

    def __init__(self, service: Running, tally: Tally) -> None:
        self._service, self._tally = service, tally
        self._socket: socket.socket | None = None
        self._found = b""  # received, and not yet read

    def close(self) -> None:
        """End the connection that is kept."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._found = None, b""

    def send(self, requests: list[tuple[str, bytes]]) -> None:
        """Send requests, each with its name, one behind the other on a connection that is kept.

        The service may close it at any time: what was not answered is sent again, one by one.
        """
        n_done = self._exchange(requests)
        for request in requests[n_done:]:
            if not self._exchange([request]):
                self._tally.add("closed")

    def _exchange(self, requests: list[tuple[str, bytes]]) -> int:
        """Send requests and count answers; gives how many came before the connection ended."""
        n_done = 0
        with contextlib.suppress(ConnectionError):
            self._send(b"".join(content for _, content in requests))
            for what, _ in requests:
                try:
                    status = self._read()
                except TimeoutError:
                    self._tally.fail(f"{what}: no answer")
                    self.close()
                    return n_done + 1
                if status >= 500 and status != 503:
                    self._tally.fail(f"{what}: status {status}")
                else:
                    self._tally.add(str(status))
                n_done += 1
            return n_done
        self.close()
        return n_done

    def send_raw(self, contents: list[tuple[str, bytes]]) -> None:
        """Send bytes, each on a connection of its own, and read until the service closes it."""
        clients = []
        for what, content in contents:
            client = self._connect()
            with contextlib.suppress(OSError):
                client.settimeout(MOST_SECONDS * BUSY)
                client.sendall(content)
                client.shutdown(socket.SHUT_WR)
            client.settimeout(1.0)
            clients.append((what, client))
        for what, client in clients:
            found = b""
            with client:
                try:
                    while part := self._receive(client):
                        found += part
                except TimeoutError:
                    self._tally.fail(f"{what}: still open")
                    continue
                except OSError:
                    pass
            status = found[9:12].decode("latin-1") if found else "closed"
            if found and (b"HTTP/1.1 500" in found or not status.isdecimal()):
                self._tally.fail(f"{what}: {found[:200]!r}")
            else:
                self._tally.add(status)

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._service.port), MOST_SECONDS * BUSY)

    def _send(self, content: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        self._socket.settimeout(MOST_SECONDS * BUSY)
        self._socket.sendall(content)
        self._socket.settimeout(1.0)

    def _receive(self, client: socket.socket) -> bytes:
        """What comes next; a TimeoutError only if the service had the time to send something."""
        before, until = math.inf, time.monotonic() + MOST_SECONDS * BUSY
        while True:
            try:
                return client.recv(1 << 16)
            except TimeoutError:
                used = self._cpu()
                before = min(before, used)
                if used - before > MOST_SECONDS or time.monotonic() > until:
                    raise

    def _cpu(self) -> float:
        return sum(cpu_seconds(int(pid)) for pid in children(self._service.process.pid))

    def _read(self) -> int:
        """Read one answer; gives its status."""
        while b"\r\n\r\n" not in self._found:
            self._receive_more()
        head, _, self._found = self._found.partition(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        n_body = int(lines.get(b"content-length", b"0"))
        while len(self._found) < n_body:
            self._receive_more()
        self._found = self._found[n_body:]
        if lines.get(b"connection") == b"close":
            self.close()
        return int(head.split(b" ", 2)[1])

    def _receive_more(self) -> None:
        part = b"" if self._socket is None else self._receive(self._socket)
        if not part:
            raise ConnectionResetError
        self._found += part


def _raw(rng: random.Random) -> bytes:
    content = HEAD
    if rng.random() < 0.5:
        first, _, rest = content.partition(b"\r\n")
        lines = b"\r\n".join(rng.choice(LINES) for _ in range(rng.choice((1, 2, 150))))
        content = first + b"\r\n" + lines + b"\r\n" + rest
    if rng.random() < 0.8:
        content = changed_bytes(rng, content)
    return content * rng.choice((1, 1, 1, 3, 40)) if rng.random() < 0.3 else content


def _from_document(rng: random.Random, document: dict[str, Any]) -> bytes:
    """A request to a path of the document, with a body that its schema describes, or nearly."""
    path = rng.choice(list(document["paths"]))
    method, operation = next(iter(document["paths"][path].items()))
    if method == "get" and rng.random() < 0.9:
        query = rng.choice(("", "?q=film", "?n=3", "?q=%ff", "?n=1e9", "?q=&q=", "?x=" + "y" * 900))
        method = rng.choice(("GET", "GET", "GET", "HEAD", "DELETE", "OPTIONS"))
        if method == "HEAD":
            method = "GET"
        return f"{method} {path}{query} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    body: Any = {}
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        body = content["example"]
        if rng.random() < 0.5:
            body = _from_schema(rng, content["schema"], document, 0)
    if rng.random() < 0.7:
        body = changed_json(rng, body)
    text = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        text = changed_bytes(rng, text)
    if rng.random() < 0.002:
        text = b" " * 1_200_000
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n".encode() + text


def _from_schema(rng: random.Random, schema: dict[str, Any], document: Any, depth: int) -> Any:
    """A value that a schema allows, more or less."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _from_schema(rng, document["components"]["schemas"][name], document, depth)
    if "anyOf" in schema:
        return _from_schema(rng, rng.choice(schema["anyOf"]), document, depth)
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        found = {
            name: _from_schema(rng, inner, document, depth + 1)
            for name, inner in fields.items()
            if rng.random() < 0.6
        }
        if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
            for _ in range(rng.choice((0, 1, 5, 40))):
                key = rng.choice((f"film-{rng.randrange(14)}", rng.choice(NASTY).decode("latin-1")))
                inner = schema["additionalProperties"]
                found[key] = _from_schema(rng, inner, document, depth + 1)
        return found
    if kind == "array":
        n = rng.choice((0, 1, 3, 70 if depth < 2 else 2))
        return [_from_schema(rng, schema.get("items", {}), document, depth + 1) for _ in range(n)]
    if kind == "integer":
        return rng.choice((1, 3, 100, 101, 0, -1, 2**63, 7.0))
    if kind == "number":
        return rng.choice((0, 1, 2.5, 1e6, 1e308, -1, 0.1))
    if kind == "boolean":
        return rng.random() < 0.5
    return rng.choice((None, f"film-{rng.randrange(14)}", "", "x" * 300))
