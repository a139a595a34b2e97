"""From an event log or a table of counts to `Interactions`, by DuckDB."""

from cfnade.data.ingest.items_table import read_items
from cfnade.data.ingest.read import read_interactions, read_item_names

__all__ = ["read_interactions", "read_item_names", "read_items"]
