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


def test_only_so_many_times_of_one_item_are_looked_through():
    many = {"history": {"film-1": [["x", None]] * MANY}}
    error = refused(REQUESTS.recommend, many)
    assert error.error_count() == 1
    body = {"history": {"film-1": [[1, 2.5]] * 1000, "film-2": [1, "2024-05-31"], "film-3": 2}}
    asked = REQUESTS.recommend.model_validate_json(json.dumps(body))
    assert asked.has_times and asked.history["film-2"] == (1.0, "2024-05-31")
    assert not REQUESTS.recommend.model_validate_json('{"history": {"a": 1}}').has_times
