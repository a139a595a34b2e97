from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.beyond.shared_work import once, shared_work

DATA = csr_array(np.eye(3))


def made(log: list[object], data: csr_array = DATA, n: int = 8, what: str = "factors") -> object:
    def make() -> object:
        log.append(n)
        return [n]

    return once(what, data, n, make)


def test_outside_a_search_everything_is_made_anew():
    log: list[object] = []
    assert made(log) == made(log) == [8] and log == [8, 8]
    with shared_work():
        made(log)
    assert made(log) == [8] and log == [8] * 4


def test_equal_things_are_made_once_and_the_latest_of_each_name_is_kept():
    log: list[object] = []
    other = DATA.copy()
    other.data[1] = 2.0
    with shared_work():
        first = made(log)
        assert made(log, DATA.copy()) is first
        assert made(log, what="neighbours") is not first
        assert made(log) is first and log == [8, 8]
        assert made(log, n=4) == [4]
        assert made(log) is not first
        assert made(log, other) == [8]
    assert log == [8, 8, 4, 8, 8]


def test_an_error_leaves_nothing_behind():
    def fail() -> int:
        raise KeyboardInterrupt

    with shared_work():
        with pytest.raises(KeyboardInterrupt):
            once("factors", DATA, 1, fail)
        assert once("factors", DATA, 1, lambda: 2) == 2


def test_another_thread_shares_nothing_with_this_one():
    log: list[object] = []
    with shared_work():
        made(log)
        thread = Thread(target=made, args=(log,))
        thread.start()
        thread.join()
    assert log == [8, 8]
