"""Around every request: the API key, metrics for Prometheus, and errors as JSON."""

from __future__ import annotations

import logging
import os
import secrets
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.serve.problems import RequestError

logger = logging.getLogger(__name__)

PROTECTED = ("/v1/", "/metrics")
"""Paths that need the key; the page itself and health checks do not."""

HUNG_UP = 499
"""Status that is counted for a client that disconnects early, as nginx does."""

_READ_ON = 1 << 24  # bytes read and dropped: a client cut off while sending sees no answer

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Folder in which workers share metrics; prometheus-client reads it when imported."""

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def count_as(place: int) -> None:
    """Continue the metrics of the worker that had this number before.

    By default files are named by process, so those of dead workers would pile up.
    """
    values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]


class Metrics:
    """Counts, times and outcomes, never contents: of one worker, or of all by a shared folder."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="cfnade", registry=self.registry)
        histogram = partial(Histogram, namespace="cfnade", registry=self.registry)
        gauge = partial(Gauge, namespace="cfnade", registry=self.registry)
        self.requests = counter("requests", "Requests answered.", ["path", "status"])
        took = "Seconds from the head of a request to its answer."
        self.seconds = histogram("request_seconds", took, ["path"], buckets=_SECONDS)
        passes = "Histories answered in one pass."
        self.together = histogram("answered_together", passes, buckets=_SIZES)
        self.unknown = counter("unknown_items", "Unknown items in requests.")
        self.models = counter("models", "Models loaded, swapped or refused.", ["outcome"])
        over = "Connections that were ended: too slow, too many, too large, not HTTP."
        self.ended = counter("connections_ended", over, ["reason"])
        self.model_items = gauge(
            "model_items", "Items of the model in use.", multiprocess_mode="livemostrecent"
        )

    def response(self) -> Response:
        """All metrics in Prometheus' text format."""
        registry = self.registry
        if os.environ.get(SHARED_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        headers = {"content-type": CONTENT_TYPE_PLAIN_0_0_4}
        return Response(generate_latest(registry), headers=headers)


@dataclass
class Observed:
    """Counts and times requests; an unexpected error becomes JSON with status 500.

    The log says where the error happened, without its text, which may hold private items.
    """

    app: ASGIApp
    metrics: Metrics
    paths: frozenset[str]

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
                message = "the service failed on this request"
                fix = "try again; the log of the service has the place of the error"
                problem = RequestError(500, "internal_error", message, fix)
                await problem.response()(scope, receive, observe)
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(time.perf_counter() - started)


@dataclass(repr=False)
class ApiKey:
    """Refuses requests without the key, as a bearer token or as X-API-Key."""

    app: ASGIApp
    key: bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it has the key."""
        if scope["type"] == "http" and scope["path"].startswith(PROTECTED):
            sent = dict(scope["headers"])
            kind, _, token = sent.get(b"authorization", b"").partition(b" ")
            given = token.strip() if kind.lower() == b"bearer" else sent.get(b"x-api-key", b"")
            if not secrets.compare_digest(given, self.key):
                message = "this service needs an API key"
                fix = "send it as Authorization: Bearer KEY, or as X-API-Key: KEY"
                headers = {"www-authenticate": "Bearer"}
                problem = RequestError(401, "unauthorized", message, fix, headers)
                await problem.response()(scope, receive, send)
                return
        await self.app(scope, receive, send)


async def read_body(request: Request, most: int) -> bytes:
    """Read a JSON body; raise a RequestError if it is too large or has another content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        fix = "send it with the header Content-Type: application/json"
        raise RequestError(415, "not_json", "the body must be JSON", fix)
    length = request.headers.get("content-length", "0")
    size = int(length) if length.isdecimal() and len(length) < 20 else 0
    parts: list[bytes] = []
    if size <= most + _READ_ON:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size <= most:
                parts.append(part)
            elif size > most + _READ_ON:
                break
    if size > most:
        message = f"the body is larger than {most:,} bytes"
        fix = "send fewer items, or several requests"
        raise RequestError(413, "body_too_large", message, fix, {"connection": "close"})
    return b"".join(parts)


def _where(error: BaseException) -> str:
    """Type of an exception and its last stack frames, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    lines = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__} at {lines}"
