"""A bad body costs little, however long it is: what is beyond a limit is not looked through."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from cfnade.serve.problems import invalid_request
from cfnade.serve.service_settings import RequestLimits
from cfnade.serve.wire import Requests

REQUESTS = Requests(RequestLimits())
MANY = 20_000


def refused(kind, body):
    with pytest.raises(ValidationError) as error:
        kind.model_validate_json(json.dumps(body))
    return error.value


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"history": dict.fromkeys(map(str, range(MANY)), -1)}, "history: Dictionary should have"),
        ({"disliked": dict.fromkeys(map(str, range(MANY)), 0)}, "disliked: Dictionary should have"),
        ({"disliked": [True] * MANY}, "disliked: List should have at most 1000 items"),
        ({"exclude": [True] * MANY}, "exclude: List should have at most 10000 items"),
        ({"only": [True] * 10_000}, "only: Input should be"),
        (dict.fromkeys(map(str, range(MANY)), 1), "0: Extra inputs are not permitted"),
        ({"history": {}, "histroy": {}, "n": 5}, "histroy: Extra inputs are not permitted"),
        (
            {"dials": {"boost": dict.fromkeys(map(str, range(MANY)), "x")}},
            "dials.boost: Dictionary",
        ),
        ({"dials": {"at_most": dict.fromkeys(map(str, range(MANY)), 0)}}, "dials.at_most: Dict"),
        (
            {"dials": {"boost_category": {"genre": dict.fromkeys(map(str, range(MANY)), "x")}}},
            "dials.boost_category: Dictionary should have at most 100",
        ),
        ({"dials": dict.fromkeys(map(str, range(MANY)), 1)}, "dials.0: Extra inputs are not"),
    ],
)
def test_the_faults_of_a_long_body_are_not_counted_one_by_one(body, told):
    error = refused(REQUESTS.recommend, body)
    assert error.error_count() <= 3
    assert invalid_request(error).message.startswith(told)


def test_a_batch_is_given_up_at_its_first_bad_request():
    bad = {"history": dict.fromkeys(map(str, range(100)), -1)}
    error = refused(REQUESTS.batch, {"requests": [{}, bad, *[bad] * 50]})
    assert error.error_count() == 100
    assert invalid_request(error).message.startswith("requests.1.history: ")
    error = refused(REQUESTS.batch, {"requests": [{"n": 0}] * 65})
    assert invalid_request(error).message.startswith("requests: List should have at most 64 items")


def test_lengths_up_to_the_limit_are_taken():
    body = {"history": dict.fromkeys(map(str, range(1000)), 1), "exclude": list(range(10_000))}
    asked = REQUESTS.recommend.model_validate_json(json.dumps(body))
    assert len(asked.history) == 1000 and len(asked.exclude) == 10_000


@pytest.mark.parametrize(
    ("dials", "told"),
    [
        ({"diversity": 1}, "dials.diversity: Input should be less than 1"),
        ({"diversity": -0.1}, "dials.diversity: Input should be greater than or equal to 0"),
        ({"popularity": 1e7}, "dials.popularity: Input should be less than or equal to 1000000"),
        ({"popularity": "much"}, "dials.popularity: Input should be a valid number"),
        ({"pin": {"a": 0}}, "dials.pin: Input should be"),
        ({"pin": list(range(101))}, "dials.pin: List should have at most 100 items"),
        ({"boost": {"a": True}}, "dials.boost: Input should be a valid number"),
        ({"at_most": {"genre": 0}}, "dials.at_most: Input should be greater than or equal to 1"),
        ({"at_most": dict.fromkeys(map(str, range(101)), 1)}, "dials.at_most: Dictionary should"),
        ({"boost_category": {"genre": 1}}, "dials.boost_category: Input should be an object"),
        ({"at_most": {"x" * 201: 1}}, "dials.at_most: String should have at most 200 characters"),
        ({"tilt": 1}, "dials.tilt: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_dial_is_named(dials, told):
    assert invalid_request(refused(REQUESTS.recommend, {"dials": dials})).message.startswith(told)
    many = refused(REQUESTS.batch, {"requests": [{}, {"dials": dials}]})
    assert invalid_request(many).message.startswith(f"requests.1.{told}")


def test_dials_are_taken_as_they_are():
    dials = {"popularity": -1, "diversity": 0.5, "pin": [7, "a"], "at_most": {"genre": 2.0}}
    asked = REQUESTS.recommend.model_validate_json(json.dumps({"dials": dials})).dials
    assert asked.popularity == -1 and asked.pin == [7, "a"] and asked.at_most == {"genre": 2}
    assert REQUESTS.recommend.model_validate_json(b'{"dials": null}').dials is None


def test_only_so_many_times_of_one_item_are_looked_through():
    many = {"history": {"film-1": [["x", None]] * MANY}}
    error = refused(REQUESTS.recommend, many)
    assert error.error_count() == 1
    body = {"history": {"film-1": [[1, 2.5]] * 1000, "film-2": [1, "2024-05-31"], "film-3": 2}}
    asked = REQUESTS.recommend.model_validate_json(json.dumps(body))
    assert asked.is_detailed and asked.history["film-2"] == (1.0, "2024-05-31")
    assert not REQUESTS.recommend.model_validate_json('{"history": {"a": 1}}').is_detailed


def test_an_entry_may_name_kinds_of_events_and_nothing_deeper():
    body = {"history": {"film-1": {"view": 3, "cart": [1, None], "buy": [[1, 2.5], [2, "2024"]]}}}
    asked = REQUESTS.recommend.model_validate_json(json.dumps(body))
    assert asked.is_detailed and asked.history["film-1"]["view"] == 3.0
    error = refused(REQUESTS.recommend, {"history": {"film-1": {"view": {"x": 1}}}})
    assert "_form" not in str(error) and "valid number" in str(error)
    many = {f"kind-{number}": 1 for number in range(101)}
    assert refused(REQUESTS.recommend, {"history": {"film-1": many}}).error_count() == 1
