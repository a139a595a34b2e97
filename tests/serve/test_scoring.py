"""Answers given together are those of the estimator, one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_array

from cfnade import ImplicitCFNADE
from cfnade.data.splitting import hold_out
from cfnade.serve import scoring
from cfnade.serve.loaded import LoadedModel, load
from cfnade.serve.wire import (
    ExplainRequest,
    Recommendations,
    RecommendRequest,
    SimilarRequest,
)
from tests.serve.running import KEPT

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
        for request, answer in zip(asked, scoring.recommend(loaded, asked), strict=True):
            Recommendations.model_validate(answer)
            ids, probabilities = by_the_estimator(loaded, request)
            found = answer["recommendations"]
            assert [entry["item"] for entry in found] == ids.tolist()
            np.testing.assert_allclose(
                [entry["probability"] for entry in found], probabilities, atol=2e-6
            )


def test_reasons_are_those_of_explain(loaded, rng):
    for _ in range(20):
        request = random_request(rng)
        known = {item: count for item, count in request.history.items() if count > 0}
        (answer,) = scoring.recommend(loaded, [request])
        for entry in answer["recommendations"]:
            told = loaded.model.explain(
                known, entry["item"], disliked=request.disliked, unknown="ignore"
            )
            expected = told.because(scoring.N_REASONS)
            assert [reason["item"] for reason in entry["because"]] == [e.item for e in expected]
            for reason, effect in zip(entry["because"], expected, strict=True):
                assert reason["logit"] == pytest.approx(effect.logit, abs=1e-5)
                assert reason["probability"] == pytest.approx(effect.probability, abs=1e-5)


def test_an_explanation_is_that_of_the_estimator(loaded):
    asked = ExplainRequest(
        history={"film-0": 3, "film-4": 1, "stranger": 2}, disliked=["film-2"], item="film-3"
    )
    told = loaded.model.explain(
        {"film-0": 3, "film-4": 1}, "film-3", disliked=["film-2"], unknown="ignore"
    )
    answer = scoring.explain(loaded, asked)
    assert answer["name"] == "Film número 3" and answer["unknown"] == ["stranger"]
    assert answer["logit"] == pytest.approx(told.logit, abs=1e-5)
    assert [e["item"] for e in answer["effects"]] == [e.item for e in told.effects]
    assert [e["liked"] for e in answer["effects"]] == [e.is_liked for e in told.effects]
    assert scoring.explain(loaded, ExplainRequest(item="stranger")) is None


def test_similar_items_are_those_of_the_estimator_without_the_item_itself(loaded):
    ids, cosines = loaded.model.similar_items("film-1", 5)
    answer = scoring.similar(loaded, SimilarRequest(item="film-1", n=4))
    assert [entry["item"] for entry in answer["similar"]] == ids[1:].tolist()
    np.testing.assert_allclose(
        [entry["similarity"] for entry in answer["similar"]], cosines[1:], atol=1e-6
    )
    some = scoring.similar(
        loaded, SimilarRequest(item="film-1", exclude=[str(ids[1]), "gone"], only=FILMS[:6])
    )
    assert {entry["item"] for entry in some["similar"]} == set(FILMS[:6]) - {"film-1", ids[1]}
    assert some["unknown"] == ["gone"]


def test_effort_grows_with_what_is_computed_beyond_the_pass():
    history = dict.fromkeys("abc", 1.0)
    assert scoring.effort(RecommendRequest()) == 0
    assert scoring.effort(RecommendRequest(history=history, n=10)) == 3
    asked = RecommendRequest(history=history, disliked=["d"], n=10, explain=True, exclude=["e"])
    assert scoring.effort(asked) == 4 * 10 + 4 + 1
    assert scoring.effort(RecommendRequest(only=["e", "f"])) == 2


def test_unknown_items_are_told_once_each(loaded):
    asked = RecommendRequest(
        history={"a": 1, "film-0": 1}, disliked=["b"], exclude=["c", "a"], only=["film-1", "d"]
    )
    (answer,) = scoring.recommend(loaded, [asked])
    assert answer["unknown"] == ["a", "b", "c", "d"]
    assert [entry["item"] for entry in answer["recommendations"]] == ["film-1"]


def test_the_spread_counts_all_items_that_may_be_recommended(loaded):
    asked = RecommendRequest(history={"film-0": 1, "film-1": 2}, exclude=["film-5"], spread=True)
    (answer,) = scoring.recommend(loaded, [asked])
    spread = answer["spread"]
    assert sum(spread["counts"]) == 12 - 3 and len(spread["counts"]) == scoring.N_BINS
    best = answer["recommendations"][0]["probability"]
    assert spread["high"] == pytest.approx(np.log(best / (1 - best)), abs=1e-4)
    (nothing,) = scoring.recommend(loaded, [RecommendRequest(only=[], spread=True)])
    assert nothing["spread"] == {"low": None, "high": None, "counts": []}
    assert nothing["recommendations"] == []


@pytest.fixture(scope="module")
def calibrated():
    """The kept model with a calibrator."""
    counts = csr_array((np.random.default_rng(0).random((200, 12)) < 0.4).astype(float))
    histories, held_out = hold_out(counts, share=0.3, rng=0)
    model = ImplicitCFNADE.load(KEPT).calibrate(histories, held_out)
    return LoadedModel(model, "films", (), "1", "now")


def test_calibrated_values_are_told_beside_the_score_if_the_model_has_them(loaded, calibrated):
    asked = [
        RecommendRequest(history={"film-0": 1, "stranger": 1}, n=3, explain=True),
        RecommendRequest(disliked=["film-0"], n=1),
    ]
    first, second = scoring.recommend(calibrated, asked)
    assert calibrated.is_calibrated and not loaded.is_calibrated
    items = [entry["item"] for entry in first["recommendations"]]
    expected = calibrated.model.probability({"film-0": 1}, items=items)
    told = [entry["calibrated"] for entry in first["recommendations"]]
    assert told == pytest.approx(expected, abs=1e-6) and len(told) == 3
    (reason,) = first["recommendations"][0]["because"]
    without = calibrated.model.probability({}, items=items[:1])[0]
    assert reason["calibrated"] == pytest.approx(expected[0] - without, abs=1e-6)
    only = {"only": ["film-0"], "include_seen": True}
    (seen,) = scoring.recommend(calibrated, [RecommendRequest(history={"film-0": 1}, **only)])
    assert "calibrated" not in seen["recommendations"][0]  # it has it already
    assert "calibrated" not in second["recommendations"][0]  # dislikes are not calibrated
    assert "calibrated" not in scoring.recommend(loaded, asked)[0]["recommendations"][0]


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
    (answer,) = scoring.recommend(mixed, [RecommendRequest(history={"8.5": 2}, exclude=[-1])])
    json.dumps(answer)
    assert len(answer["recommendations"]) == 7 and answer["unknown"] == []


def test_the_kept_model_has_what_the_tests_assume():
    assert sorted(load(KEPT).ids) == sorted(FILMS)
