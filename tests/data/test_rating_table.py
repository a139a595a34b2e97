from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade.data.rating_table import levels_of, read_ratings
from cfnade.errors import DataError

HEAD = "user,movie,rating\n"


def written(tmp_path, text):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    return path


def test_a_file_becomes_levels_on_the_scale_that_occurs(tmp_path):
    table = read_ratings(written(tmp_path, HEAD + "ann,a,0.5\nann,b,5\nbob,a,3.5\n"))
    assert table.scale.tolist() == [0.5, 3.5, 5.0]
    assert table.user_ids.tolist() == ["ann", "bob"] and table.item_ids.tolist() == ["a", "b"]
    assert table.levels.toarray().tolist() == [[1, 3], [2, 0]]
    assert table.values.tolist() == [0.5, 5.0, 3.5]
    rows, columns = table.pairs
    assert (rows.tolist(), columns.tolist()) == ([0, 0, 1], [0, 1, 0])


def test_a_rating_of_zero_or_below_is_a_rating(tmp_path):
    table = read_ratings(written(tmp_path, HEAD + "ann,a,0\nann,b,-1\n"), scale=[-1, 0, 1])
    assert table.levels.toarray().tolist() == [[2, 1]]
    matrix = csr_array((np.array([0.0, 1.0]), ([0, 1], [0, 1])), shape=(3, 2))
    table = read_ratings(matrix)
    assert table.levels.nnz == 2 and table.scale.tolist() == [0.0, 1.0]
    assert read_ratings(table) is table


def test_ratings_without_a_user_or_an_item_can_be_dropped(tmp_path, caplog):
    path = written(tmp_path, HEAD + "ann,a,1\nann,b,5\n,b,x\nbob,,3\n")
    with pytest.raises(
        DataError, match=r"1 of 4 rows have no user .* drop_missing_ids=True"
    ) as error:
        read_ratings(path)
    assert error.value.__notes__ == ["in Python: fit(read_ratings(data, drop_missing_ids=True))"]
    assert read_ratings(path, drop_missing_ids=True).values.tolist() == [1.0, 5.0]
    assert "2 of 4 rows have no user or no item and are left out" in caplog.text


def test_of_several_ratings_of_a_pair_the_latest_counts(tmp_path):
    text = "user,movie,rating,timestamp\nann,a,1,20\nann,a,5,10\nbob,a,5,1\n"
    assert read_ratings(written(tmp_path, text)).values.tolist() == [1.0, 5.0]
    text = HEAD + "ann,a,1\nann,a,5\nbob,a,5\n"
    with pytest.raises(DataError, match=r"1 pair rated more than once.*time_col"):
        read_ratings(written(tmp_path, text))
    text = HEAD + "ann,a,1\nann,a,1\nbob,a,5\n"
    assert read_ratings(written(tmp_path, text)).values.tolist() == [1.0, 5.0]


@pytest.mark.parametrize(
    ("rows", "scale", "message"),
    [
        ("ann,a,7\nann,b,5\n", [1, 2, 3, 4, 5], r"1 rating not on the scale 1, 2, 3, 4, 5: .* 7"),
        ("ann,a,4\nann,b,4\n", None, "all ratings are the same"),
        ("ann,a,4\nann,b,4\n", [1, 2, 3, 4, 5], "all ratings are the same"),
        ("ann,a,4\nann,b,5\n", [5], "1 rating not on the scale 5: the first is 4"),
        ("ann,a,4\nann,b,5\n", "stars", "a scale is a list of numbers"),
        ("ann,a,4\nann,b,5\n", [], "a scale needs at least one value"),
        ("ann,a,4\nann,b,5\n", [4, float("inf")], "the values of a scale must be finite numbers"),
        ("ann,a,good\nann,b,4\n", None, "1 of 2 ratings in column 'rating' cannot be used"),
        ("ann,a,\nann,b,4\n", None, r"missing or NaN\); the first is .* finite number or drop"),
        (
            "".join(f"ann,{n},{n}.5\n" for n in range(200)),
            None,
            "at most 100 different values, got 200",
        ),
    ],
)
def test_bad_ratings_end_in_one_line(tmp_path, rows, scale, message):
    with pytest.raises(DataError, match=message) as error:
        read_ratings(written(tmp_path, HEAD + rows), scale=scale)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([4.0, np.nan], "ratings must be finite numbers"),
        ([4.0, np.inf], "ratings must be finite numbers"),
        ([], "there are no ratings"),
    ],
)
def test_a_matrix_without_finite_ratings_is_refused_in_one_line(entries, message):
    places = range(len(entries)), range(len(entries))
    with pytest.raises(DataError, match=message):
        read_ratings(csr_array((np.array(entries), places), shape=(3, 3)))


def test_a_missing_column_of_ratings_is_named(tmp_path):
    with pytest.raises(DataError, match=r"found no rating column.*rating_col"):
        read_ratings(written(tmp_path, "user,item,liked\nann,a,1\n"))


def test_a_split_keeps_every_rating_once(rng):
    table = read_ratings(csr_array(rng.integers(0, 6, size=(30, 20))))
    kept, held_out = table.split(0.1, 3)
    assert held_out.levels.nnz == round(0.1 * table.levels.nnz)
    np.testing.assert_array_equal((kept.levels + held_out.levels).toarray(), table.levels.toarray())
    assert kept.levels.nnz + held_out.levels.nnz == table.levels.nnz
    again, _ = table.split(0.1, 3)
    np.testing.assert_array_equal(again.levels.toarray(), kept.levels.toarray())


def test_a_float32_rating_is_on_the_scale_of_its_text():
    scale = np.array([3.3, 4.4])
    assert levels_of(np.array([3.3, 4.4], dtype=np.float32), scale).tolist() == [1, 2]
