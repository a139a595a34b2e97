"""pandas, polars and Arrow frames as rows for DuckDB, without importing any of them.

The ids of pandas and polars frames are numbered by the frame's own library: DuckDB then
sees integers only, so an id of any Python type survives, and pyarrow is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from cfnade.data.ingest.connection import quote_name
from cfnade.data.ingest.scan import Part, RowSource, Scan
from cfnade.errors import DataError

ID_ROLES = ("user", "item")


def frame_rows(frame: Any) -> RowSource | None:
    """Rows of a pandas, polars or Arrow frame; None if it is no frame."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(frame).__mro__}
    kind = type(frame).__name__
    if "pandas" in libraries and hasattr(frame, "columns"):
        positions = {str(name): place for place, name in reversed([*enumerate(frame.columns)])}
        columns = [str(name) for name in frame.columns]
        return Frame("the pandas frame", columns, lambda name: frame.iloc[:, positions[name]])
    ...
