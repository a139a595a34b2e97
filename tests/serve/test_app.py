"""The service as its clients meet it: a real process, asked over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import shlex
import shutil
import signal
import socket
import threading
import time
from dataclasses import replace

import numpy as np

from cfnade import Dials, ImplicitCFNADE
from cfnade.model.inference import NumpyNetwork
from cfnade.serve import app as application
from cfnade.serve.model_source import load
from cfnade.serve.service_settings import RequestLimits
from cfnade.serve.wire import RecommendRequest
from cfnade.storage.folder import save_artifact
from tests.markdown_examples import ROOT, blocks
from tests.serve.in_process import ask_app, unwatched
from tests.serve.running import STOPS_IN, running, wait_for
from tests.storage.saved import KEPT, random_artifact

HISTORY = {"film-1": 3, "film-4": 1}
GUIDES = ROOT / "docs" / "guides"


def test_recommend_answers_as_the_estimator_does(service):
    answer = service.post("/v1/recommend", {"history": HISTORY, "n": 4, "explain": True})
    ids, scores = ImplicitCFNADE.load(KEPT).recommend_for(HISTORY, n=4)
    found = answer.json["recommendations"]
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert [entry["item"] for entry in found] == ids.tolist()
    np.testing.assert_allclose([e["score"] for e in found], scores, atol=1e-6)
    assert set(found[0]) == {"item", "name", "score", "probability", "because"}
    assert set(found[0]["because"][0]) == {"item", "name", "liked", "score", "probability"}


def test_dials_are_followed_and_those_that_cannot_be_are_refused_without_harm(service):
    asked = {"history": HISTORY, "n": 4, "dials": {"pin": ["film-6"], "diversity": 0.5}}
    found = service.post("/v1/recommend", asked).json["recommendations"]
    dials = Dials(pin=["film-6"], diversity=0.5)
    ids, _ = ImplicitCFNADE.load(KEPT).recommend_for(HISTORY, n=4, dials=dials)
    assert [entry["item"] for entry in found] == ids.tolist() and ids[0] == "film-6"
    wrong = {"history": HISTORY, "dials": {"pin": {"film-6": 11}}}
    for path, body in (("", wrong), (":batch", {"requests": [asked, wrong]})):
        answer = service.post(f"/v1/recommend{path}", body)
        assert (answer.status, answer.code) == (409, "conflicting_dials")
    unknown = service.post("/v1/recommend", {"dials": {"at_most": {"genre": 1}}})
    assert (unknown.status, unknown.code) == (404, "unknown_category")
    zero = service.post("/v1/recommend", {"history": HISTORY, "dials": {"popularity": 0}})
    assert zero.body == service.post("/v1/recommend", {"history": HISTORY}).body


def test_the_requests_and_the_error_of_the_guides_are_real(service):
    (curl,) = [
        shlex.split(block.text.replace("\\\n", ""))
        for block in blocks((GUIDES / "serve.md").read_text(), "sh")
        if block.text.startswith("curl ")
    ]
    path, body = curl[1].removeprefix("localhost:8000"), curl[curl.index("-d") + 1]
    kind = curl[curl.index("-H") + 1].partition(": ")[2]
    answer = service.ask("POST", path, body.encode(), {"content-type": kind})
    assert answer.status == 200 and len(answer.json["recommendations"]) == 3

    (said,) = [
        json.loads(block.text)
        for block in blocks((GUIDES / "serve.md").read_text(), "text")
        if block.text.startswith('{"error"')
    ]
    assert service.post("/v1/recommend", {"history": HISTORY, "n": 101}).json == said

    (dials,) = blocks((GUIDES / "dials.md").read_text(), "json")
    request = json.loads(dials.text)
    assert service.post("/v1/recommend", request).code == "unknown_category"  # of this model
    for name in ("at_most", "boost_category"):
        del request["dials"][name]
    assert service.post("/v1/recommend", request).status == 200


def test_a_batch_is_answered_in_its_order(service):
    histories = [{}, HISTORY, {"film-0": 2, "stranger": 1}]
    asked = {"requests": [{"history": history, "n": 2} for history in histories]}
    answers = service.post("/v1/recommend:batch", asked).json["answers"]
    for history, answer in zip(histories, answers, strict=True):
        assert answer == service.post("/v1/recommend", {"history": history, "n": 2}).json
    assert answers[2]["unknown"] == ["stranger"]
    assert service.post("/v1/recommend:batch", {"requests": []}).json == {"answers": []}


def test_explain_similar_and_items(service):
    told = service.post("/v1/explain", {"history": HISTORY, "item": "film-7"}).json
    assert told["item"] == "film-7" and len(told["effects"]) == 2
    alike = service.post("/v1/similar", {"item": "film-0", "n": 3}).json
    assert len(alike["similar"]) == 3 and alike["similar"][0]["item"] != "film-0"
    found = service.get("/v1/items?q=numero+1&n=2").json
    assert found["n_found"] == 3 and found["items"][0] == {
        "item": "film-1",
        "name": "Film número 1",
    }
    named = service.post("/v1/items:lookup", {"items": ["film-2", "gone"]}).json
    assert named["items"][0]["name"] == "Film número 2" and named["unknown"] == ["gone"]


def with_half_life(folder):
    """The model, with histories that decay with a half-life of ten days."""
    model = ImplicitCFNADE.load(folder)
    training = {"readout": {"history_half_life": 864_000.0}, "clock": "seconds"}
    dated = ImplicitCFNADE.from_parts(model.scorer_, model.catalogue_, info={"training": training})
    dated.save(folder)
    return dated


def test_histories_may_have_times(folder, tmp_path):
    model = with_half_life(folder)
    dated = {
        "film-1": [8, "2024-05-01T00:00:00Z"],
        "film-4": [[2, "2024-05-31T00:00:00Z"], [1, 1_700_000_000]],
        "film-5": 4,
        "film-6": [4, None],
        "stranger": [1, "2024-05-31T00:00:00Z"],
    }
    with running(folder, tmp_path / "log.txt") as service:
        assert service.get("/v1/model").json["clock"] == "seconds"
        answer = service.post("/v1/recommend", {"history": dated, "n": 4, "explain": True}).json
        ids, scores = model.recommend_for(dated, n=4, unknown="ignore")
        assert [entry["item"] for entry in answer["recommendations"]] == ids.tolist()
        found = [entry["score"] for entry in answer["recommendations"]]
        np.testing.assert_allclose(found, scores, atol=1e-6)
        assert answer["unknown"] == ["stranger"]
        undated = {"film-1": 8, "film-4": 3, "film-5": 4, "film-6": 4}
        assert service.post("/v1/recommend", {"history": undated, "n": 4}).json != answer
        told = service.post("/v1/explain", {"history": dated, "item": "film-7"}).json
        expected = model.explain(dated, "film-7", unknown="ignore")
        np.testing.assert_allclose(told["score"], expected.score, atol=1e-6)
        asked = {"requests": [{"history": dated, "n": 4, "explain": True}, {"history": {}}]}
        assert service.post("/v1/recommend:batch", asked).json["answers"][0] == answer
        both = {"history": {"film-1": [[0, 5], [1, 6]]}, "disliked": ["film-1"]}
        assert service.post("/v1/recommend", both).json["error"]["code"] == "liked_and_disliked"
        none = {"history": {"film-1": [[0, 5]]}, "disliked": ["film-1"]}
        assert service.post("/v1/recommend", none).status == 200


def test_a_time_that_cannot_be_read_is_the_fault_of_one_request_and_is_not_repeated(
    folder, tmp_path
):
    with_half_life(folder)
    bad, good = {"history": {"film-1": [1, "private"]}}, {"history": {"film-1": [1, 1.7e9]}}
    with running(folder, tmp_path / "log.txt") as service:
        for path, body in (
            ("/v1/recommend", bad),
            ("/v1/explain", {**bad, "item": "film-2"}),
            ("/v1/recommend:batch", {"requests": [good, bad]}),
        ):
            answer = service.post(path, body)
            error = answer.json["error"]
            assert (answer.status, error["code"]) == (422, "invalid_time")
            expected = "history: a time must be a date or time such as 2024-05-31 or "
            assert error["message"].startswith(expected) and "private" not in str(error)
        assert service.post("/v1/recommend", good).status == 200
        mixed = {"film-1": [1, "2024-05-31T10:00:00"], "film-2": [1, "2024-05-31T10:00:00Z"]}
        error = service.post("/v1/recommend", {"history": mixed}).json["error"]
        assert error["code"] == "invalid_time"
        expected = "history: some times of the history have a time zone and others have none"
        assert error["message"] == expected
        for wrong in ([1], [1, 2, 3], [-1, 2], [1, True], [1, "x" * 41], [[1, 2], 3]):
            answer = service.post("/v1/recommend", {"history": {"film-1": wrong}})
            assert answer.status == 422 and answer.json["error"]["code"] == "invalid_request"


def test_a_model_without_times_takes_them_without_effect(service):
    plain = service.post("/v1/recommend", {"history": HISTORY}).json
    dated = {item: [count, "2024-05-31"] for item, count in HISTORY.items()}
    assert service.post("/v1/recommend", {"history": dated}).json == plain
    assert service.get("/v1/model").json["clock"] is None
    wrong = service.post("/v1/recommend", {"history": {"film-1": [1, "soon"]}})
    assert wrong.json["error"]["code"] == "invalid_time"


def with_kinds(folder):
    """The model, predicting purchases, with scores for what was only viewed or put in the cart."""
    model = ImplicitCFNADE.load(folder)
    network = model.scorer_.network
    added = {
        "repeat_bias": np.linspace(0.0, 1.0, 12, dtype=np.float32),
        "repeat_weight": np.array([5.0], dtype=np.float32),
    }
    scorer = replace(
        model.scorer_, network=NumpyNetwork(network.config, {**network.weights, **added})
    )
    weights = {"view": 1.0, "cart": 8.0, "buy": 8.0, "skip": -1.0}
    training = {"event_weights": weights, "target_event": "buy"}
    kinds = ImplicitCFNADE.from_parts(scorer, model.catalogue_, info={"training": training})
    kinds.save(folder)
    return kinds


def test_histories_may_name_kinds_of_events(folder, tmp_path):
    model = with_kinds(folder)
    history = {
        "film-1": {"buy": 1, "view": 3},
        "film-4": {"cart": [1, 1_700_000_000]},
        "film-5": {"view": 1},
        "film-6": 2,
        "film-7": {"skip": 2},
    }
    with running(folder, tmp_path / "log.txt") as service:
        described = service.get("/v1/model").json
        assert described["target_event"] == "buy" and described["event_weights"]["skip"] == -1.0
        answer = service.post("/v1/recommend", {"history": history, "n": 12}).json
        ids, scores = model.recommend_for(history, n=12)
        found = answer["recommendations"]
        assert [entry["item"] for entry in found] == ids.tolist()
        np.testing.assert_allclose([entry["score"] for entry in found], scores, atol=1e-5)
        listed = {entry["item"] for entry in found}
        assert listed >= {"film-4", "film-5"}  # not bought yet
        assert not listed & {"film-1", "film-6", "film-7"}  # bought, bought without a word, skipped
        seen = service.post("/v1/recommend", {"history": history, "n": 12, "include_seen": True})
        assert {"film-1", "film-6"} <= {e["item"] for e in seen.json["recommendations"]}
        wrong = service.post("/v1/recommend", {"history": {"film-1": {"private": 1}}})
        error = wrong.json["error"]
        assert (wrong.status, error["code"]) == (404, "unknown_event")
        assert "private" not in error["message"] and "'cart'" in error["message"]


def test_the_model_is_described(service):
    told = service.get("/v1/model").json
    own = json.loads((KEPT / "model.json").read_text())
    assert told["version"] == own["sha256"][:12] and told["n_items"] == 12
    assert told["metrics"]["validation_mpr"] == own["metrics"]["validation_mpr"]
    assert told["refused"] is None and told["limits"]["n"] == 100 and not told["is_calibrated"]
    assert told["filters"] == {} and told["categories"] == []


def test_health(service):
    assert service.get("/healthz").json == {"status": "ok"}
    assert service.get("/readyz").json == {"status": "ready"}


def test_nothing_of_a_request_is_in_the_log(folder, tmp_path):
    with running(folder, tmp_path / "log.txt") as service:
        service.post("/v1/recommend", {"history": {"private-film": 1}, "exclude": ["private"]})
        service.post("/v1/recommend", {"history": {"private-film": -1}})
        service.get("/v1/items?q=private-search")
        service.get("/private-path")
    log = service.log.read_text()
    assert "serving" in log and "private" not in log and "127.0.0.1 -" not in log


def test_everything_that_waits_counts_and_one_more_is_turned_away(monkeypatch, loaded):
    gate = threading.Event()

    async def main():
        service = unwatched(monkeypatch, loaded, limits=RequestLimits(waiting=2))
        app = application.build_app(service)
        assert (await ask_app(app, "GET", "/v1/items")).status == 200
        busy = [
            asyncio.create_task(service.batcher.run(lambda: gate.wait(10))),
            asyncio.create_task(service.batcher.run_beside(lambda: gate.wait(10))),
        ]
        await asyncio.sleep(0)
        answers = [
            await ask_app(app, "GET", "/readyz"),
            await ask_app(app, "GET", "/v1/items"),
            await ask_app(app, "POST", "/v1/similar", b'{"item": "film-0"}'),
            await ask_app(app, "POST", "/v1/explain", b'{"item": "film-0"}'),
            await ask_app(app, "POST", "/v1/recommend", b"{}"),
        ]
        gate.set()
        await asyncio.gather(*busy)
        assert (await ask_app(app, "GET", "/readyz")).status == 200
        service.batcher.close()
        return answers

    for answer in asyncio.run(main()):
        assert (answer.status, answer.code) == (503, "overloaded")


def test_a_long_body_is_checked_in_a_thread_and_a_short_one_at_once(monkeypatch, loaded):
    async def main():
        service = unwatched(monkeypatch, loaded)
        app, n_handed_over, run = application.build_app(service), 0, service.batcher.run_beside

        def count(compute):
            nonlocal n_handed_over
            n_handed_over += 1
            return run(compute)

        service.batcher.run_beside = count
        for body, expected, n in [
            (b"{}", 200, 0),
            (b"{}" + b" " * application.LONG_BODY, 200, 1),
            (b'{"n": 0}' + b" " * application.LONG_BODY, 422, 2),
        ]:
            answer = await ask_app(app, "POST", "/v1/recommend", body)
            assert (answer.status, n_handed_over) == (expected, n)
        service.batcher.close()

    asyncio.run(main())


def test_each_is_answered_by_the_model_that_was_there_when_it_asked(
    monkeypatch, loaded, tmp_path, rng
):
    save_artifact(random_artifact(rng), tmp_path / "other")
    other = load(tmp_path / "other")
    service = unwatched(monkeypatch, loaded)
    asked = RecommendRequest(history={"film-1": 2, "film 1": 2}, n=2)
    answers = service._answer_together([(loaded, asked), (other, asked), (loaded, asked)])
    service.batcher.close()
    expected = [model.recommend([asked])[0] for model in (loaded, other, loaded)]
    assert list(map(json.loads, answers)) == expected and expected[0] != expected[1]


def test_the_document_is_made_once_for_each_model(monkeypatch, loaded, tmp_path, rng):
    save_artifact(random_artifact(rng), tmp_path / "other")
    other, made = load(tmp_path / "other"), []
    real = application.openapi_document
    told = lambda *args, **more: made.append(more["items"]) or real(*args, **more)  # noqa: E731
    monkeypatch.setattr(application, "openapi_document", told)

    async def main():
        service = unwatched(monkeypatch, loaded)
        app = application.build_app(service)
        first, again = [await ask_app(app, "GET", "/openapi.json") for _ in range(2)]
        service.source.current = other
        after = await ask_app(app, "GET", "/openapi.json")
        service.batcher.close()
        return first, again, after

    first, again, after = asyncio.run(main())
    assert first.body == again.body != after.body and len(made) == 2
    assert made[0][0].startswith("film-") and made[1][0].startswith("film ")


def test_other_origins_may_ask_only_if_they_are_named(folder, tmp_path, service):
    ask = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    assert service.ask("OPTIONS", "/v1/recommend", headers=ask).status == 405
    options = ["--allow-origin", "https://shop.example"]
    with running(folder, tmp_path / "log.txt", *options) as open_service:
        allowed = open_service.ask("OPTIONS", "/v1/recommend", headers=ask)
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        answer = open_service.post("/v1/recommend", {}, origin="https://shop.example")
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        other = open_service.post("/v1/recommend", {}, origin="https://else.example")
        assert "access-control-allow-origin" not in other.headers


def test_sighup_takes_over_a_new_model_and_refuses_a_bad_one(folder, tmp_path):
    with running(folder, tmp_path / "log.txt", "--watch", "0") as service:
        before = service.version()
        save_artifact(random_artifact(np.random.default_rng(5)), folder)
        time.sleep(0.3)
        assert service.version() == before  # nobody has asked for it
        service.signal(signal.SIGHUP)
        after = wait_for(lambda: (v := service.version()) != before and v)
        assert service.get("/v1/model").json["n_items"] == 9
        shutil.rmtree(folder)
        service.signal(signal.SIGHUP)
        refused = wait_for(lambda: service.get("/v1/model").json["refused"])
        assert "there is no model" in refused and service.version() == after
        assert service.post("/v1/recommend", {}).status == 200


def test_no_request_fails_while_models_are_swapped_and_refused(folder, tmp_path):
    with running(folder, tmp_path / "log.txt", "--watch", "0.05") as service:
        statuses, versions, is_over = [], {service.version()}, threading.Event()

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
            while not is_over.is_set():
                body = json.dumps({"history": HISTORY, "n": 3, "explain": True})
                connection.request(
                    "POST", "/v1/recommend", body, {"content-type": "application/json"}
                )
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
            connection.close()

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            if turn % 2:
                (folder / "items.new").write_text("damaged")
                (folder / "items.new").rename(folder / "items.json")
                wait_for(lambda: service.get("/v1/model").json["refused"])
            else:
                save_artifact(random_artifact(np.random.default_rng(turn)), folder)
                wait_for(lambda: service.version() not in versions)
            versions.add(service.version())
        is_over.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200} and len(statuses) > 30
        assert len(versions) == 4


def test_a_request_that_is_under_way_is_finished_before_the_end(folder, tmp_path):
    with running(folder, tmp_path / "log.txt") as service:
        body = json.dumps({"requests": [{"history": HISTORY, "explain": True}] * 64}).encode()
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as client:
            client.sendall(
                b"POST /v1/recommend:batch HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\n"
                + f"content-length: {len(body)}\r\n\r\n".encode()
                + body[:-1]
            )
            time.sleep(0.2)  # the request has begun, its end is not there yet
            service.signal(signal.SIGTERM)
            time.sleep(0.2)
            client.sendall(body[-1:])
            parts = []
            while part := client.recv(65536):
                parts.append(part)
        assert b"".join(parts).startswith(b"HTTP/1.1 200 OK")
        assert service.process.wait(STOPS_IN) == 0
