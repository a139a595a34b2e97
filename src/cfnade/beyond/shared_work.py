"""Work that the trials of a search share: each is a fit of its own, on the same data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from scipy.sparse import csr_array

from cfnade.model.batches import identity_of

T = TypeVar("T")

_kept: ContextVar[dict[str, tuple[object, Any]] | None] = ContextVar("kept", default=None)


@contextmanager
def shared_work() -> Iterator[None]:
    """Inside the block, `once` makes equal things once; results stay the same to the bit."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def once(what: str, data: csr_array, settings: Hashable, make: Callable[[], T]) -> T:
    """What `make` returns; inside `shared_work`, its latest result if all inputs are equal.

    Args:
        what: Name of the result. One of each name is kept, so that memory stays bounded.
        data: Compared by its entries.
        settings: All else that the result depends on.
        make: Makes the result, which callers must not change.
    """
    kept = _kept.get()
    if kept is None:
        return make()
    inputs = identity_of(data), settings
    if what in kept and kept[what][0] == inputs:
        found: T = kept[what][1]
        return found
    kept.pop(what, None)  # frees its memory before more is needed
    found = make()
    kept[what] = (inputs, found)
    return found
