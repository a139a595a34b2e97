"""What a column of an items table holds: categories, lists of them, text, or nothing of use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cfnade.data.addresses import IMAGE, LINK, safe_address
from cfnade.data.ingest.columns import find_column
from cfnade.data.ingest.scan import is_numeric
from cfnade.data.item_features import WORDS, Entries

SEPARATORS = ("\x1f", "|", ";", ",")
"""Of lists in one cell; the first stands between the values of a list type."""

VALUES, LIST, BRACKET = "values", "list ", "["
"""Forms of columns; a list is followed by what separates its values, or by a bracket."""

LONGEST = 200
"""Signs of a value that are kept."""

MOST_WORDS = 60_000
"""Words of a text column; of more, the most common are kept."""

_LIST_NAMES = (
    "genre tag category keyword author actor director label topic subject style theme mood"
)
_LISTS = (*(form for noun in _LIST_NAMES.split() for form in (noun, f"{noun}s")), "categories")
_ITEM_LABELS = ("name", "title", "itemname", "productname", "label")
_ADDRESSES = {
    LINK: "url link href page website webpage permalink",
    IMAGE: "image img picture poster cover coverimage thumbnail thumb photo artwork",
}
"""Names of columns of addresses, perhaps with the noun of an item before and `url` after them."""

_NOUNS = "item product movie film book article video track album artist page"
_ADDRESS_OF = ["", *_NOUNS.split()]
_MOST_WRONG = 0.5  # share of the cells of such a column that may be no addresses
_SHARED = 0.3  # of the items must share their value with another, or it is no category
_LONG = 6.0  # words of a cell from which on it is text
_MISSING = {"nan", "NaN", "None", "<NA>", "NULL"}  # as frames write them among texts
_POINT_ZERO = re.compile(r"-?\d{1,15}\.0+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")  # noqa: RUF001 (both apostrophes)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2,}")  # Japanese and Chinese


@dataclass(frozen=True)
class FoundColumn:
    """What a column holds."""

    entries: Entries | None
    """Values of items; None if the column is not used."""

    what: str
    """In words, for the log: `19 categories`, or why it is not used."""

    form: str = VALUES
    """How its cells are read; see `ItemFeatures.forms`."""


def read_column(
    name: str, kind: str, codes: Sequence[int], cells: Sequence[str], form: str | None = None
) -> FoundColumn:
    """Find out what a column holds, by its type, how often its values occur, and its name.

    Args:
        name: Of the column.
        kind: DuckDB's type of it.
        codes: Of the items, (n,), each once.
        cells: Values as text, empty if missing, (n,).
        form: How its cells are read; None to find out.
    """
    known = ((code, _known(cell)) for code, cell in zip(codes, cells, strict=True))
    pairs = [(code, text) for code, text in known if text]
    if not pairs:
        return FoundColumn(None, "empty")
    if form is not None:
        return _as_before(pairs, form)
    if kind.startswith(("DATE", "TIME")):
        return FoundColumn(None, "dates")
    texts = [text for _, text in pairs]
    if not can_be_categories(kind, texts):
        return FoundColumn(None, "numbers that are not whole")
    if kind != "BOOLEAN" and (is_numeric(kind) or all(map(_is_number, texts))):
        return _categories(pairs) or FoundColumn(None, "a number of its own for most items")
    if not is_name(name) and (listed := _list_form(name, texts)):
        return _list(pairs, listed)
    n_words = sum(len(text.split()) for text in texts) / len(texts)
    fewest = 0.0 if _is_named_so(name) else _SHARED
    if not is_name(name) and n_words < _LONG and (found := _categories(pairs, fewest)):
        return found
    if is_name(name) or n_words >= 2:
        return _words(pairs)
    return FoundColumn(None, "a value of its own for most items")


def can_be_categories(kind: str, cells: Sequence[str]) -> bool:
    """Whether values may be categories by their type: not dates, and not numbers with a fraction.

    Args:
        kind: DuckDB's type.
        cells: Values as text, empty if missing.
    """
    texts = [text for text in map(_known, cells) if text]
    if kind.startswith(("DATE", "TIME")):
        return False
    if kind == "BOOLEAN" or not (is_numeric(kind) or all(map(_is_number, texts))):
        return True
    return all(float(text).is_integer() for text in texts if _is_finite(text))


def is_name(column: str) -> bool:
    """Whether a column holds the names of items, by its own name."""
    return find_column([column], None, "name", _ITEM_LABELS) is not None


def address_kind(column: str, cells: Sequence[str]) -> str | None:
    """What the addresses in a column lead to, by its name; None if it holds none."""
    for kind, nouns in _ADDRESSES.items():
        names = (
            f"{item}{noun}{end}"
            for item in _ADDRESS_OF
            for noun in nouns.split()
            for end in ("", "url", "link")
        )
        if find_column([column], None, kind, names) is not None:
            texts = [cell for cell in cells if cell]
            n_wrong = sum(safe_address(text) is None for text in texts)
            return kind if texts and n_wrong <= _MOST_WRONG * len(texts) else None
    return None


def read_values(
    codes: NDArray[np.integer], cells: Sequence[str], weights: NDArray[np.floating]
) -> Entries:
    """Entries of a long table, one for each row with a value and a weight above 0."""
    values = [_known(cell) for cell in cells]
    kept = np.flatnonzero((weights > 0) & np.array([value != "" for value in values]))
    named = [as_value(values[place]) for place in kept.tolist()]
    return Entries(codes[kept], named, weights[kept])


def words_of(text: str) -> list[str]:
    """Words of a text, without case; pairs of signs where words are not separated by blanks."""
    found = []
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.fullmatch(word):
            found += [first + second for first, second in pairwise(word)]
        elif len(word) > 1:
            found.append(word)
    return found


def _categories(pairs: list[tuple[int, str]], fewest: float = _SHARED) -> FoundColumn | None:
    """One value for each item, if enough items share theirs."""
    n_with = Counter(text for _, text in pairs)
    n_sharing = sum(n for n in n_with.values() if n > 1)
    return _values(pairs, VALUES) if n_sharing >= fewest * len(pairs) else None


def _values(pairs: Iterable[tuple[int, str]], form: str) -> FoundColumn:
    items, texts = zip(*pairs, strict=True)
    values = [as_value(text) for text in texts]
    n_values = len(set(values))
    noun = "category" if n_values == 1 else "categories"
    how = "" if form == VALUES else "list of "
    entries = Entries(items, values, np.ones(len(items)))
    return FoundColumn(entries, f"{how}{n_values:,} {noun}", form)


def _list(pairs: Iterable[tuple[int, str]], form: str) -> FoundColumn:
    split = _splitter(form.removeprefix(LIST))
    values = [(code, value) for code, text in pairs for value in split(text)]
    if values and not can_be_categories("VARCHAR", [value for _, value in values]):
        return FoundColumn(None, "lists of numbers that are not whole")
    return _values(values, form) if values else FoundColumn(None, "empty lists")


def _as_before(pairs: list[tuple[int, str]], form: str) -> FoundColumn:
    """Cells of a column that was read before."""
    if form == WORDS:
        return _words(pairs, fewest=1)
    return _list(pairs, form) if form.startswith(LIST) else _values(pairs, VALUES)


def _words(pairs: list[tuple[int, str]], fewest: int = 2) -> FoundColumn:
    """A bag of words; words of a single item say nothing about others and are left out."""
    bags = [(code, Counter(words_of(text))) for code, text in pairs]
    n_with = Counter(word for _, bag in bags for word in bag)
    kept = {word for word, n in n_with.most_common(MOST_WORDS) if n >= fewest}
    found = [(c, word, n) for c, bag in bags for word, n in bag.items() if word in kept]
    if not found:
        return FoundColumn(None, "text in which no word occurs twice")
    items, words, counts = zip(*found, strict=True)
    entries = Entries(items, [word[:LONGEST] for word in words], 1.0 + np.log(counts))
    return FoundColumn(entries, f"text of {len(kept):,} words", WORDS)


def _list_form(name: str, texts: list[str]) -> str | None:
    """The form of a column of lists; None if a cell is one value, or text."""
    if sum(text[0] + text[-1] in ("[]", "{}", "()") for text in texts) > 0.9 * len(texts):
        return f"{LIST}{BRACKET}"
    is_named_so = _is_named_so(name)
    n_cells = len(set(texts))
    for separator in SEPARATORS:
        if sum(separator in text for text in texts) < 0.05 * len(texts):
            continue
        split = _splitter(separator)
        parts = Counter(part for text in texts for part in split(text))
        n_sharing = sum(n for n in parts.values() if n > 1)
        is_short = sum(len(part.split()) * n for part, n in parts.items()) <= 4 * parts.total()
        recombine = separator == "\x1f" or len(parts) < 0.8 * n_cells
        if is_short and (is_named_so or (recombine and n_sharing >= 0.5 * parts.total())):
            return f"{LIST}{separator}"
    parts = Counter(part for text in texts for part in text.split())
    is_list = len(parts) < (0.8 if is_named_so else 0.25) * n_cells
    if is_list and parts.total() <= _LONG * len(texts) and parts.total() > len(texts):
        return f"{LIST} "
    return None


def _is_named_so(column: str) -> bool:
    """Whether a column holds categories, by its name."""
    return find_column([column], None, "list", _LISTS) is not None


def _splitter(separator: str) -> Callable[[str], list[str]]:
    if separator == BRACKET:
        return _bracketed

    def split(text: str) -> list[str]:
        return list(dict.fromkeys(part.strip() for part in text.split(separator) if part.strip()))

    return split


def _bracketed(text: str) -> list[str]:
    """The values of a list as Python, numpy or JSON writes it."""
    inner = text[1:-1]
    quoted = [first or second for first, second in _QUOTED.findall(inner)]
    found = quoted or re.split(r",\s*|\s+", inner)
    return list(dict.fromkeys(part.strip() for part in found if part.strip()))


def as_value(text: str) -> str:
    """A value as features have it: of bounded length, whole numbers without a point."""
    return text.partition(".")[0] if _POINT_ZERO.fullmatch(text) else text[:LONGEST]


def _known(cell: str) -> str:
    """A cell without blanks around it; empty if it stands for a missing value."""
    text = cell.strip()
    return "" if text in _MISSING else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_finite(text: str) -> bool:
    return _is_number(text) and abs(float(text)) < 1e15
