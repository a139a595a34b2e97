"""Items that nobody has touched, in a fitted model: planted tastes come back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE, Interactions
from cfnade.beyond.features import FeatureStrengths
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.fit.cold_start import add_cold_items, add_features, find_strengths
from cfnade.model.inference import NetworkScorer
from tests.networks import SMALL, random_counts, random_model

GENRES = ("crime", "cooking", "football", "space")
N_SHOWS = 13
"""Of each genre; nobody has watched the last one."""

CATALOGUE = pd.DataFrame(
    [
        (f"{genre}-{k}", genre, "film" if k % 3 == 0 else "series")
        for genre in GENRES
        for k in range(N_SHOWS)
    ],
    columns=["item", "genre", "category"],
)


def plays(n_shows: int = N_SHOWS - 1, seed: int = 0) -> Interactions:
    """Two hundred people who mostly watch one genre, the first shows of each."""
    rng = np.random.default_rng(seed)
    ids = np.array([f"{genre}-{k}" for genre in GENRES for k in range(n_shows)], dtype=object)
    own = np.arange(200)[:, None] % 4 == np.arange(4).repeat(n_shows)[None, :]
    watched = rng.random((200, len(ids))) < np.where(own, 0.5, 0.04)
    return Interactions(csr_array(watched.astype(float)), np.arange(200), ids)


@pytest.fixture(scope="module")
def model() -> ImplicitCFNADE:
    return ImplicitCFNADE(**{**SMALL, "max_epochs": 60}).fit(plays(), items=CATALOGUE)


def test_a_cold_item_of_a_taste_is_ranked_above_the_median_for_users_of_that_taste(model):
    histories = model.histories(plays())
    scores = model.scores(histories)
    assert scores.shape == (200, 52)
    for taste, genre in enumerate(GENRES):
        column = model.catalogue_.column_of[f"{genre}-{N_SHOWS - 1}"]
        assert column >= 48  # after the items with watchers
        is_above = scores[:, column] > np.median(scores, axis=1)
        assert is_above[taste::4].mean() > 0.9
        assert is_above[(taste + 1) % 4 :: 4].mean() < 0.5


def test_a_cold_item_is_recommended_filtered_and_explained(model):
    history = {"space-0": 1, "space-3": 1, "cooking-1": 1}
    ids, _ = model.recommend_for(history, 60)
    assert "space-12" in ids and len(ids) == 49
    films, _ = model.recommend_for(history, 60, items={"category": "film", "genre": "space"})
    assert set(films) == {"space-6", "space-9", "space-12"}
    first = model.explain(history, "space-12").because()[0]
    assert first.shared["genre"] == ["space"]


def test_a_history_of_a_cold_item_speaks_for_items_alike(model):
    ids, _ = model.recommend_for({"football-12": 1}, 10)
    assert sum(item.startswith("football") for item in ids) >= 8


def test_the_strengths_are_saved_and_answers_are_the_same_to_the_bit(model, tmp_path):
    model.save(tmp_path / "model")
    again = ImplicitCFNADE.load(tmp_path / "model")
    assert again.feature_strengths_ == model.feature_strengths_
    histories = model.histories(plays())
    np.testing.assert_array_equal(again.scores(histories), model.scores(histories))
    assert again.catalogue_.features.of(50) == model.catalogue_.features.of(50)
    again.save(tmp_path / "again")
    for name in ("weights.safetensors", "ratings.safetensors", "items.json"):
        one, other = ((tmp_path / folder / name).read_bytes() for folder in ("model", "again"))
        assert one == other


def test_items_can_be_added_later_without_changing_other_scores(model, tmp_path):
    model.save(tmp_path / "model")
    grown = ImplicitCFNADE.load(tmp_path / "model")
    more = pd.DataFrame(
        {"item": ["space-99", "odd"], "genre": ["space", "opera"], "category": ["film", "film"]}
    )
    grown.add_items(more)
    histories = model.histories(plays())
    wider = csr_array((histories.data, histories.indices, histories.indptr), (200, 54))
    before, after = model.scores(histories), grown.scores(wider)
    np.testing.assert_allclose(after[:, :48], before[:, :48], atol=1e-4)
    column = grown.catalogue_.column_of["space-99"]
    assert after[3::4, column].mean() > after[2::4, column].mean() + 0.5
    assert np.isfinite(after).all()  # of a genre that nobody has, too


@pytest.mark.parametrize("dated", [False, True])
def test_an_item_about_which_nothing_is_known_ranks_low_even_on_tiny_data(dated):
    """A few popular items among rare ones: the average item is more popular than most."""
    rng = np.random.default_rng(0)
    watched = rng.random((40, 12)) < np.where(np.arange(12) < 4, 0.9, 0.15)
    rows = pd.DataFrame(np.argwhere(watched), columns=["user", "item"]).astype({"item": str})
    if dated:
        days = pd.to_timedelta(rng.integers(0, 60, len(rows)), unit="D")
        rows["date"] = pd.Timestamp("2024-03-01") + days
    table = pd.DataFrame(
        [(str(k), "ab"[k % 2]) for k in range(12)] + [("alike", "a"), ("odd", "x"), ("none", "")],
        columns=["item", "genre"],
    )
    small = ImplicitCFNADE(**{**SMALL, "max_epochs": 60}).fit(rows, items=table)
    more = pd.DataFrame([("later", "y")], columns=["item", "genre"])
    for model in (small, small.add_items(more)):
        for history in ({}, {"0": 1}, {"1": 1, "9": 1}):
            ids, _ = model.recommend_for(history, 20)
            places = {item: place / len(ids) for place, item in enumerate(ids.tolist())}
            known = set(model.catalogue_.ids[-4:]) & {"odd", "none", "later"}
            assert min(places[item] for item in known) > 0.5
            assert places["alike"] < min(places[item] for item in known)


def test_a_cold_item_improves_once_it_has_watchers(model, tmp_path):
    """The last space show turns out to be for those who like crime."""
    data = plays(N_SHOWS)
    counts = data.counts.toarray()
    wrong = data.item_ids.tolist().index("space-12")
    counts[:, wrong] = counts[:, data.item_ids.tolist().index("crime-12")]
    later = Interactions(csr_array(counts), data.user_ids, data.item_ids)
    model.save(tmp_path / "model")
    more = ImplicitCFNADE.load(tmp_path / "model").partial_fit(later, n_epochs=30)

    def lead(one: ImplicitCFNADE) -> float:
        """How much more people who like crime get the show than those who like space."""
        scores = one.scores(one.histories(plays()))[:, one.catalogue_.column_of["space-12"]]
        return float(scores[0::4].mean() - scores[3::4].mean())

    assert lead(model) < 0 < lead(more)


@pytest.mark.parametrize("options", [{"n_epochs": 0}, {"n_epochs": 3, "train": "new"}])
def test_training_new_items_alone_changes_no_other_score(model, tmp_path, options):
    model.save(tmp_path / "model")
    more = ImplicitCFNADE.load(tmp_path / "model").partial_fit(plays(N_SHOWS), **options)
    histories = model.histories(plays())
    before, after = model.scores(histories), more.scores(histories)
    np.testing.assert_allclose(after[:, :48], before[:, :48], atol=1e-3)
    assert np.abs(after[:, 48:] - before[:, 48:]).max() > 0.01


def test_an_items_table_can_come_with_more_data(tmp_path):
    first = ImplicitCFNADE(**{**SMALL, "max_epochs": 60}).fit(plays())
    first.partial_fit(plays(), items=CATALOGUE, n_epochs=0)
    assert first.n_features_in_ == 52 and first.feature_strengths_ == FeatureStrengths()
    ids, _ = first.recommend_for({"space-0": 1, "space-3": 1}, 15)
    assert "space-12" in ids


def test_strengths_are_the_usual_ones_if_too_few_items_have_features(rng):
    scorer = random_model().scorer_
    entries = Entries([0, 1, 2], ["a", "a", "b"], np.ones(3))
    few = ItemFeatures.from_entries(20, {"tag": entries}, {"tag": "values"})
    found = find_strengths(scorer, few, random_counts(), random_counts(seed=1))
    assert found == FeatureStrengths()


def test_features_of_chance_change_little(rng):
    """Found on validation: what says nothing about tastes must not spoil the ranking."""
    random = pd.DataFrame({"item": plays().item_ids, "tag": rng.permutation(48) % 8})
    plain = ImplicitCFNADE(**{**SMALL, "max_epochs": 60}).fit(plays())
    described = ImplicitCFNADE(**{**SMALL, "max_epochs": 60}).fit(plays(), items=random)
    assert described.validation_mpr_ < plain.validation_mpr_ + 1.0


@pytest.mark.parametrize("n_neighbours", [0, 3])
def test_predicting_cold_items_again_changes_nothing_else(rng, n_neighbours):
    scorer = random_model(n_neighbours=n_neighbours).scorer_
    entries = Entries(range(25), [f"t{k % 4}" for k in range(25)], np.ones(25))
    features = ItemFeatures.from_entries(25, {"tag": entries}, {"tag": "values"})
    counts = random_counts()
    once = add_features(scorer, features, FeatureStrengths(half=0.0), histories=counts)
    again = add_cold_items(once, features, FeatureStrengths())
    wider = csr_array((counts.data, counts.indices, counts.indptr), (30, 25))
    assert isinstance(again, NetworkScorer) and again.relative_rating.n_items_ == 25
    np.testing.assert_allclose(again.scores(wider)[:, :20], once.scores(wider)[:, :20], atol=1e-4)


def test_a_table_with_bad_features_still_fits_and_is_reported(caplog):
    bad = CATALOGUE.copy()
    bad.loc[bad.index[:3], ["genre", "category"]] = [["", "film"], [None, None], ["unique", "film"]]
    bad["text"] = ""
    bad = bad[bad["item"] != "space-5"]
    model = ImplicitCFNADE(**SMALL).fit(plays(), items=bad)
    assert model.n_features_in_ == 52
    assert np.isfinite(model.scores(model.histories(plays()))).all()
    assert "unused columns of the items table: text: empty" in caplog.text
    assert "nothing is known about 2 items" in caplog.text
