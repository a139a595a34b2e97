"""Where rows come from, the seam of ingest: files and frames both end in a `Scan` for DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cfnade.data.ingest.connection import Connection

ID_ROLES = ("user", "item")
"""Roles whose values must come back unchanged."""

INTEGER_TYPES = frozenset(
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
)
"""DuckDB's integers that numpy has, too."""


FLOAT_TYPES = frozenset({"FLOAT", "DOUBLE"})


class SourcePart(NamedTuple):
    """Rows that lie together, in the order of their file."""

    label: str
    """What people call it: a file's path, or "the pandas frame"."""

    query: str
    """SQL of its rows, one column per role."""


@dataclass(frozen=True)
class Scan:
    """The wanted columns of all rows as SQL, each column named by its role."""

    query: str
    """SQL of all rows."""

    parts: Sequence[SourcePart]
    """The same rows piece by piece, to say where one of them is."""

    from_text: bool = False
    """Whether every value was written as text, as in a CSV, whatever it means."""

    coded_ids: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """For each role whose values are positions in sorted ids: those ids."""

    def shown(self, role: str, value: Any) -> str:
        """A value as people should see it in a message."""
        if value is None:
            return "none"
        if role in self.coded_ids:
            value = self.coded_ids[role][value]
        return repr(value.item() if isinstance(value, np.generic) else value)


class RowSource(Protocol):
    """Anything whose columns have names and whose rows DuckDB can scan, more than once."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of all columns."""
        ...

    def scan(self, connection: Connection, roles: Mapping[str, str]) -> Scan:
        """Make the columns of these roles (column by role) readable on this connection."""
        ...
