"""Middleware around every request: the API key, metrics, and errors as JSON."""

from __future__ import annotations

import logging
import secrets
import time
import traceback
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.serve.monitoring import Metrics
from cfnade.serve.problems import RequestError

logger = logging.getLogger(__name__)

PROTECTED = ("/v1/", "/metrics")
"""Paths that need the key; the page itself and health checks do not."""

HUNG_UP = 499
"""Status that is counted for a client that disconnects early, as nginx does."""

_READ_ON = 1 << 24  # bytes read and dropped: a client cut off while sending sees no answer


class Observed:
    """Counts and times requests; an unexpected error becomes JSON with status 500.

    The log says where the error happened, without its text, which may hold private items.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observe)
        except ClientDisconnect:
            status = status or HUNG_UP
        except Exception as error:
            logger.error("a request failed: %s", _where(error))
            if status == 0:
                problem = RequestError(
                    500,
                    "internal_error",
                    "the service failed on this request",
                    "try again; the log of the service has the place of the error",
                )
                await problem.response()(scope, receive, observe)
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(time.perf_counter() - started)


class ApiKey:
    """Refuses requests without the key, as a bearer token or as X-API-Key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it has the key."""
        if scope["type"] == "http" and scope["path"].startswith(PROTECTED):
            headers = dict(scope["headers"])
            kind, _, token = headers.get(b"authorization", b"").partition(b" ")
            given = token.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
            if not secrets.compare_digest(given, self.key):
                problem = RequestError(
                    401,
                    "unauthorized",
                    "this service needs an API key",
                    "send it as Authorization: Bearer KEY, or as X-API-Key: KEY",
                    {"www-authenticate": "Bearer"},
                )
                await problem.response()(scope, receive, send)
                return
        await self.app(scope, receive, send)


async def read_body(request: Request, most: int) -> bytes:
    """Read the body of a JSON request.

    Raises:
        RequestError: If it is too large, or its content type is not JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(
            415,
            "not_json",
            "the body must be JSON",
            "send it with the header Content-Type: application/json",
        )
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > most + _READ_ON:
        raise too_large(most)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            parts.append(part)
        elif size > most + _READ_ON:
            break
    if size > most:
        raise too_large(most)
    return b"".join(parts)


def too_large(most: int) -> RequestError:
    """The error of a body beyond the limit."""
    return RequestError(
        413,
        "body_too_large",
        f"the body is larger than {most:,} bytes",
        "send fewer items, or several requests",
        {"connection": "close"},
    )


def _where(error: BaseException) -> str:
    """Type of an exception and its last stack frames, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    lines = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__} at {lines}"
