"""Requests to a real service: made from its OpenAPI document, and raw bytes on sockets."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaign.artifacts import changed_json
from campaign.tally import NASTY, Tally, changed_bytes, seeded
from tests.serve.running import Running, running
from tests.storage.saved import KEPT

MOST_SECONDS = 20.0
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


def wire(n: int, seed: int, until: float) -> Tally:
    """Send n requests, one in four as raw bytes; the service answers or closes, and stays well."""
    tally, started = Tally(), time.monotonic()
    with serving("--watch", "0") as (service, _):
        workers = children(service.process.pid)
        document = service.get("/openapi.json").json
        client = Client(service.port)
        for number in range(n):
            if time.monotonic() > until:
                break
            rng = seeded("wire", seed, number)
            what = f"wire {seed}/{number}"
            if rng.random() < 0.25:
                _send_raw(tally, service.port, _raw(rng), what)
            else:
                client.send(tally, _from_document(rng, document), what)
        client.close()
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


class Client:
    """One connection that is kept, and made again when the service has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, tally: Tally, content: bytes, what: str) -> None:
        """Send a request and read its answer."""
        for is_again in (False, True):
            try:
                if self._socket is None:
                    self._socket = socket.create_connection(("127.0.0.1", self._port), MOST_SECONDS)
                self._socket.sendall(content)
                status = self._read(self._socket)
            except TimeoutError:
                tally.fail(f"{what}: no answer in {MOST_SECONDS:.0f} seconds")
                self.close()
                return
            except OSError:
                self.close()
                if not is_again:
                    continue  # closed before: the service may end a connection at any time
                status = 0
            break
        if status >= 500 and status != 503:
            tally.fail(f"{what}: status {status}")
        else:
            tally.add(str(status) if status else "closed")

    def _read(self, client: socket.socket) -> int:
        found = b""
        while b"\r\n\r\n" not in found:
            if not (part := client.recv(1 << 16)):
                raise ConnectionResetError
            found += part
        head, _, body = found.partition(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        n_left = int(lines.get(b"content-length", b"0")) - len(body)
        while n_left > 0:
            n_left -= len(part := client.recv(1 << 16))
            if not part:
                raise ConnectionResetError
        if lines.get(b"connection") == b"close":
            self.close()
        return int(head.split(b" ", 2)[1])


def _send_raw(tally: Tally, port: int, content: bytes, what: str) -> None:
    """Send bytes, say that no more will come, and read until the service closes."""
    found, status = b"", "closed"
    with socket.create_connection(("127.0.0.1", port), MOST_SECONDS) as client:
        try:
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(1 << 16):
                found += part
        except TimeoutError:
            return tally.fail(f"{what}: still open after {MOST_SECONDS:.0f} seconds")
        except OSError:
            pass
    if found:
        status = found[9:12].decode("latin-1")
        if b"HTTP/1.1 500" in found or not status.isdecimal():
            return tally.fail(f"{what}: {found[:200]!r}")
    return tally.add(status)


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
