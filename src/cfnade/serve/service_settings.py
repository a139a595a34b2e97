"""Settings of a service: address, key, workers and limits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from cfnade.checks import is_utf8
from cfnade.errors import ConfigError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class RequestLimits:
    """Limits of one request; a request beyond one is refused with a message that names it."""

    body_bytes: int = 1 << 20
    """Size of a request's body."""
    history: int = 1_000
    """Items in a history; as many again may be disliked."""
    n: int = 100
    """Items asked for."""
    batch: int = 64
    """Histories in one request for many."""
    filter_items: int = 10_000
    """Items in `exclude` or `only`."""
    query: int = 200
    """Characters of a search."""
    waiting: int = 512
    """Histories that may wait for an answer; beyond that requests get status 503."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value < 1:
                raise ConfigError(f"the limit {limit.name} must be at least 1, got {value}")


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of one worker, before and after a request."""

    head_bytes: int = 1 << 15
    """Size of a request's head; it may have 100 lines."""
    head_seconds: float = 10.0
    """Time for a head to arrive."""
    body_seconds: float = 30.0
    """Time for a body to arrive."""
    answer_seconds: float = 60.0
    """Time to compute an answer, and for the client to take it."""
    per_address: int = 256
    """Connections from one address."""
    total: int = 4_096
    """Connections in all, or as many as the system allows files."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise ConfigError(f"the limit {limit.name} must be above 0, got {value}")


@dataclass(frozen=True)
class ServeSettings:
    """Settings of the service."""

    model: Path
    """Folder of the saved model; watched for a new model."""
    copy: Path | None = None
    """The supervisor's copy of the model, which workers load; None loads the model itself."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    n_workers: int = 1
    """Number of worker processes."""
    api_key: str | None = field(default=None, repr=False)
    """Key that requests must carry; None for no key."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of other web pages that may send requests."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that requests may be sent to; see `host_names`."""
    watch_seconds: float = 1.0
    """Seconds between checks for a new model; 0 waits for SIGHUP."""
    most_together: int = 32
    """Maximum number of histories answered in one pass when several wait."""
    grace_seconds: int = 30
    """Seconds that requests may take to finish when the service stops."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    """Limits of one request."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    """Limits of connections."""

    @property
    def host_names(self) -> list[str]:
        """Names that a request may give as its host; empty for any.

        A service on this machine alone and without a key is open to its users, and so to the pages
        in their browsers: a page elsewhere may give its own name the address of this machine.
        """
        if not self.allowed_hosts and (self.api_key is not None or self.host not in _LOOPBACK):
            return []
        return [*_LOOPBACK, "[::1]", *(name.lower() for name in self.allowed_hosts)]

    def __post_init__(self) -> None:
        if not is_utf8(str(self.model)):  # workers read the settings as JSON
            raise ConfigError(f"the name of the model's folder must be UTF-8, got {self.model!r}")
        for name in self.allowed_hosts:
            if not name.isascii() or not name or "*" in name.removeprefix("*."):
                raise ConfigError(f"--allow-host takes a name such as *.example.com, got {name!r}")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}")
        if self.n_workers < 1 or self.most_together < 1:
            raise ConfigError("--workers and --together must be at least 1")
        if self.watch_seconds < 0:
            raise ConfigError(f"--watch must be at least 0 seconds, got {self.watch_seconds}")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise ConfigError("the API key must be non-empty ASCII text")
