"""What a column of an items table holds: categories, lists of them, text, or nothing of use."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cfnade.data.ingest.columns import find_column
from cfnade.data.ingest.scan import is_numeric

Entry = tuple[int, str, float]
"""An item's code, a value that it has, and the weight of the value."""

SEPARATORS = ("\x1f", "|", ";", ",")
"""Of lists in one cell; the first stands between the values of a list type."""

MOST_WORDS = 60_000
"""Words of a text column; of more, the most common are kept."""

_LIST_NAMES = (
    "genre tag category keyword author actor director label topic subject style theme mood"
)
_LISTS = (*(form for noun in _LIST_NAMES.split() for form in (noun, f"{noun}s")), "categories")
_ITEM_LABELS = ("name", "title", "itemname", "productname", "label")
_SHARED = 0.3  # of the items must share their value with another, or it is no category
_LONG = 6.0  # words of a cell from which on it is text
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")  # noqa: RUF001 (both apostrophes)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2,}")  # Japanese and Chinese


@dataclass(frozen=True)
class FoundColumn:
    """What a column holds."""

    entries: Sequence[Entry]
    """Values of items; none if the column is not used."""

    what: str
    """In words, for the log: `19 categories`, or why it is not used."""

    @property
    def is_used(self) -> bool:
        """Whether it has values."""
        return bool(self.entries)


def read_column(name: str, kind: str, codes: Sequence[int], cells: Sequence[str]) -> FoundColumn:
    """Find out what a column holds, by its type, how often its values occur, and its name.

    Args:
        name: Of the column.
        kind: DuckDB's type of it.
        codes: Of the items, (n,), each once.
        cells: Values as text, empty if missing, (n,).
    """
    pairs = [(code, cell.strip()) for code, cell in zip(codes, cells, strict=True) if cell.strip()]
    if not pairs:
        return FoundColumn((), "empty")
    if kind.startswith(("DATE", "TIME")):
        return FoundColumn((), "dates")
    texts = [text for _, text in pairs]
    if kind != "BOOLEAN" and (is_numeric(kind) or all(map(_is_number, texts))):
        if not all(float(text).is_integer() for text in texts if _is_finite(text)):
            return FoundColumn((), "numbers that are not whole")
        whole = [(code, str(int(float(text)))) for code, text in pairs if _is_finite(text)]
        return _categories(whole) or FoundColumn((), "a number of its own for most items")
    if not is_name(name) and (split := _list_of(name, texts)):
        return _values([(code, value) for code, text in pairs for value in split(text)], "list of ")
    n_words = sum(len(text.split()) for text in texts) / len(texts)
    if not is_name(name) and n_words < _LONG and (found := _categories(pairs)):
        return found
    if is_name(name) or n_words >= 2:
        return _words(pairs)
    return FoundColumn((), "a value of its own for most items")


def is_name(column: str) -> bool:
    """Whether a column holds the names of items, by its own name."""
    return find_column([column], None, "name", _ITEM_LABELS) is not None


def read_values(
    codes: Sequence[int], cells: Sequence[str], weights: Sequence[float]
) -> list[Entry]:
    """Entries of a long table, one for each row with a value and a weight above 0."""
    rows = zip(codes, cells, weights, strict=True)
    return [(c, _short(v.strip()), w) for c, v, w in rows if v.strip() and w > 0]


def words_of(text: str) -> list[str]:
    """Words of a text, without case; pairs of signs where words are not separated by blanks."""
    found = []
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.fullmatch(word):
            found += [first + second for first, second in pairwise(word)]
        elif len(word) > 1:
            found.append(word)
    return found


def _categories(pairs: list[tuple[int, str]]) -> FoundColumn | None:
    """One value for each item, if enough items share theirs."""
    n_with = Counter(text for _, text in pairs)
    n_sharing = sum(n for n in n_with.values() if n > 1)
    return _values(pairs, "") if n_sharing >= _SHARED * len(pairs) else None


def _values(pairs: Iterable[tuple[int, str]], form: str) -> FoundColumn:
    entries = [(code, _short(value), 1.0) for code, value in pairs if value]
    n_values = len({value for _, value, _ in entries})
    noun = "category" if n_values == 1 else "categories"
    return FoundColumn(entries, f"{form}{n_values:,} {noun}")


def _words(pairs: list[tuple[int, str]]) -> FoundColumn:
    """A bag of words; words of a single item say nothing about others and are left out."""
    bags = [(code, Counter(words_of(text))) for code, text in pairs]
    n_with = Counter(word for _, bag in bags for word in bag)
    kept = {word for word, n in n_with.most_common(MOST_WORDS) if n > 1}
    entries = [
        (code, _short(word), 1.0 + math.log(n))
        for code, bag in bags
        for word, n in bag.items()
        if word in kept
    ]
    if not entries:
        return FoundColumn((), "text in which no word occurs twice")
    return FoundColumn(entries, f"text of {len(kept):,} words")


def _list_of(name: str, texts: list[str]) -> Callable[[str], list[str]] | None:
    """How to split the cells of a column into values; None if a cell is one value, or text."""
    if sum(text[0] + text[-1] in ("[]", "{}", "()") for text in texts) > 0.9 * len(texts):
        return _bracketed
    is_named_so = find_column([name], None, "list", _LISTS) is not None
    n_cells = len(set(texts))
    for separator in SEPARATORS:
        if sum(separator in text for text in texts) < 0.05 * len(texts):
            continue
        split = _splitter(separator)
        parts = Counter(part for text in texts for part in split(text))
        n_sharing = sum(n for n in parts.values() if n > 1)
        is_short = sum(len(part.split()) * n for part, n in parts.items()) <= 4 * parts.total()
        recombine = separator == "\x1f" or is_named_so or len(parts) < 0.8 * n_cells
        if is_short and recombine and n_sharing >= 0.5 * parts.total():
            return split
    parts = Counter(part for text in texts for part in text.split())
    is_list = len(parts) < (0.8 if is_named_so else 0.25) * n_cells
    if is_list and parts.total() <= _LONG * len(texts) and parts.total() > len(texts):
        return str.split
    return None


def _splitter(separator: str) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        return list(dict.fromkeys(part.strip() for part in text.split(separator) if part.strip()))

    return split


def _bracketed(text: str) -> list[str]:
    """The values of a list as Python, numpy or JSON writes it."""
    inner = text[1:-1]
    quoted = [first or second for first, second in _QUOTED.findall(inner)]
    found = quoted or re.split(r",\s*|\s+", inner)
    return list(dict.fromkeys(part.strip() for part in found if part.strip()))


def _short(value: str) -> str:
    """A value of bounded length."""
    return value[:200]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_finite(text: str) -> bool:
    return _is_number(text) and abs(float(text)) < 1e15
