"""The files of the page, as they are sent."""

from __future__ import annotations

import re


def test_the_page_asks_no_other_host_and_is_not_sent_twice(service):
    page = service.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    files = set(re.findall(r'(?:href|src)="(page/[^"]+)"', page.body.decode()))
    assert {"page/main.js", "page/style.css", "page/icon.svg"} <= files
    for name in files:
        sent = service.get(f"/{name}")
        assert sent.status == 200
        again = service.get(f"/{name}", **{"if-none-match": sent.headers["etag"]})
        assert again.status == 304 and not again.body
        outside = re.sub(rb"http://www\.w3\.org/2000/svg", b"", sent.body)
        assert b"://" not in outside
