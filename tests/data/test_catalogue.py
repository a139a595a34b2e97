from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from cfnade.data.catalogue import Catalogue, as_histories
from cfnade.data.described_items import DescribedItems
from cfnade.data.ingest import read_items
from cfnade.data.interactions import Interactions
from cfnade.data.item_features import ItemFeatures
from cfnade.errors import ConfigError, DataError

FILMS = Catalogue(np.array([10, 20, 30]), np.array(["Alien", "Brazil", "Casablanca"], dtype=object))


def test_labels_are_names_where_known_and_ids_elsewhere():
    assert FILMS.label(20) == "Brazil"
    assert FILMS.label(99) == "99"
    assert Catalogue(np.array(["x"], dtype=object)).label("x") == "x"


def test_an_entry_has_the_id_and_the_name():
    column = FILMS.column_of[20]
    assert FILMS.entry(column) == {"item": 20, "name": "Brazil"}
    assert type(FILMS.entry(column)["item"]) is int


def test_columns_follow_the_ids_given():
    assert FILMS.columns([30, 10]) == [2, 0]
    assert FILMS.columns(np.array([20])) == [1]
    with pytest.raises(DataError, match=r"item 7 and 1 more are not in this model \(3 items\)"):
        FILMS.columns([7, 8, 10])


def test_a_history_becomes_a_row_of_counts():
    assert FILMS.history({30: 4, 10: 1}).toarray().tolist() == [[1.0, 0.0, 4.0]]
    assert FILMS.history([20, 20]).toarray().tolist() == [[0.0, 2.0, 0.0]]
    assert FILMS.history({}).shape == (1, 3)


def test_a_series_has_its_items_in_the_index():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series({10: 2.0, 30: 1.0})
    assert FILMS.history(series).toarray().tolist() == [[2.0, 0.0, 1.0]]
    assert FILMS.dislikes(series, weight=lambda n: 9.0).toarray().tolist() == [[2.0, 0.0, 1.0]]


def test_a_text_is_no_history():
    with pytest.raises(DataError, match="got the text 'Alien'"):
        FILMS.history("Alien")


def test_a_row_of_counts_is_a_history_already():
    counts = csr_array(np.array([[1.0, 0.0, 4.0]]))
    for row in (counts, counts[0], csr_matrix(counts), csr_matrix(counts)[0]):
        assert FILMS.history(row).toarray().tolist() == [[1.0, 0.0, 4.0]]
        assert as_histories(row).shape == (1, 3)
    with pytest.raises(DataError, match=r"one row of counts, \(1, 3\); got \(2, 3\)"):
        FILMS.history(csr_array((2, 3)))


def test_a_row_of_counts_may_have_dislikes_but_a_mapping_has_counts():
    row = csr_array([[0.0, -1.0, 2.0]])
    np.testing.assert_array_equal(FILMS.history(row).toarray(), row.toarray())
    with pytest.raises(DataError, match="must be finite and at least 0"):
        FILMS.history({FILMS.ids.tolist()[0]: -1.0})


def test_dislikes_are_confidences_of_at_least_one():
    assert FILMS.dislikes({30: 4, 10: 1}, weight=lambda n: 9.0).toarray().tolist() == [
        [1.0, 0.0, 4.0]
    ]
    assert FILMS.dislikes([20, 20], weight=lambda n: 9.0).toarray().tolist() == [[0.0, 9.0, 0.0]]
    for weight in (0.5, 0, -3, float("nan"), float("inf")):
        with pytest.raises(DataError, match="weights of disliked items must be finite"):
            FILMS.dislikes({10: weight}, weight=lambda n: 9.0)
    with pytest.raises(DataError, match="must be numbers"):
        FILMS.dislikes({10: "much"}, weight=lambda n: 9.0)
    with pytest.raises(DataError, match="got the text 'Alien'"):
        FILMS.dislikes("Alien", weight=lambda n: 9.0)


def test_strangers_raise_warn_or_are_ignored_wherever_they_are(caplog):
    readings = [
        lambda unknown: FILMS.columns([10, 7], unknown=unknown),
        lambda unknown: FILMS.history([10, 7], unknown=unknown).indices.tolist(),
        lambda unknown: FILMS.dislikes(
            [10, 7], weight=lambda n: 9.0, unknown=unknown
        ).indices.tolist(),
    ]
    for read in readings:
        with pytest.raises(DataError, match="item 7 is not in this model"):
            read("raise")
        assert read("ignore") == [0] and not caplog.records
        assert read("warn") == [0] and "item 7 is not in this model" in caplog.text
        caplog.clear()
        with pytest.raises(ConfigError, match="one of raise, warn, ignore; got 'shrug'"):
            read("shrug")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("Alien", "must be a .*list of item ids, got the text 'Alien'"),
        (5, "must be a .*list of item ids, got 5"),
        ([[10]], r"\[10\] is not a single item id"),
        ([10, {20: 1}], r"\{20: 1\} is not a single item id"),
        ([(10, [20])], r"\(10, \[20\]\) is not a single item id"),
        (np.array([[10, 20]]), r"\[10, 20\] is not a single item id"),
    ],
)
def test_what_is_no_list_of_items_is_refused_in_one_line(items, message):
    readings = [
        FILMS.columns,
        FILMS.history,
        lambda items: FILMS.dislikes(items, weight=lambda n: 9.0),
    ]
    for read in readings:
        with pytest.raises(DataError, match=message) as error:
            read(items)
        assert "\n" not in str(error.value)


def test_an_array_of_one_item_is_a_list_of_it():
    assert FILMS.columns(np.array(20)) == [1]


def table(ids, names=None, counts=None):
    """One user who has each item as often as its number says."""
    counts = np.arange(1.0, len(ids) + 1) if counts is None else np.array(counts, dtype=float)
    return Interactions(csr_array(counts[None, :]), np.array(["u"], dtype=object), ids, names)


def test_new_items_come_after_the_known_ones_which_keep_their_columns_and_names():
    names = np.array(["Dune", "Another Brazil", "Eraserhead"], dtype=object)
    grown, counts = FILMS.grown(table(np.array([40, 20, 5]), names))
    assert grown.ids.tolist() == [10, 20, 30, 40, 5] and grown.ids.dtype == FILMS.ids.dtype
    assert grown.names.tolist() == ["Alien", "Brazil", "Casablanca", "Dune", "Eraserhead"]
    assert counts.toarray().tolist() == [[0.0, 2.0, 0.0, 1.0, 3.0]]


def test_a_catalogue_that_has_all_items_stays_itself():
    grown, counts = FILMS.grown(table(np.array([30, 10])))
    assert grown is FILMS
    assert counts.toarray().tolist() == [[2.0, 0.0, 1.0]]


def test_names_come_from_where_they_are_known():
    unnamed = Catalogue(np.array([10, 20]))
    assert unnamed.grown(table(np.array([20, 30])))[0].names is None
    named = table(np.array([20, 30]), np.array(["Brazil", "Casablanca"], dtype=object))
    assert unnamed.grown(named)[0].names.tolist() == ["10", "Brazil", "Casablanca"]
    assert FILMS.grown(table(np.array([20, 40])))[0].names.tolist()[-1] == "40"


@pytest.mark.parametrize(
    ("known", "new", "expected"),
    [
        (np.array(["a", "b"]), np.array(["b", "long"]), ["a", "b", "long"]),
        (np.array([1, 2]), np.array(["2", "7"]), [1, 2, 7]),
        (np.array([1, 2], dtype=object), np.array(["2", "7"], dtype=object), [1, 2, 7]),
        (np.array(["a", "2"], dtype=object), np.array([2, 7]), ["a", "2", "7"]),
        (np.array([1, 2], dtype=np.uint64), np.array([2, -7]), [1, 2, -7]),
        (np.array([1, 2], dtype=np.uint8), np.array([2, 700]), [1, 2, 700]),
        (np.array([1, "a"], dtype=object), np.array([1, 2.5], dtype=object), [1, "a", 2.5]),
    ],
)
def test_new_ids_are_written_as_the_known_ones_are(known, new, expected):
    grown, _ = Catalogue(known).grown(table(new))
    assert grown.ids.tolist() == expected
    assert [type(i) for i in grown.ids.tolist()] == [type(i) for i in expected]


def test_ids_that_cannot_follow_the_known_ones_are_refused():
    with pytest.raises(DataError, match=r"integers, like 10, but 'x' is not"):
        FILMS.grown(table(np.array(["20", "x"])))
    with pytest.raises(DataError, match=r"knows none of the items: they look like 'x'"):
        FILMS.grown(table(np.array(["x", "y"])))
    with pytest.raises(DataError, match="must be distinct"):
        FILMS.grown(table(np.array([20, 7, 7])))


def test_features_have_a_row_for_each_item_and_grow_with_the_catalogue():
    matrix = csr_array(np.array([[1.0], [1.0], [0.0]], dtype=np.float32))
    genres = ItemFeatures(matrix, np.array(["Drama"], dtype=object), np.zeros(1, int), ("genre",))
    films = Catalogue(FILMS.ids, FILMS.names, genres)
    grown, _ = films.grown(Interactions(csr_array([[1.0, 1.0]]), np.array([1]), np.array([10, 40])))
    assert grown.features is not None
    assert grown.features.n_items == 4
    assert grown.features.members("genre", "Drama").tolist() == [0, 1]
    with pytest.raises(DataError, match="of 3 items, not of 1"):
        Catalogue(np.array([10]), None, genres)


def shows(ids, **columns) -> DescribedItems:
    pandas = pytest.importorskip("pandas")  # a model is used without
    return read_items(pandas.DataFrame({"item": ids, **columns}))


def test_a_table_adds_features_and_its_own_items_at_the_end():
    films = Catalogue(np.array([10, 20, 30]), np.array(["Ten", "Twenty", "Thirty"], dtype=object))
    table = shows([40, 30, 10], title=["Forty", "Other", "Other"], genre=["War", "Drama", "War"])
    found = films.described(table)
    assert found.ids.tolist() == [10, 20, 30, 40]
    assert found.names.tolist() == ["Ten", "Twenty", "Thirty", "Forty"]
    assert found.features.members("genre", "War").tolist() == [0, 3]
    assert found.features.of(1) == {}


def test_a_later_table_replaces_what_was_known_about_its_items():
    films = Catalogue(np.array([10, 20])).described(shows([10, 20], genre=["War", "War"]))
    found = films.described(shows([20, 30], genre=["Drama", "War"]))
    assert [found.features.of(place) for place in range(3)] == [
        {"genre": ["War"]},
        {"genre": ["Drama"]},
        {"genre": ["War"]},
    ]


def test_a_table_of_other_items_is_refused():
    with pytest.raises(DataError, match=r"none of the items: its ids look like 'x'.* like 10"):
        Catalogue(np.array([10, 20])).described(shows(["x", "y"], genre=["War", "War"]))


def test_ids_of_another_type_are_compared_as_text():
    found = Catalogue(np.array([10, 20])).described(shows(["20", "30"], genre=["War", "War"]))
    assert found.ids.tolist() == [10, 20, 30]
    assert found.features.members("genre", "War").tolist() == [1, 2]


def test_names_alone_add_no_items():
    found = Catalogue(np.array([10, 20])).described(shows([10, 30], title=["One", "Two"]))
    assert found.ids.tolist() == [10, 20] and found.names.tolist() == ["One", "20"]
    assert found.features is None


def test_items_are_chosen_by_features_only_where_there_are_any():
    with pytest.raises(DataError, match="items' genre: the model was fitted without an items"):
        Catalogue(np.array([10, 20])).with_features({"genre": "War"})


def test_addresses_stay_with_their_items_and_a_later_table_replaces_them():
    url = "https://e.example/a"
    pd = pytest.importorskip("pandas")
    items = pd.DataFrame({"item": ["a", "c"], "kind": ["x", "x"], "url": [url, url]})
    catalogue = Catalogue(np.array(["a", "b"], dtype=object)).described(read_items(items))
    assert catalogue.ids.tolist() == ["a", "b", "c"]
    assert catalogue.addresses == {"link": {0: url, 2: url}}
    later = read_items(pd.DataFrame({"item": ["a"], "url": ["https://e.example/new"]}))
    assert catalogue.described(later).addresses["link"][0] == "https://e.example/new"
    grown, _ = catalogue.grown(table(np.array(["b", "d"], dtype=object)))
    assert len(grown) == 4 and grown.addresses == catalogue.addresses
