"""Tables of what is known about items: wide or long, in files or frames."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfnade.data.addresses import safe_address
from cfnade.data.catalogue import Catalogue
from cfnade.data.described_items import DescribedItems
from cfnade.data.ingest.columns import (
    COUNT_NAMES,
    ITEM_NAMES,
    LABEL_NAMES,
    find_column,
)
from cfnade.data.ingest.item_columns import (
    VALUES,
    address_kind,
    can_be_categories,
    is_name,
    read_column,
    read_values,
)
from cfnade.data.ingest.read import number_ids, open_rows, usable_columns
from cfnade.data.ingest.scan import Connection, Scan, connect, is_numeric, quote_name
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.errors import DataError, n_of

logger = logging.getLogger(__name__)

WEIGHT_NAMES = (*COUNT_NAMES, "tf", "relevance", "score", "value")
"""Columns of a long table that may hold the weight of a value."""


def read_items(
    source: Any, *, item_col: str | None = None, known: ItemFeatures | None = None
) -> DescribedItems:
    """Read what is known about items: categories, genres, tags, text, and their names.

    A table is wide, with one row for each item and any number of columns; or long, with one row
    for each value of an item: two columns, such as `item` and `tag`, perhaps with a weight or a
    count (`item`, `word`, `count`), perhaps with the name of each value (`item`, `tag`, `name`).

    In a wide table a cell may hold a list, separated by `|`, `;`, `,` or blanks. Text becomes a
    bag of words. Whole numbers that items share are categories. Addresses in columns such as `url`
    and `image` are links and pictures for the page of the service. Columns that are not used are
    logged: numbers that are not whole, dates, and values of which most items have their own.

    Args:
        source: A file (CSV or Parquet), a folder, a glob, or a pandas, polars or Arrow frame; a
            list of these is a list of tables, which may have different columns.
        item_col: Column of items; None recognises names such as `item` or `movie_id`.
        known: What is known already: columns with the same names are read alike.

    Raises:
        DataError: If nothing in the table can be used, or an item has several rows that differ.
    """
    if isinstance(source, DescribedItems):
        return source
    forms = {} if known is None else known.form_of
    sources = source if isinstance(source, list | tuple) else [source]
    tables = [_read_table(one, item_col, forms) for one in sources]
    if not tables:
        raise DataError("the list of items tables is empty; name at least one")
    together = tables[0]
    for more in tables[1:]:
        together = together.followed_by(more)
    return together


def with_items_table(catalogue: Catalogue, items: Any) -> Catalogue:
    """The catalogue with what a table says about items, and the items that only it has.

    Args:
        catalogue: Of the data.
        items: As for `read_items`.

    Raises:
        DataError: If the table cannot be used, or has none of the items.
    """
    described = catalogue.described(read_items(items, known=catalogue.features))
    n_new, features = len(described) - len(catalogue), described.features
    if features is not None:
        n_without = int((np.diff(features.matrix.indptr) == 0).sum())
        logger.info("items: %s, %s only in the items table", f"{len(described):,}", n_new)
        if n_without and not isinstance(items, DescribedItems):  # else its reader warns
            logger.warning("nothing is known about %s", n_of(n_without, "item"))
    return described


def _read_table(source: Any, item_col: str | None, forms: Mapping[str, str]) -> DescribedItems:
    if isinstance(source, DescribedItems):
        return source
    with connect() as connection:
        rows = open_rows(connection, source)
        item = find_column(rows.columns, item_col, "item", (*ITEM_NAMES, "id"))
        if item is None:
            names = ", ".join(map(repr, rows.columns))
            raise DataError(
                f"found no column of items in the items table; its columns are {names}; rename the "
                "one with the ids to 'item'"
            )
        others = [column for column in rows.columns if column != item]
        if not others:
            raise DataError(f"the items table has no column beside {item!r}; nothing is known")
        roles = {"item": item, **{f"c{place}": name for place, name in enumerate(others)}}
        scan = rows.scan(connection, roles)
        table = _Rows.of(connection, scan, others)
    label = next(iter(scan.parts))
    if len(table.codes) == 0:
        raise DataError(f"there are no rows with an item in {label}; expected at least one")
    return table.as_long() if table.is_long(forms) else table.as_wide(forms)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a table, values as text."""

    ids: NDArray[Any]
    codes: NDArray[np.integer]
    """Place of each row's item among the ids, ascending, (n_rows,)."""
    cells: Mapping[str, Sequence[str]]
    """By column, empty if missing, (n_rows,)."""
    kinds: Mapping[str, str]
    """DuckDB's type by column."""

    @classmethod
    def of(cls, connection: Connection, scan: Scan, names: Sequence[str]) -> _Rows:
        types = connection.types(scan.query)
        query = f"SELECT {usable_columns(types)} FROM ({scan.query})"
        with_item = f"SELECT * FROM ({query}) WHERE item IS NOT NULL"
        empty = f"SELECT count(*) FROM ({query}) WHERE item IS NULL"
        ((n_empty,),) = connection.execute(empty).fetchall()
        if n_empty:
            logger.warning("left out: %s of the items table without an item", n_of(n_empty, "row"))
        ids = number_ids(connection, scan, with_item, "item")
        roles = [f"c{place}" for place in range(len(names))]
        texts = ", ".join(f"coalesce({_as_text(r, types[r])}, '') AS {r}" for r in roles)
        found = connection.execute(
            f"SELECT DISTINCT i.code AS code, {texts} FROM ({with_item}) AS r "
            f"JOIN item_ids AS i ON r.item = i.id ORDER BY ALL"
        ).fetchnumpy()
        cells = {name: found[role].tolist() for role, name in zip(roles, names, strict=True)}
        kinds = {name: types[role] for role, name in zip(roles, names, strict=True)}
        return cls(ids, found["code"], cells, kinds)

    def is_long(self, forms: Mapping[str, str]) -> bool:
        """Whether items have several rows, one for each value, or had them in an earlier table."""
        found = self._weight_and_label
        if found is None:
            return False
        was_long = any(found) and any(name in forms for name in self.cells if name not in found)
        return was_long or len(self.ids) < len(self.codes)

    @property
    def _weight_and_label(self) -> tuple[str | None, str | None] | None:
        """Columns of weights and of names of values, beside the one of values; None if wide."""
        names = list(self.cells)
        weight = find_column(names, None, "weight", WEIGHT_NAMES) if len(names) > 1 else None
        if weight is not None and not self._is_number(weight):
            weight = None
        left = [name for name in names if name != weight]
        label = find_column(left, None, "name", LABEL_NAMES) if len(left) > 1 else None
        left = [name for name in left if name != label]
        if len(left) != 1 or (label is not None and not self._is_name_of(left[0], label)):
            return None
        return weight, label

    def _is_number(self, name: str) -> bool:
        return is_numeric(self.kinds[name]) or all(map(_number_in, self.cells[name]))

    def _is_name_of(self, value: str, label: str) -> bool:
        """Whether each value has one name."""
        pairs = set(zip(self.cells[value], self.cells[label], strict=True))
        return len(pairs) == len({text for text, _ in pairs})

    def as_long(self) -> DescribedItems:
        found = self._weight_and_label
        assert found is not None
        weight_col, label = found
        (name,) = (column for column in self.cells if column not in found)
        weights = np.ones(len(self.codes))
        if weight_col is not None:
            weights = np.array([float(text or 0) for text in self.cells[weight_col]])
            if (weights[weights > 0] >= 1).all():  # counts
                weights = np.where(weights > 0, 1.0 + np.log(np.maximum(weights, 1.0)), 0.0)
            if not np.isfinite(weights).all():
                raise DataError(f"weights in column {weight_col!r} must be finite numbers")
        cells = self.cells[name if label is None else label]
        if weight_col is None and label is None and not can_be_categories(self.kinds[name], cells):
            raise self._doubled()
        n_lists = sum("|" in cell or ";" in cell for cell in cells)
        if sum(len(cell.split()) for cell in cells) > _LONGEST * len(cells) or n_lists > (
            _LISTS * len(cells)
        ):
            raise self._doubled()
        entries = read_values(self.codes, cells, weights)
        if not entries.values:
            raise DataError(f"column {name!r} of the items table is empty; nothing is known")
        n_values, n_doubled = len(set(entries.values)), self._n_doubled
        # Few items with several rows: it may be a table with one row for each item, and a mistake.
        is_doubtful = 0 < n_doubled < _USUALLY * len(self.ids) and weight_col is label is None
        logger.log(
            logging.WARNING if is_doubtful else logging.INFO,
            "items table: read as one row per item and %s: %s, %s (%s with several), %s",
            name,
            n_of(len(self.ids), "item"),
            n_of(len(self.codes), "row"),
            f"{n_doubled:,}",
            n_of(n_values, "value"),
        )
        columns, forms = {name: entries}, {name: VALUES}
        return DescribedItems(
            self.ids, ItemFeatures.from_entries(len(self.ids), columns, forms), {}
        )

    def as_wide(self, forms: Mapping[str, str]) -> DescribedItems:
        if len(self.ids) < len(self.codes):
            raise self._doubled()
        codes = self.codes.tolist()
        used: dict[str, Entries] = {}
        found_forms: dict[str, str] = {}
        understood: list[str] = []
        unused: list[str] = []
        names: dict[Hashable, str] = {}
        addresses: dict[str, dict[Hashable, str]] = {}
        listed = self.ids[self.codes].tolist()
        for name, cells in self.cells.items():
            kind = None if name in forms else address_kind(name, cells)
            if kind is not None and kind not in addresses:
                found = zip(listed, map(safe_address, cells), strict=True)
                addresses[kind] = {item: address for item, address in found if address}
                understood.append(f"{name}: {n_of(len(addresses[kind]), kind)}")
                continue
            column = read_column(name, self.kinds[name], codes, cells, forms.get(name))
            (unused if column.entries is None else understood).append(f"{name}: {column.what}")
            if column.entries is not None:
                used[name], found_forms[name] = column.entries, column.form
            if is_name(name) and not names:
                names = {item: text for item, text in zip(listed, cells, strict=True) if text}
        if not used and not names and not addresses:
            raise DataError(f"nothing in the items table can be used: {'; '.join(unused)}")
        logger.info("items table: %s; %s", n_of(len(self.ids), "item"), "; ".join(understood))
        if unused:
            logger.warning("unused columns of the items table: %s", "; ".join(unused))
        features = ItemFeatures.from_entries(len(self.ids), used, found_forms)
        return DescribedItems(self.ids, features, names, addresses)

    @property
    def _n_doubled(self) -> int:
        """Number of items with several rows."""
        return int(np.unique(self.codes[1:][np.diff(self.codes) == 0]).size)

    def _doubled(self) -> DataError:
        """Some items have several rows that differ, in a table that is not long."""
        n_doubled = self._n_doubled
        first = int(np.flatnonzero(np.diff(self.codes) == 0)[0])
        item = self.ids[self.codes[[first]]].tolist()[0]
        differing = [name for name, cells in self.cells.items() if cells[first] != cells[first + 1]]
        have = "item has" if n_doubled == 1 else "items have"
        return DataError(
            f"{n_doubled:,} {have} several rows in the items table: those of {item!r} differ in "
            f"{', '.join(map(repr, differing[:5]))}; give one row for each item, or one table for "
            "each column of which an item has several values"
        )


_LONGEST = 8  # words of a value in a long table, on average: longer ones are texts
_USUALLY = 0.5  # share of the items with several rows, below which a long table is doubtful
_LISTS = 0.05  # share of cells that are lists, above which it is no long table


def _as_text(role: str, kind: str) -> str:
    """SQL of a value as text; the values of a list are separated by a sign of their own."""
    name = f"r.{quote_name(role)}"
    if kind.endswith("]") and not kind.startswith("STRUCT"):
        return f"array_to_string(CAST({name} AS VARCHAR[]), chr(31))"
    if kind in ("FLOAT", "DOUBLE"):
        return f"CASE WHEN NOT isnan({name}) THEN CAST({name} AS VARCHAR) END"
    return f"CAST({name} AS VARCHAR)"


def _number_in(text: str) -> bool:
    try:
        float(text or 0)
    except ValueError:
        return False
    return True
