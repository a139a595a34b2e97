"""A service in this process, asked without a socket."""

from __future__ import annotations

import http.client
from typing import Any

import pytest

from cfnade.serve import app as application
from cfnade.serve.loaded import LoadedModel
from cfnade.serve.service_settings import ServeSettings
from tests.serve.running import Answer
from tests.storage.saved import KEPT


class _Source:
    """A model without a folder to watch."""

    refused = None

    def __init__(self, current: LoadedModel) -> None:
        self.current = current


def unwatched(
    monkeypatch: pytest.MonkeyPatch, loaded: LoadedModel, **settings: Any
) -> application.Service:
    """A service of a loaded model; the test closes its batcher."""
    monkeypatch.setattr(application, "ModelSource", lambda folder, told, name: _Source(loaded))
    return application.Service(ServeSettings(KEPT, **settings))


async def ask_app(app: Any, method: str, path: str, body: bytes = b"", length: str = "2") -> Answer:
    """Ask an application."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", length.encode("latin-1")),
        ],
    }  # fmt: skip
    await app(scope, receive, send)
    return Answer(sent[0]["status"], http.client.HTTPMessage(), sent[1]["body"])
