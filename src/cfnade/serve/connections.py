"""Limits of a connection before its request is complete: size of the head, time, and number.

uvicorn reads a head of any size for any time. Here a head and a body must arrive in time and an
answer be taken in time. Where there are too many connections, the one that has waited longest
ends, so that a new request always gets in.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cfnade.serve.service_settings import ConnectionLimits

if sys.platform != "win32":
    import resource

logger = logging.getLogger(__name__)

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: proxies wait less, so that they close first."""

_MOST_LINES = 100  # of a head
_MOST_PIPELINED = 16  # requests that a client has sent ahead
_MESSAGE_BYTES = 1 << 25  # of head, body and chunk marks; `read_body` stops before
_FLUSH_SECONDS = 10.0  # for a closed connection to send what it has
_SWEEP_SECONDS, _LOG_SECONDS = 1.0, 60.0
_OTHER_FILES = 64  # open files that are not connections


@dataclass(eq=False)
class Connections:
    """The connections of a worker."""

    limits: ConnectionLimits
    count: Callable[[str], None]
    """Counts a connection that was ended, by reason."""

    by_address: dict[str, set[GuardedProtocol]] = field(default_factory=dict)
    _ended: Counter[str] = field(default_factory=Counter)  # since the last line of the log

    def __post_init__(self) -> None:
        self.most = max(1, min(self.limits.total, _raise_file_limit() - _OTHER_FILES))

    def add(self, new: GuardedProtocol) -> None:
        """Admit a connection, and end another one if there are too many."""
        own = self.by_address.setdefault(new.address, set())
        own.add(new)
        if len(own) > self.limits.per_address:
            self._make_room(own)
        elif len(new.connections) > self.most:
            self._make_room(new.connections)

    def _make_room(self, among: Collection[Any]) -> None:
        """End the connection that has waited longest; if all are being answered, the newest."""
        waiting = [one for one in among if not one.is_answering]
        min(waiting, key=lambda one: one.since).end("too_many")

    def drop(self, gone: GuardedProtocol) -> None:
        """Forget a connection that has ended."""
        own = self.by_address.get(gone.address, set())
        own.discard(gone)
        if not own:
            self.by_address.pop(gone.address, None)

    def note(self, reason: str) -> None:
        """Count a connection that was ended."""
        self._ended[reason] += 1
        self.count(reason)

    async def watch(self) -> None:
        """End connections that take too long, and log how many; never with an address."""
        loop = asyncio.get_running_loop()
        logged_at = -math.inf
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = loop.time()
            late = [one for own in self.by_address.values() for one in own if one.until < now]
            for one in late:
                one.end("too_slow")
            if self._ended and now - logged_at > _LOG_SECONDS:
                ended = ", ".join(f"{n:,} {reason}" for reason, n in sorted(self._ended.items()))
                logger.warning("ended connections: %s", ended.replace("_", " "))
                self._ended.clear()
                logged_at = now


class OpenTransport:
    """A transport that drops what is written after it was closed, as asyncio's own do.

    uvloop raises an error if a client hangs up in the middle of an answer, before the protocol
    knows about it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send bytes if the connection is open."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    address = ""
    """Of the client; of IPv6 the network, as one client has many addresses."""
    is_answering = False
    """Whether a request is complete and its answer is not."""
    since = until = math.inf
    """When the present wait began, and when it must be over."""
    is_idle = False
    n_received = 0  # bytes of the message so far
    n_head = 0  # bytes of its header lines
    most_received: float = math.inf

    def __init__(self, *args: Any, guard: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self.guard, self.limits = guard, guard.limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(OpenTransport(transport))  # type: ignore[arg-type]
        self.address = _network(self.client[0] if self.client else "")
        self._wait(self.limits.head_seconds)
        self.guard.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another."""
        self.guard.drop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, unless it is too much."""
        if self.is_idle:
            self.is_idle = False
            self._wait(self.limits.head_seconds)
        super().data_received(data)
        self.n_received += len(data)
        if self.n_received > self.most_received:
            self.end("too_large")

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self.n_received = self.n_head = 0
        self.most_received = self.limits.head_bytes
        self._wait(self.limits.head_seconds)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a line of the head, or of what follows a body in chunks."""
        self.n_head += len(name) + len(value)
        if self.n_head > self.limits.head_bytes or len(self.headers) >= _MOST_LINES:
            raise ValueError("the head is too large")  # uvicorn answers with `send_400_response`
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to wait for the body."""
        if len(self.url) > self.limits.head_bytes or len(self.pipeline) >= _MOST_PIPELINED:
            raise ValueError("too much at once")
        self.most_received = _MESSAGE_BYTES
        self._wait(self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Begin to answer."""
        self.most_received = math.inf
        self.is_answering = not self.cycle.response_complete
        self._wait(self.limits.answer_seconds)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for another request; uvicorn closes the connection after `KEEP_ALIVE` seconds."""
        self.is_answering, self.is_idle = bool(self.pipeline), True
        self._wait(KEEP_ALIVE + _FLUSH_SECONDS)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or a head that is too large."""
        is_large = self.n_head > self.limits.head_bytes or len(self.headers or ()) >= _MOST_LINES
        self.end("too_large" if is_large else "not_http")

    def end(self, reason: str) -> None:
        """End the connection: with an answer where one is possible, at once at the second call."""
        if self.transport.is_closing():
            self.transport.abort()
            return
        self.guard.note(reason)
        self._wait(_FLUSH_SECONDS)
        cycle = self.cycle
        if reason == "too_many":
            self.transport.abort()
        elif cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_ANSWERS[reason])
        self.transport.close()

    def _wait(self, seconds: float) -> None:
        self.since = self.loop.time()
        self.until = self.since + seconds


def _answer(status: HTTPStatus) -> bytes:
    text = f"{status.phrase}\n"
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "content-type: text/plain; charset=utf-8",
        "x-content-type-options: nosniff",
        f"content-length: {len(text)}",
        "connection: close",
    )
    return "\r\n".join([*lines, "", text]).encode()


_ANSWERS = {
    "too_slow": _answer(HTTPStatus.REQUEST_TIMEOUT),
    "too_large": _answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    "not_http": _answer(HTTPStatus.BAD_REQUEST),
}


def _network(host: str) -> str:
    """The address of a client; of IPv6 its network of 64 bits, which is one client's."""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))


def _raise_file_limit() -> int:
    """Allow as many open files as the system does; returns their number."""
    if sys.platform == "win32":
        return 512  # of a C library
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
