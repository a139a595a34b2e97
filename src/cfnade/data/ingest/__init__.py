"""From an event log or a table of counts to `Interactions`, by DuckDB."""

from cfnade.data.ingest.item_names import find_name_column, read_item_names
from cfnade.data.ingest.items_table import read_items
from cfnade.data.ingest.read import read_interactions

__all__ = ["find_name_column", "read_interactions", "read_item_names", "read_items"]
