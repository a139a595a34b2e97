from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.errors import DataError


def some_features() -> ItemFeatures:
    """Three items with genres, makers and words."""
    dense = np.array(
        [
            [1.0, 0.0, 1.0, 0.0, 0.2],
            [1.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 1.0, 0.7, 0.9],
        ],
        dtype=np.float32,
    )
    values = np.array(["Drama", "Comedy", "Pixar", "sea", "storm"], dtype=object)
    column = np.array([0, 0, 1, 2, 2])
    return ItemFeatures(csr_array(dense), values, column, ("genre", "maker", "text"))


def test_members_are_the_items_with_a_feature():
    features = some_features()
    assert features.members("genre", "Drama").tolist() == [0, 1]
    assert features.members("maker", "Pixar").tolist() == [0, 2]
    assert features.members("text", "storm").tolist() == [0, 2]


def test_a_value_may_be_written_in_another_case():
    assert some_features().members("genre", "drama").tolist() == [0, 1]


def test_an_exact_value_wins_over_one_in_another_case():
    values = np.array(["it", "IT"], dtype=object)
    both = ItemFeatures(csr_array(np.eye(2, dtype=np.float32)), values, np.zeros(2, int), ("tag",))
    assert both.members("tag", "it").tolist() == [0]
    assert both.members("tag", "IT").tolist() == [1]


def test_an_unknown_column_or_value_gets_a_suggestion():
    features = some_features()
    with pytest.raises(DataError, match=r"items' genres; did you mean genre\?"):
        features.members("genres", "Drama")
    with pytest.raises(DataError, match=r"no item has genre=Dramas; did you mean Drama\?"):
        features.members("genre", "Dramas")
    with pytest.raises(DataError, match=r"no item has genre=xyz; known: Drama, Comedy$"):
        features.members("genre", "xyz")


def test_a_suggestion_among_many_values_begins_like_the_text():
    values = np.array([*(f"a{n}" for n in range(5_000)), "zebra"], dtype=object)
    matrix = csr_array((1, len(values)), dtype=np.float32)
    many = ItemFeatures(matrix, values, np.zeros(len(values), dtype=np.int64), ("tag",))
    with pytest.raises(DataError, match="did you mean zebra"):
        many.members("tag", "zebras")
    with pytest.raises(DataError, match="known: a0, a1, a2, a3, a4 and 4,996 more"):
        many.members("tag", "quagga")


def test_what_is_known_about_an_item_reads_by_column_with_the_heaviest_words_first():
    features = some_features()
    assert features.of(2) == {"genre": ["Comedy"], "maker": ["Pixar"], "text": ["storm", "sea"]}
    assert features.of(1) == {"genre": ["Drama", "Comedy"]}


def test_features_grow_with_items_of_which_nothing_is_known():
    features = some_features()
    grown = features.grown(5)
    assert grown.n_items == 5
    assert grown.of(4) == {}
    assert grown.of(2) == features.of(2)
    assert features.n_items == 3


def test_values_and_columns_must_match_the_matrix():
    matrix = csr_array((2, 3), dtype=np.float32)
    three = np.array(["a", "b", "c"], dtype=object)
    with pytest.raises(DataError, match="3 features needs as many values and columns, got 2 and 3"):
        ItemFeatures(matrix, three[:2], np.zeros(3, dtype=np.int64), ("tag",))
    with pytest.raises(DataError, match="none of the 1 columns"):
        ItemFeatures(matrix, three, np.array([0, 1, 0]), ("tag",))


def test_entries_become_a_matrix_in_the_order_of_columns_and_texts():
    columns = {
        "tag": Entries([1, 0, 0], ["sea", "war", "sea"], [1.0, 1.0, 1.0]),
        "text": Entries([0, 0], ["sea", "sea"], [0.5, 0.7]),
    }
    found = ItemFeatures.from_entries(3, columns, {"tag": "values", "text": "words"})
    assert found.values.tolist() == ["sea", "war", "sea"] and found.column.tolist() == [0, 0, 1]
    expected = np.array([[1, 1, 0.7], [1, 0, 0], [0, 0, 0]], dtype=np.float32)
    np.testing.assert_array_equal(found.matrix.toarray(), expected)
    assert found.form_of == {"tag": "values", "text": "words"}


def test_joined_tables_share_columns_and_values():
    one = some_features()
    columns = {"genre": Entries([0, 1], ["Comedy", "War"], [1.0, 1.0])}
    other = ItemFeatures.from_entries(2, columns, {"genre": "values"})
    found = ItemFeatures.joined(4, [(np.array([0, -1, 2]), one), (np.array([1, 3]), other)])
    assert found.columns == one.columns
    assert found.of(0) == one.of(0) and found.of(2) == one.of(2)
    assert found.of(1) == {"genre": ["Comedy"]} and found.of(3) == {"genre": ["War"]}


def test_any_value_of_every_column_is_asked_for():
    features = some_features()
    assert features.with_any({"genre": "Drama"}).tolist() == [0, 1]
    assert features.with_any({"genre": ["drama", "Comedy"]}).tolist() == [0, 1, 2]
    assert features.with_any({"genre": ["Comedy"], "maker": "Pixar"}).tolist() == [2]
    assert features.with_any({"genre": []}).tolist() == []
    with pytest.raises(DataError, match="no item has maker=Pixa; did you mean Pixar"):
        features.with_any({"genre": "Drama", "maker": "Pixa"})


def test_numbers_are_compared_as_text():
    columns = {"year": Entries([0, 1], ["1994", "1995"], [1.0, 1.0])}
    years = ItemFeatures.from_entries(2, columns, {"year": "values"})
    assert years.with_any({"year": 1994}).tolist() == [0]


def test_shared_values_are_those_of_both_items_the_rarest_first():
    features = some_features()
    assert features.shared(0, 2) == {"maker": ["Pixar"], "text": ["storm"]}
    assert features.shared(1, 2) == {"genre": ["Comedy"]}
    assert features.shared(0, 2, most=1) == {"maker": ["Pixar"]}


def test_the_first_items_alone_keep_all_features():
    first = some_features().first(2)
    assert first.n_items == 2 and first.n_features == 5
    assert first.members("genre", "Comedy").tolist() == [1]
