"""Requests answered together get the answers of the estimator, one by one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import Dials, ImplicitCFNADE
from cfnade.answer.explain import N_REASONS
from cfnade.answer.recommend import N_BINS
from cfnade.data.item_features import Entries, ItemFeatures
from cfnade.data.splitting import hold_out
from cfnade.serve.loaded import LoadedModel
from cfnade.serve.model_source import load
from cfnade.serve.problems import RequestError
from cfnade.serve.wire import (
    DISLIKES_EFFORT,
    DialsRequest,
    ExplainRequest,
    Recommendations,
    RecommendRequest,
    SimilarRequest,
)
from tests.storage.saved import KEPT

FILMS = [f"film-{k}" for k in range(12)]


def random_request(rng: np.random.Generator) -> RecommendRequest:
    """Any mix of what can be asked for, unknown items among it."""
    names = [*rng.permutation(FILMS), "stranger"]
    cut = rng.integers(0, 8)
    asked = {
        "history": {str(item): float(rng.integers(0, 9)) for item in names[:cut]},
        "n": int(rng.integers(1, 15)),
        "include_seen": bool(rng.random() < 0.3),
        "explain": True,
        "spread": True,
    }
    if rng.random() < 0.5:
        asked["disliked"] = [str(item) for item in names[cut : cut + rng.integers(0, 3)]]
    elif rng.random() < 0.5:
        asked["disliked"] = {str(item): float(rng.integers(1, 9)) for item in names[cut : cut + 2]}
    if rng.random() < 0.5:
        asked["exclude"] = [str(item) for item in rng.choice(FILMS, 3)] + ["gone"]
    if rng.random() < 0.3:
        asked["only"] = [str(item) for item in rng.choice(FILMS, 5)]
    return RecommendRequest.model_validate_json(json.dumps(asked))


def by_the_estimator(loaded: LoadedModel, request: RecommendRequest):
    """The slow way: one call for each request."""
    known = {item: count for item, count in request.history.items() if count > 0}
    return loaded.model.recommend_for(
        known,
        request.n,
        disliked=request.disliked,
        filter_already_liked_items=not request.include_seen,
        filter_items=request.exclude,
        items=request.only,
        unknown="ignore",
    )


@pytest.mark.parametrize("n_together", [1, 2, 3, 17])
def test_answers_given_together_are_those_of_recommend_for(loaded, rng, n_together):
    for _ in range(12):
        asked = [random_request(rng) for _ in range(n_together)]
        for request, answer in zip(asked, loaded.recommend(asked), strict=True):
            Recommendations.model_validate(answer)
            ids, scores = by_the_estimator(loaded, request)
            found = answer["recommendations"]
            assert [entry["item"] for entry in found] == ids.tolist()
            np.testing.assert_allclose([entry["score"] for entry in found], scores, atol=2e-6)


def test_reasons_are_those_of_explain(loaded, rng):
    for _ in range(20):
        request = random_request(rng)
        known = {item: count for item, count in request.history.items() if count > 0}
        (answer,) = loaded.recommend([request])
        for entry in answer["recommendations"]:
            told = loaded.model.explain(
                known, entry["item"], disliked=request.disliked, unknown="ignore"
            )
            expected = told.because(N_REASONS)
            assert [reason["item"] for reason in entry["because"]] == [e.item for e in expected]
            for reason, effect in zip(entry["because"], expected, strict=True):
                assert reason["score"] == pytest.approx(effect.score, abs=1e-5)
                assert reason["probability"] is None


def test_an_explanation_is_that_of_the_estimator(loaded):
    asked = ExplainRequest(
        history={"film-0": 3, "film-4": 1, "stranger": 2}, disliked=["film-2"], item="film-3"
    )
    told = loaded.model.explain(
        {"film-0": 3, "film-4": 1}, "film-3", disliked=["film-2"], unknown="ignore"
    )
    answer = loaded.explain(asked)
    assert answer["name"] == "Film número 3" and answer["unknown"] == ["stranger"]
    assert answer["score"] == pytest.approx(told.score, abs=1e-5)
    assert [e["item"] for e in answer["effects"]] == [e.item for e in told.effects]
    assert [e["liked"] for e in answer["effects"]] == [e.is_liked for e in told.effects]
    assert loaded.explain(ExplainRequest(item="stranger")) is None


def test_similar_items_are_those_of_the_estimator_without_the_item_itself(loaded):
    ids, cosines = loaded.model.similar_items("film-1", 5)
    answer = loaded.similar(SimilarRequest(item="film-1", n=4))
    assert [entry["item"] for entry in answer["similar"]] == ids[1:].tolist()
    np.testing.assert_allclose(
        [entry["similarity"] for entry in answer["similar"]], cosines[1:], atol=1e-6
    )
    some = loaded.similar(
        SimilarRequest(item="film-1", exclude=[str(ids[1]), "gone"], only=FILMS[:6])
    )
    assert {entry["item"] for entry in some["similar"]} == set(FILMS[:6]) - {"film-1", ids[1]}
    assert some["unknown"] == ["gone"]


@pytest.fixture(scope="module")
def with_genres(loaded):
    """The kept model; films 0, 2, 4 ... are dramas, the others comedies."""
    genre = np.eye(2, dtype=np.float32)[np.arange(12) % 2]
    values, column = np.array(["Drama", "Comedy"], dtype=object), np.zeros(2, dtype=np.int64)
    features = ItemFeatures(csr_array(genre), values, column, ("genre",))
    catalogue = replace(loaded.model.catalogue_, features=features)
    model = ImplicitCFNADE.from_parts(loaded.model.scorer_, catalogue)
    return LoadedModel(model, "films", (), "1", "now")


DIALS = [
    ({"popularity": -0.7, "diversity": 0.4}, {"popularity": -0.7, "diversity": 0.4}),
    ({"pin": ["film-9", "film-2"]}, {"pin": ["film-9", "film-2"]}),
    (
        {"pin": {"film-9": 3}, "boost": {"film-2": 2}},
        {"pin": {"film-9": 3}, "boost": {"film-2": 2}},
    ),
    ({"at_most": {"genre": 2}}, {"at_most": {"genre": 2}}),
    (
        {"boost_category": {"genre": {"drama": 3.5}}, "diversity": 0.2},
        {"boost_category": {"genre": {"Drama": 3.5}}, "diversity": 0.2},
    ),
    ({}, {}),
]


def test_dials_are_those_of_the_estimator_alone_and_together(with_genres):
    def asked(dials):
        body = {"history": {"film-0": 2}, "n": 6, "dials": dials}
        return RecommendRequest.model_validate_json(json.dumps(body))

    together = with_genres.recommend([asked(dials) for dials, _ in DIALS])
    for (dials, same), answer in zip(DIALS, together, strict=True):
        Recommendations.model_validate(answer)
        (alone,) = with_genres.recommend([asked(dials)])
        ids, scores = with_genres.model.recommend_for({"film-0": 2}, 6, dials=Dials(**same))
        for found in (answer, alone):
            assert [entry["item"] for entry in found["recommendations"]] == ids.tolist()
            told = [entry["score"] for entry in found["recommendations"]]
            np.testing.assert_allclose(told, scores, atol=1e-5)


def test_unknown_items_of_dials_are_reported_and_change_no_place(loaded):
    dials = {"pin": ["gone", "film-3"], "boost": {"lost": 1.0}}
    request = RecommendRequest.model_validate_json(json.dumps({"dials": dials}))
    (answer,) = loaded.recommend([request])
    assert answer["unknown"] == ["gone", "lost"]
    assert answer["recommendations"][1]["item"] == "film-3"


@pytest.mark.parametrize(
    ("dials", "status", "code", "message"),
    [
        ({"at_most": {"brand": 1}}, 404, "unknown_category", "nothing is known about the items'"),
        (
            {"boost_category": {"genre": {"War": 1}}},
            404,
            "unknown_category",
            "no item has genre=War; known: Drama, Comedy",
        ),
        ({"pin": {"film-1": 11}}, 409, "conflicting_dials", "an item is pinned to place 11 of a "),
        ({"pin": ["film-1", "film-1"]}, 409, "conflicting_dials", "an item is pinned twice"),
        ({"pin": {"film-1": 2, "film-2": 2}}, 409, "conflicting_dials", "two items are pinned to"),
        (
            {"pin": ["film-0", "film-2"], "at_most": {"genre": 1}},
            409,
            "conflicting_dials",
            "2 pinned items have genre=Drama, and at_most allows 1",
        ),
    ],
)
def test_dials_that_the_model_cannot_follow_are_refused(with_genres, dials, status, code, message):
    request = RecommendRequest.model_validate_json(json.dumps({"dials": dials}))
    with pytest.raises(RequestError) as error:
        with_genres.check([RecommendRequest(), request])
    assert (error.value.status, error.value.code) == (status, code)
    assert error.value.message.startswith(message) and error.value.fix


def test_a_model_without_categories_refuses_them(loaded):
    with pytest.raises(RequestError) as error:
        loaded.check([RecommendRequest(dials=DialsRequest(at_most={"genre": 2}))])
    assert error.value.message.startswith("this model knows no categories of its items")


def test_effort_grows_with_what_is_computed_beyond_the_pass():
    history = dict.fromkeys("abc", 1.0)
    assert RecommendRequest().effort() == 0
    assert RecommendRequest(history=history, n=10).effort() == 3
    asked = RecommendRequest(history=history, disliked=["d"], n=10, explain=True, exclude=["e"])
    assert asked.effort() == 4 * 10 + 4 + 1 + DISLIKES_EFFORT
    assert RecommendRequest(only=["e", "f"]).effort() == 2
    assert RecommendRequest(dials=DialsRequest(popularity=1.0, pin=["a"])).effort() == 0
    diverse = DialsRequest(diversity=0.5, boost={"a": 1.0})
    assert RecommendRequest(n=10, dials=diverse).effort() == 16 * 200 + 64 * 10 + 16
    assert RecommendRequest(n=90, dials=DialsRequest(at_most={"a": 1})).effort() > 10_000 - 100


def test_unknown_items_are_told_once_each(loaded):
    asked = RecommendRequest(
        history={"a": 1, "film-0": 1}, disliked=["b"], exclude=["c", "a"], only=["film-1", "d"]
    )
    (answer,) = loaded.recommend([asked])
    assert answer["unknown"] == ["a", "b", "c", "d"]
    assert [entry["item"] for entry in answer["recommendations"]] == ["film-1"]


def test_the_spread_counts_all_items_that_may_be_recommended(loaded):
    asked = RecommendRequest(history={"film-0": 1, "film-1": 2}, exclude=["film-5"], spread=True)
    (answer,) = loaded.recommend([asked])
    spread = answer["spread"]
    assert sum(spread["counts"]) == 12 - 3 and len(spread["counts"]) == N_BINS
    best = answer["recommendations"][0]["score"]
    assert spread["high"] == pytest.approx(best, abs=1e-6)
    (nothing,) = loaded.recommend([RecommendRequest(only=[], spread=True)])
    assert nothing["spread"] == {"low": None, "high": None, "counts": []}
    assert nothing["recommendations"] == []


@pytest.fixture(scope="module")
def calibrated():
    """The kept model with a calibrator."""
    counts = csr_array((np.random.default_rng(0).random((200, 12)) < 0.4).astype(float))
    histories, held_out = hold_out(counts, share=0.3, rng=0)
    model = ImplicitCFNADE.load(KEPT).calibrate(histories, held_out)
    return LoadedModel(model, "films", (), "1", "now")


def test_probabilities_are_calibrated_with_dislikes_too(loaded, calibrated):
    requests = [
        RecommendRequest(history={"film-0": 1, "stranger": 1}, n=3, explain=True),
        RecommendRequest(history={"film-0": 1}, disliked=["film-1"], n=3),
    ]
    answers = calibrated.recommend(requests)
    assert calibrated.is_calibrated and not loaded.is_calibrated
    for answer, disliked in zip(answers, ([], ["film-1"]), strict=True):
        items = [entry["item"] for entry in answer["recommendations"]]
        expected = calibrated.model.probability({"film-0": 1}, items, disliked=disliked)
        found = [entry["probability"] for entry in answer["recommendations"]]
        assert found == pytest.approx(expected, abs=1e-6) and len(found) == 3
    first = answers[0]["recommendations"][0]
    (reason,) = first["because"]
    without = calibrated.model.probability({}, items=[first["item"]])[0]
    assert reason["probability"] == pytest.approx(first["probability"] - without, abs=1e-6)


def test_there_is_no_probability_without_a_calibrator_or_for_an_item_of_the_history(
    loaded, calibrated
):
    only = {"only": ["film-0"], "include_seen": True, "explain": True}
    request = RecommendRequest(history={"film-0": 1, "film-1": 1}, **only)
    for model in (loaded, calibrated):
        (entry,) = model.recommend([request])[0]["recommendations"]
        assert entry["probability"] is None and entry["score"] is not None
        assert {reason["probability"] for reason in entry["because"]} <= {None}
    (answer,) = loaded.recommend([RecommendRequest()])
    assert {entry["probability"] for entry in answer["recommendations"]} == {None}


def test_ids_of_other_types_are_met_as_text(tmp_path, rng):
    from cfnade.data.catalogue import Catalogue
    from cfnade.storage.folder import Artifact, save_artifact
    from tests.storage.saved import random_artifact

    made = random_artifact(rng)
    ids = np.array([7, 8.5, "7", True, b"x", "a b", "ö", -1, 0], dtype=object)
    save_artifact(
        Artifact(made.network, made.relative_rating, Catalogue(ids), {}), tmp_path / "mixed"
    )
    mixed = load(tmp_path / "mixed")
    assert mixed.columns(["7", "8.5", "-1", "b'x'"]) == ([2, 1, 7, 4], [])
    (answer,) = mixed.recommend([RecommendRequest(history={"8.5": 2}, exclude=[-1])])
    json.dumps(answer)
    assert len(answer["recommendations"]) == 7 and answer["unknown"] == []


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_a_model_of_16_bits_answers_like_the_whole_one(loaded, tmp_path, dtype):
    ImplicitCFNADE.load(KEPT).save(tmp_path / "small", dtype=dtype)
    request = RecommendRequest(history={"film-0": 1, "film-1": 1}, explain=True)
    small, whole = (m.recommend([request])[0] for m in (load(tmp_path / "small"), loaded))
    for one, other in zip(small["recommendations"], whole["recommendations"], strict=True):
        assert one["item"] == other["item"]
        assert one["score"] == pytest.approx(other["score"], abs=0.01)


def test_the_kept_model_has_what_the_tests_assume():
    assert sorted(load(KEPT).ids) == sorted(FILMS)


def test_filters_by_category_are_those_of_the_estimator(with_genres):
    def asked(**filters):
        body = {"history": {"film-0": 2}, "n": 12, **filters}
        return RecommendRequest.model_validate_json(json.dumps(body))

    filters = [{"only": {"genre": "drama"}}, {"exclude": {"genre": ["Drama"]}}, {"only": {}}]
    with_genres.check([asked(**one) for one in filters])
    found = [
        {entry["item"] for entry in answer["recommendations"]}
        for answer in with_genres.recommend([asked(**one) for one in filters])
    ]
    dramas = {f"film-{k}" for k in range(2, 12, 2)}  # without the history
    comedies = {f"film-{k}" for k in range(1, 12, 2)}
    assert found == [dramas, comedies, set()]
    similar = with_genres.similar(SimilarRequest(item="film-1", only={"genre": "Drama"}))
    assert {entry["item"] for entry in similar["similar"]} == {*dramas, "film-0"}


def test_a_filter_by_an_unknown_category_is_refused_before_requests_share_a_pass(with_genres):
    request = RecommendRequest(only={"genre": "Dram"})
    with pytest.raises(RequestError, match="did you mean Drama") as raised:
        with_genres.check([RecommendRequest(), request])
    assert (raised.value.status, raised.value.code) == (404, "unknown_category")
    with pytest.raises(RequestError, match="nothing is known about the items' brand"):
        with_genres.similar(SimilarRequest(item="film-1", exclude={"brand": "x"}))


def test_reasons_name_what_items_have_in_common(with_genres, loaded):
    request = RecommendRequest(history={"film-0": 2}, n=12, explain=True)
    (answer,) = with_genres.recommend([request])
    Recommendations.model_validate(answer)
    for entry in answer["recommendations"]:
        is_drama = int(entry["item"].removeprefix("film-")) % 2 == 0
        for reason in entry["because"]:
            assert reason["shared"] == ({"genre": ["Drama"]} if is_drama else {})
    (plain,) = loaded.recommend([request])
    assert not any("shared" in r for e in plain["recommendations"] for r in e["because"])


def test_items_have_the_addresses_that_are_known_and_the_policy_names_their_hosts(loaded):
    def with_images(images):
        catalogue = replace(
            loaded.model.catalogue_, addresses={"link": {2: "https://a.example"}, "image": images}
        )
        model = ImplicitCFNADE.load(KEPT)
        model.catalogue_ = catalogue
        return replace(loaded, model=model)

    some = with_images(
        {0: "https://b.example/0", 2: "https://b.example/2", 3: "http://c.example/3"}
    )
    assert "link" not in some.items[0] and some.items[0]["image"] == "https://b.example/0"
    assert some.items[2]["link"] == "https://a.example"
    assert some.image_sources == "http://c.example https://b.example"
    many = with_images({k: f"https://host-{k}.example/" for k in range(21)})
    assert many.image_sources == "https:"
    assert loaded.image_sources == "" and loaded.filters == {} and loaded.categories == []


def test_filters_are_columns_of_few_categories_and_limits_those_that_items_share(loaded):
    genres = ["drama", "comedy", "war"] * 4
    many, own = range(200), range(12)
    columns = {
        "genre": Entries(range(12), genres, np.ones(12)),
        "tag": Entries([k % 12 for k in many], [f"tag {k % 150}" for k in many], np.ones(200)),
        "title": Entries(own, [f"title {k}" for k in own], np.ones(12)),
        "plot": Entries(range(12), ["ship", "love"] * 6, np.ones(12)),
        "same": Entries(range(12), ["x"] * 12, np.ones(12)),
    }
    forms = dict.fromkeys(columns, "values") | {"plot": "words"}
    model = ImplicitCFNADE.load(KEPT)
    features = ItemFeatures.from_entries(12, columns, forms)
    model.catalogue_ = replace(model.catalogue_, features=features)
    described = replace(loaded, model=model)
    titles = sorted(f"title {k}" for k in own)
    assert described.filters == {"genre": ["comedy", "drama", "war"], "title": titles}
    assert described.categories == ["genre", "tag"]  # no two items have the same title
