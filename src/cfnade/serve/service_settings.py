"""What a service may be told: where it listens, whom it answers, how much it takes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from cfnade.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """What one request may ask for; more is refused with a message that names the limit."""

    body_bytes: int = 1 << 20
    """Size of a request's body."""

    history: int = 1_000
    """Items in a history, and as many disliked ones."""

    n: int = 100
    """Items asked for."""

    batch: int = 64
    """Histories in one request for many."""

    filter_items: int = 10_000
    """Items in `exclude` or `only`."""

    query: int = 200
    """Characters of a search."""

    waiting: int = 512
    """Histories that wait for an answer; beyond that the service says that it is overloaded."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value < 1:
                raise ConfigError(f"the limit {limit.name} must be at least 1, got {value}")


@dataclass(frozen=True)
class ServeSettings:
    """All that the service is told when it starts."""

    model: Path
    """Folder of the saved model; a new model in it is taken over."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = 8000
    """Port to listen on; 0 takes a free one."""

    n_workers: int = 1
    """Processes that answer."""

    api_key: str | None = field(default=None, repr=False)
    """What requests must carry; None asks for nothing."""

    allowed_origins: tuple[str, ...] = ()
    """Other web pages that may ask from a browser."""

    watch_seconds: float = 1.0
    """How often the folder is looked at for a new model; 0 waits for SIGHUP."""

    most_together: int = 32
    """Histories that are answered in one pass when many wait; 1 answers them one by one."""

    grace_seconds: int = 30
    """How long requests may take to finish when the service is stopped."""

    limits: Limits = field(default_factory=Limits)
    """What one request may ask for."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}")
        if self.n_workers < 1 or self.most_together < 1:
            raise ConfigError("at least one worker is needed, and one history answered at a time")
        if self.watch_seconds < 0:
            raise ConfigError(f"--watch must be at least 0 seconds, got {self.watch_seconds}")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise ConfigError("the API key must be some ASCII text; it is empty or has other signs")

    def to_json(self) -> str:
        """As one line, for a worker."""
        return json.dumps({**asdict(self), "model": str(self.model)})

    @classmethod
    def from_json(cls, text: str) -> ServeSettings:
        """What `to_json` wrote."""
        told = json.loads(text)
        told["model"] = Path(told["model"])
        told["allowed_origins"] = tuple(told["allowed_origins"])
        told["limits"] = Limits(**told["limits"])
        return cls(**told)
