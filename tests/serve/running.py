"""A real service in a process of its own, and plain requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOPS_IN = 120.0
"""Seconds that a process may take to stop: far more than it needs, as a busy machine is slow."""


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=_refuse)

    @property
    def code(self) -> str:
        """Of an error, which is always of one form."""
        error = self.json["error"]
        assert set(error) == {"code", "message", "fix"} and all(error.values())
        return error["code"]


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    log: Path
    timeout: float = 20.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        with contextlib.closing(connection):
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            kind = {} if body is None else {"content-type": "application/json"}
            connection.request(method, path, content, {**kind, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, headers)

    def version(self) -> str:
        return self.get("/v1/model").json["version"]

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


@contextlib.contextmanager
def running(
    model: Path,
    log: Path,
    *options: str,
    command: Sequence[str] = (sys.executable, "-m", "cfnade"),
    **place: Any,
) -> Iterator[Running]:
    """Run `cfnade serve` on a free port; stop it at the end, and see that it stops well."""
    command = [*command, "serve", str(model), "--port", "0", *options]
    with log.open("w") as err:
        process = subprocess.Popen(
            command, stderr=err, stdout=subprocess.DEVNULL, text=True, **place
        )
    try:
        port = wait_for(lambda: re.search(r"at http://[^/]*:(\d+)/", log.read_text()), process)
        service = Running(process, int(port[1]), log)
        wait_for(lambda: is_up(service), process)
        yield service
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOPS_IN) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def is_up(service: Running) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return service.get("/readyz").status == 200
    return False


def wait_for(look: Any, process: subprocess.Popen[str] | None = None, seconds: float = 60) -> Any:
    """Look until there is something to see."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen = look()
        if seen:
            return seen
        assert process is None or process.poll() is None, "the service ended"
        time.sleep(0.05)
    raise AssertionError("waited in vain")
