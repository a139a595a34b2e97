"""The files of the page, as they are sent."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request

from cfnade.serve.page_files import page_routes


def test_the_page_asks_no_other_host_and_is_not_sent_twice(service):
    page = service.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "img-src 'self';" in policy
    files = set(re.findall(r'(?:href|src)="(page/[^"]+)"', page.body.decode()))
    assert {"page/main.js", "page/style.css", "page/icon.svg"} <= files
    for name in files:
        sent = service.get(f"/{name}")
        assert sent.status == 200
        again = service.get(f"/{name}", **{"if-none-match": sent.headers["etag"]})
        assert again.status == 304 and not again.body
        outside = re.sub(rb"http://www\.w3\.org/2000/svg", b"", sent.body)
        assert b"://" not in outside


def test_the_policy_admits_pictures_of_the_hosts_of_the_model_alone():
    hosts = ["https://a.example"]
    (page,) = (r for r in page_routes(lambda: " ".join(hosts)) if r.path == "/")

    def get(*headers):
        return asyncio.run(page.endpoint(Request({"type": "http", "headers": headers})))

    first = get()
    assert "img-src 'self' https://a.example;" in first.headers["content-security-policy"]
    hosts.append("https://b.example")  # a new model: the page is the same, its policy is not
    again = get((b"if-none-match", first.headers["etag"].encode()))
    assert again.status_code == 304
    assert "https://a.example https://b.example;" in again.headers["content-security-policy"]
