"""Finds items by name or id, as the user types."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from difflib import get_close_matches
from heapq import nsmallest
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

_LONG = 4  # letters of a word that says something by itself


class ItemSearch:
    """All names as one text, so that a search is one pass in C.

    Every word of the query must be in an item's name or id. Names that begin with the query come
    first, then names with a word that does, then the rest; among equals the most popular.
    """

    def __init__(
        self, names: Sequence[str], ids: Sequence[str], n_watchers: NDArray[np.integer]
    ) -> None:
        order = np.argsort(-np.asarray(n_watchers), kind="stable")
        self.columns: list[int] = order.tolist()  # most popular first, as the lines
        self.lines = [
            folded(names[c]) if names[c] == ids[c] else f"{folded(names[c])}\t{folded(ids[c])}"
            for c in self.columns
        ]
        self.text = "\n".join(self.lines) + "\n"
        self.ends = list(accumulate(len(line) + 1 for line in self.lines))  # in the text

    def find(self, query: str, n: int) -> tuple[list[int], int]:
        """Columns of at most n items, best first, and the number of matches.

        Args:
            query: The words; empty for the most popular items.
            n: Maximum number of items to find.
        """
        wanted = " ".join(folded(query).split())
        if not wanted:
            return self.columns[:n], len(self.lines)
        longest, *words = sorted(wanted.split(), key=len, reverse=True)
        found = self._with(longest)
        if words:
            found = [place for place in found if all(w in self.lines[place] for w in words)]
        best = nsmallest(n, found, key=lambda place: (self._rank(place, wanted), place))
        return [self.columns[place] for place in best], len(found)

    def near(self, query: str, n: int) -> list[int]:
        """Columns of at most n items that somebody may have meant, best first.

        Those with all words of the query, else those spelled much like it, else those with its
        longest word that occurs.
        """
        wanted = " ".join(folded(query).split())
        if not wanted:
            return []
        found, _ = self.find(wanted, n)
        if not found:
            places: dict[str, int] = {}
            for place, line in enumerate(self.lines):
                for text in line.split("\t"):
                    places.setdefault(text, place)
            close = dict.fromkeys(places[text] for text in get_close_matches(wanted, places, n))
            found = [self.columns[place] for place in close]
        words = sorted(wanted.split(), key=len, reverse=True)
        by_word = (self.find(word, n)[0] for word in words if len(word) >= _LONG)
        return found or next(filter(None, by_word), [])

    def _with(self, word: str) -> list[int]:
        """Places of the lines that contain a word."""
        places = []
        at = self.text.find(word)
        while at >= 0:
            places.append(bisect_right(self.ends, at))
            at = self.text.find(word, self.ends[places[-1]])
        return places

    def _rank(self, place: int, wanted: str) -> int:
        line = self.lines[place]
        if line.startswith(wanted):
            return 0 if line == wanted or line.startswith(f"{wanted}\t") else 1
        if line.endswith(f"\t{wanted}"):
            return 0
        return 2 if f" {wanted}" in line else 3


def folded(text: str) -> str:
    """Without case, accents and line breaks: cafe finds Café and CAFE."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(sign for sign in apart if not unicodedata.combining(sign))
    return " ".join(kept.split())
