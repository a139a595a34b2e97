"""What stands around every request: the key, the metrics, and bodies that are refused."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import time

from cfnade.serve import app as application
from cfnade.serve.loaded import LoadedModel
from cfnade.serve.service_settings import RequestLimits
from tests.serve.in_process import ask_app, unwatched
from tests.serve.running import running, wait_for


def test_a_body_that_is_not_said_to_be_json_or_too_large_is_refused(service):
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert service.post("/v1/recommend", b"a=1", **form).code == "not_json"
    large = b" " * (RequestLimits().body_bytes + 1)
    assert service.post("/v1/recommend", large).code == "body_too_large"
    chunks = (b" " * 65536 for _ in range(40))  # of a length that is not told before
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    try:
        connection.request(
            "POST", "/v1/recommend", chunks, {"content-type": "application/json"},
            encode_chunked=True,
        )  # fmt: skip
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all of it was sent
    finally:
        connection.close()
    assert service.get("/healthz").status == 200


def test_the_key_is_asked_for_where_it_matters(folder, tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    options = ["--api-key-file", str(tmp_path / "key")]
    with running(folder, tmp_path / "log.txt", *options) as service:
        for path in ("/v1/model", "/metrics"):
            refused = service.get(path)
            assert (refused.status, refused.code) == (401, "unauthorized")
            assert refused.headers["www-authenticate"] == "Bearer"
            assert service.get(path, authorization="Bearer wrong").status == 401
            assert service.get(path, authorization="Bearer s3cret").status == 200
            assert service.get(path, **{"x-api-key": "s3cret"}).status == 200
        assert service.post("/v1/recommend", {}).status == 401
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert service.get(path).status == 200
        told = service.get("/openapi.json").json["paths"]["/v1/model"]["get"]
        assert "401" in told["responses"] and told["security"]


def test_no_item_is_named_to_those_without_the_key(folder, tmp_path):
    (tmp_path / "key").write_text("s3cret")
    options = ["--api-key-file", str(tmp_path / "key")]
    with running(folder, tmp_path / "log.txt", *options) as service:
        assert b"film" not in service.get("/openapi.json").body.lower()


def ask_host(service, host, path="/v1/model"):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    try:
        connection.request("GET", path, headers={"host": host})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_a_page_elsewhere_cannot_read_a_service_of_this_machine_by_its_own_name(service):
    for host in ("evil.example", f"evil.example:{service.port}", "127.0.0.1.evil.example", ""):
        assert ask_host(service, host)[0] == 400
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert ask_host(service, f"{host}:{service.port}")[0] == 200


def test_further_hosts_may_be_allowed(folder, tmp_path):
    options = ["--allow-host", "shop.example", "--allow-host", "*.shop.example"]
    with running(folder, tmp_path / "log.txt", *options) as service:
        for host in ("shop.example", "www.shop.example:80", "localhost"):
            assert ask_host(service, host)[0] == 200
        assert ask_host(service, "evil.example")[0] == 400


def test_nothing_leads_to_the_host_of_the_request(service):
    for path in ("/v1/model/", "/healthz/", "//evil.example/"):
        status, headers, _ = ask_host(service, "localhost", path)
        assert status == 404 and "location" not in headers


def test_json_is_never_taken_for_a_page(service):
    for path in ("/v1/model", "/nowhere", "/openapi.json", "/"):
        assert service.get(path).headers["x-content-type-options"] == "nosniff"


def test_a_length_of_odd_digits_is_no_failure(loaded, monkeypatch):
    """The parser refuses them; nothing here may rely on that."""
    service = unwatched(monkeypatch, loaded)
    app = application.build_app(service)
    for length in ("²", "9" * 5_000, "-1", "x"):
        answer = asyncio.run(ask_app(app, "POST", "/v1/recommend", b"{}", length=length))
        assert answer.status in (200, 413)
    service.batcher.close()


def test_metrics_count_requests_models_and_unknown_items_but_hold_no_item(service):
    service.post("/v1/recommend", {"history": {"who-is-this": 1}})
    service.get("/v1/items?q=who-is-this")
    figures = service.get("/metrics")
    assert figures.headers["content-type"].startswith("text/plain")
    text = figures.body.decode()
    for expected in [
        r'cfnade_requests_total{path="/v1/recommend",status="200"} \d',
        r'cfnade_request_seconds_bucket{le="0.01",path="/v1/recommend"} \d',
        r"cfnade_answered_together_count \d",
        r"cfnade_unknown_items_total [1-9]",
        r'cfnade_models_total{outcome="loaded"} 1.0',
        r"cfnade_model_items 12.0",
    ]:
        assert re.search(expected, text), expected
    assert "who-is-this" not in text


def test_an_unforeseen_failure_is_json_and_the_log_tells_where_but_not_what(
    loaded, monkeypatch, caplog
):
    def fail(loaded, asked):
        raise KeyError("private-film")

    monkeypatch.setattr(LoadedModel, "recommend", fail)
    service = unwatched(monkeypatch, loaded)
    answer = asyncio.run(ask_app(application.build_app(service), "POST", "/v1/recommend", b"{}"))
    service.batcher.close()
    assert (answer.status, answer.code) == (500, "internal_error")
    assert "KeyError at" in caplog.text and "private" not in caplog.text


def test_a_client_that_hangs_up_is_no_failure_of_the_service(folder, tmp_path):
    with running(folder, tmp_path / "log.txt") as service:
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as client:
            client.sendall(
                b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\n"
                b"content-length: 1000\r\n\r\n{"
            )
            time.sleep(0.2)  # it is being read
        counted = 'requests_total{path="/v1/recommend",status="499"} 1.0'
        wait_for(lambda: counted in service.get("/metrics").body.decode())
    assert "failed" not in service.log.read_text()
