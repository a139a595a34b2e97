"""Errors as JSON, with a code, a message and a fix."""

from __future__ import annotations

import http
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

NO_SNIFFING = {"x-content-type-options": "nosniff"}
"""A browser must not take JSON for a page."""


@dataclass(eq=False)
class RequestError(Exception):
    """Ends a request with an error for the client."""

    status: int
    code: str
    message: str
    fix: str
    headers: dict[str, str] | None = None

    def response(self) -> Response:
        """The error as a response."""
        content = {"error": {"code": self.code, "message": self.message, "fix": self.fix}}
        headers = {**NO_SNIFFING, **(self.headers or {})}
        return Response(as_json(content), self.status, headers, media_type="application/json")


def as_json(content: Any) -> bytes:
    """Content as JSON; NaN and infinity become null."""
    return to_json(content, inf_nan_mode="null")


def json_response(content: Any) -> Response:
    """Content as a JSON response; bytes are JSON already."""
    body = content if isinstance(content, bytes) else as_json(content)
    return Response(body, headers=NO_SNIFFING, media_type="application/json")


def invalid_request(error: ValidationError) -> RequestError:
    """The first error of a body and its place; values are private and not repeated."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
        fix = "send a JSON object in UTF-8, as in the examples of /openapi.json"
        return RequestError(400, "invalid_json", message, fix)
    # Keys of a history are private too: the place is given down to the field only.
    depth = 3 if first["loc"][:1] == ("requests",) else 1
    depth += first["loc"][depth - 1 : depth] == ("dials",)
    place = ".".join(str(part) for part in first["loc"][:depth])[:80]
    more = error.error_count() - 1
    message = f"{place or 'the body'}: {first['msg']}" + (f" (and {more} more)" if more else "")
    fix = "see /openapi.json for the fields, their types and limits"
    return RequestError(422, "invalid_request", message, fix)


def overloaded() -> RequestError:
    """The error of a full queue."""
    message = "too many requests are waiting"
    fix = "try again in a second; run more workers if this goes on"
    return RequestError(503, "overloaded", message, fix, {"retry-after": "1"})


async def _answer(request: Request, error: Exception) -> Response:
    """Answer an error of a handler, or of the router: no such path, no such method."""
    if isinstance(error, RequestError):
        return error.response()
    assert isinstance(error, HTTPException)
    status = error.status_code
    code, message, fix = "http_error", http.HTTPStatus(status).phrase, "see /openapi.json"
    if status == 404:
        code, message, fix = "not_found", "there is nothing at this path", f"{fix} for all paths"
    elif status == 405:
        method = request.method if len(request.method) < 20 else "this"
        code, message = "method_not_allowed", f"this path does not take {method}"
        fix = "use one of the methods in the Allow header"
    return RequestError(status, code, message, fix, dict(error.headers or {})).response()


HANDLERS = {RequestError: _answer, HTTPException: _answer}
"""Answers errors that end a request."""
