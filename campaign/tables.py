"""Tables with odd headers, types, encodings and compressed files, for the reader."""

from __future__ import annotations

import gzip
import random
import tempfile
from pathlib import Path

from campaign.tally import NASTY, Tally, attempt, changed_bytes, in_batches
from cfnade.data.ingest import read_interactions, read_item_names

MOST_SECONDS = 10.0
HEADERS = ("user,item,count", "user_id;item_id;plays", "user\titem", "uid|iid|n", '"user","item"')
VALUES = ("007", "-0", "1e3", "", " ", "é", '"q""q"', "2020-01-01", "true", "1.5", "NULL")
IDS, COUNTS = ("1", "2", "007", "é", "a b", "x'y", "-3"), ("1", "2", "1.5", "1e3", "0")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32")
SUFFIXES = (".csv", ".csv", ".tsv", ".csv.gz", ".parquet", ".pq", ".txt", ".CSV")


def tables(n: int, seed: int, until: float) -> Tally:
    """Read n odd tables; each is read, or refused in one line."""
    with tempfile.TemporaryDirectory(prefix="cfnade-campaign-") as parent:

        def one(tally: Tally, rng: random.Random, what: str) -> None:
            suffix = rng.choice(SUFFIXES)
            path = Path(parent) / f"{rng.choice(('rows', 'a b', 'x[1]', chr(39), 'é'))}{suffix}"
            path.write_bytes(_content(rng, suffix))
            read = read_item_names if rng.random() < 0.15 else read_interactions
            attempt(tally, what, lambda: read(path), MOST_SECONDS)
            path.unlink()

        return in_batches("tables", one, n=n, until=until, seed=seed, batch=100, seconds=300)


def _content(rng: random.Random, suffix: str) -> bytes:
    header = rng.choice(HEADERS)
    mark = next(sign for sign in ";\t|," if sign in header)
    n_columns = header.count(mark) + 1
    lines = [header] if rng.random() < 0.95 else []
    for _ in range(rng.choice((0, 1, 3, 30, 3000 if rng.random() < 0.02 else 5))):
        n = n_columns if rng.random() < 0.97 else rng.randrange(6)
        usual = [rng.choice(IDS), rng.choice(IDS), rng.choice(COUNTS)]
        row = usual[:n] if n <= 3 else usual + usual
        if rng.random() < 0.05 and row:
            row[rng.randrange(len(row))] = rng.choice(VALUES)
        lines.append(mark.join(row))
    text = rng.choice(("\n", "\n", "\r\n", "\r")).join(lines) + rng.choice(("", "\n"))
    content = text.encode(rng.choice(ENCODINGS), errors="replace")
    if rng.random() < 0.7:
        content = changed_bytes(rng, content)
    if rng.random() < 0.01:
        content = rng.choice(NASTY) * 200_000
    if suffix.endswith(".gz"):
        content = gzip.compress(content, 1)
        if rng.random() < 0.3:
            content = changed_bytes(rng, content)
    elif suffix in (".parquet", ".pq"):
        content = b"PAR1" + content + rng.randbytes(4) + b"PAR1"
    return content
