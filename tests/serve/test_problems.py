"""Every error is JSON with a code, a message and a fix, and repeats nothing private."""

from __future__ import annotations

import pytest

from cfnade.serve.problems import as_json


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/recommend", b"{", 400, "invalid_json"),
        ("POST", "/v1/recommend", b"\xff", 400, "invalid_json"),
        ("POST", "/v1/recommend", b"", 400, "invalid_json"),
        ("POST", "/v1/recommend", b"[1]", 422, "invalid_request"),
        ("POST", "/v1/recommend", {"n": 0}, 422, "invalid_request"),
        ("POST", "/v1/recommend", {"n": 101}, 422, "invalid_request"),
        ("POST", "/v1/recommend", {"n": "3"}, 422, "invalid_request"),
        ("POST", "/v1/recommend", {"histroy": {}}, 422, "invalid_request"),
        ("POST", "/v1/recommend", {"history": ["film-0"]}, 422, "invalid_request"),
        ("POST", "/v1/recommend", {"history": {"film-0": -1}}, 422, "invalid_request"),
        ("POST", "/v1/recommend", b'{"history": {"film-0": NaN}}', 422, "invalid_request"),
        ("POST", "/v1/recommend", b'{"history": {"film-0": 1e999}}', 422, "invalid_request"),
        ("POST", "/v1/recommend", {"disliked": {"film-0": 0.5}}, 422, "invalid_request"),
        ("POST", "/v1/explain", {"disliked": {"film-0": 1e300}, "item": "film-1"}, 422,
         "invalid_request"),
        ("POST", "/v1/recommend", {"history": {str(k): 1 for k in range(1001)}}, 422,
         "invalid_request"),
        ("POST", "/v1/recommend", {"history": {"film-0": 1}, "disliked": ["film-0"]}, 409,
         "liked_and_disliked"),
        ("POST", "/v1/recommend:batch", {"requests": [{}] * 65}, 422, "invalid_request"),
        ("POST", "/v1/recommend:batch", {"requests": [{}, {"n": 0}]}, 422, "invalid_request"),
        ("POST", "/v1/similar", {"item": "gone"}, 404, "unknown_item"),
        ("POST", "/v1/explain", {"item": "gone"}, 404, "unknown_item"),
        ("GET", "/v1/items?n=many", None, 422, "invalid_request"),
        ("GET", f"/v1/items?q={'x' * 201}", None, 422, "invalid_request"),
        ("GET", "/v1/items?sort=up", None, 422, "invalid_request"),
        ("GET", "/v1/items?n=1&n=2", None, 422, "invalid_request"),
        ("GET", "/nowhere", None, 404, "not_found"),
        ("GET", "/page/../settings.py", None, 404, "not_found"),
        ("GET", "/v1/recommend", None, 405, "method_not_allowed"),
        ("DELETE", "/v1/items", None, 405, "method_not_allowed"),
    ],
)  # fmt: skip
def test_every_error_is_json_with_a_code_a_message_and_what_to_do(
    service, method, path, body, status, code
):
    answer = service.ask(method, path, body)
    assert (answer.status, answer.code) == (status, code)
    assert b"Traceback" not in answer.body


def test_a_fault_in_a_batch_is_told_with_its_place(service):
    answer = service.post("/v1/recommend:batch", {"requests": [{}, {"n": 0}]})
    assert answer.json["error"]["message"].startswith("requests.1.n: ")


def test_what_is_no_number_never_leaves_as_json():
    assert as_json({"a": [float("nan"), float("inf"), 1.5]}) == b'{"a":[null,null,1.5]}'


def test_a_fault_in_a_history_is_told_without_its_items(service):
    answer = service.post("/v1/recommend", {"history": {"private-film": -77}})
    assert answer.json["error"]["message"].startswith("history: ")
    assert b"private" not in answer.body and b"77" not in answer.body


def test_a_wrong_method_is_answered_with_the_right_ones(service):
    assert service.get("/v1/recommend").headers["allow"] == "POST"
