from __future__ import annotations

import pytest

from cfnade.data.addresses import origins, safe_address


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com",
        "HTTP://example.com:8080/a/b.png?c=d&e=%20#f",
        "https://de.wikipedia.org/wiki/Käse_(Film)",
        "http://127.0.0.1/x",
    ],
)
def test_addresses_of_http_are_safe(text: str) -> None:
    assert safe_address(f" {text}\n") == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "javascript:alert(1)",
        "data:image/svg+xml,<svg onload=alert(1)>",
        "//example.com/x",
        "/poster.png",
        "ftp://example.com/x",
        "https://user:password@example.com/",
        "https://example.com/a b",
        "https://example.com/a\tb",
        'https://example.com/"onerror="x',
        "https://example.com; script-src *",
        "https://example.com\\@other.example/",
        "https://-/",
        "http://[::1]:8000/x",
        "https://",
        "https://example.com/" + 2_000 * "x",
    ],
)
def test_others_are_not(text: str) -> None:
    assert safe_address(text) is None


def test_origins_are_those_of_safe_addresses() -> None:
    found = origins(["https://A.example/x", "https://a.example/y?z", "http://a.example:81", "x"])
    assert found == {"https://a.example", "http://a.example:81"}
