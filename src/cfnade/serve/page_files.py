"""The page and its files; its headers forbid the browser to load anything else but pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "cache-control": "no-cache",  # the tag below is compared, so updates show at once
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src {images}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page_routes(image_sources: Callable[[], str]) -> list[Route]:
    """A route for each file; the page itself is at `/`.

    Args:
        image_sources: Gives the hosts from which the page may load pictures of items.
    """
    files = sorted(path for path in FOLDER.iterdir() if path.suffix in KINDS)
    return [
        Route(
            "/" if path.name == "index.html" else f"/page/{path.name}", _sender(path, image_sources)
        )
        for path in files
    ]


def _sender(
    path: Path, image_sources: Callable[[], str]
) -> Callable[[Request], Awaitable[Response]]:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**HEADERS, "etag": tag, "content-type": KINDS[path.suffix]}

    async def send(request: Request) -> Response:
        policy = POLICY.format(images=f"'self' {image_sources()}".strip())
        own = {**headers, "content-security-policy": policy}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=own)
        return Response(content, headers=own)

    return send
