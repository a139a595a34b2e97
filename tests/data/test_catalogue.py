from __future__ import annotations

import numpy as np
import pytest

from cfnade.data.catalogue import Catalogue
from cfnade.errors import DataError

FILMS = Catalogue(np.array([10, 20, 30]), np.array(["Alien", "Brazil", "Casablanca"], dtype=object))


def test_labels_are_names_where_known_and_ids_elsewhere():
    assert FILMS.label(20) == "Brazil"
    assert FILMS.label(99) == "99"
    assert Catalogue(np.array(["x"], dtype=object)).label("x") == "x"


def test_columns_follow_the_ids_given():
    assert FILMS.columns([30, 10]) == [2, 0]
    assert FILMS.columns(np.array([20])) == [1]
    with pytest.raises(DataError, match=r"item 7 and 1 more are not in this model \(3 items\)"):
        FILMS.columns([7, 8, 10])


def test_a_history_becomes_a_row_of_counts():
    assert FILMS.history({30: 4, 10: 1}).toarray().tolist() == [[1.0, 0.0, 4.0]]
    assert FILMS.history([20, 20]).toarray().tolist() == [[0.0, 2.0, 0.0]]
    assert FILMS.history({}).shape == (1, 3)


def test_a_text_is_no_history():
    with pytest.raises(DataError, match="got the text 'Alien'"):
        FILMS.history("Alien")
