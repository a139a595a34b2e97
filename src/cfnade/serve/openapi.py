"""The OpenAPI document, made from the classes that check requests."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cfnade.serve import wire
from cfnade.serve.service_settings import RequestLimits

N_FOUND = 20
"""Default number of items that a search gives."""

_REFERENCE = "#/components/schemas/{model}"
_DESCRIPTION = (
    "Recommendations for any history of counts. There is no table of users: a request carries all "
    "that is known, and nothing of it is stored or logged. A score ranks; a probability is "
    "calibrated. `unknown` lists unknown items. Every error has a code, a message and a fix."
)
_BODY_ERRORS = {
    "400": "The body is not JSON.",
    "413": "The body is too large.",
    "415": "The content type is not JSON.",
    "422": "A field is wrong or beyond a limit.",
    "503": "Too many requests are waiting.",
}
_NOT_BOTH = {"409": "An item is both liked and disliked."}
_DIALS = {
    "404": "The model knows no such category.",
    "409": "An item is both liked and disliked, or the dials contradict each other.",
}
_UNKNOWN = {"404": "The model does not know the item."}


def openapi_document(
    requests: wire.Requests, limits: RequestLimits, *, items: list[str], needs_key: bool
) -> dict[str, Any]:
    """Describe the service as OpenAPI 3.1, with the ids of some items in its examples."""
    first, last = items[0], items[-1]
    history = dict(zip(items, (12, 1, 3), strict=False))
    second = {"history": {last: 1}, "n": 5, "dials": {"popularity": -0.5, "diversity": 0.3}}
    batch = {"requests": [{"history": history}, second]}
    posts: list[tuple[str, str, str, type[BaseModel], type[BaseModel], Any, dict[str, str]]] = [
        ("/v1/recommend", "recommend", "Recommend for one history", requests.recommend,
         wire.Recommendations, {"history": history, "n": 3, "explain": True}, _DIALS),
        ("/v1/recommend:batch", "recommendBatch", f"Recommend for up to {limits.batch} histories",
         requests.batch, wire.Batch, batch, _DIALS),
        ("/v1/explain", "explain", "Exact effect of each entry of a history on an item",
         requests.explain, wire.ExplainedItem, {"history": history, "item": last},
         {**_UNKNOWN, **_NOT_BOTH}),
        ("/v1/similar", "similar", "Items that are recommended to the same people",
         requests.similar, wire.Similar, {"item": first, "n": 5}, _UNKNOWN),
        ("/v1/items:lookup", "lookup", "Names of items by id", requests.lookup, wire.FoundItems,
         {"items": items}, {}),
    ]  # fmt: skip
    gets: list[tuple[str, str, str, type[BaseModel], dict[str, str]]] = [
        ("/v1/items", "items", "Find items by name or id", wire.FoundItems,
         {"422": "A parameter is wrong or beyond a limit."}),
        ("/v1/model", "model", "The model in use, and the limits", wire.ModelInfo, {}),
        ("/healthz", "healthz", "Whether the process answers", wire.State, {}),
        ("/readyz", "readyz", "Whether it takes requests", wire.State,
         {"503": _BODY_ERRORS["503"]}),
    ]  # fmt: skip
    paths: dict[str, Any] = {}
    for path, name, summary, request, answer, example, errors in posts:
        content = {"application/json": {"schema": _schema(request), "example": example}}
        operation = _operation(name, summary, _responses(answer, {**_BODY_ERRORS, **errors}))
        operation["requestBody"] = {"required": True, "content": content}
        paths[path] = {"post": operation}
    for path, name, summary, answer, errors in gets:
        paths[path] = {"get": _operation(name, summary, _responses(answer, errors))}
    paths["/v1/items"]["get"]["parameters"] = _search_parameters(limits)
    text = {"text/plain": {"schema": {"type": "string"}}}
    metrics = {"200": {"description": "Prometheus' text format.", "content": text}}
    paths["/metrics"] = {"get": _operation("metrics", "Metrics for Prometheus", metrics)}
    models: list[Any] = [(post[3], "validation") for post in posts]
    answers = [*(post[4] for post in posts), *(get[3] for get in gets), wire.Error]
    models += [(answer, "serialization") for answer in dict.fromkeys(answers)]
    _, schemas = models_json_schema(models, ref_template=_REFERENCE)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "cfnade",
            "version": version("cfnade"),
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }
    if needs_key:
        _require_key(document)
    return document


def _operation(name: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": responses}


def _search_parameters(limits: RequestLimits) -> list[dict[str, Any]]:
    q = {"type": "string", "maxLength": limits.query}
    n = {"type": "integer", "minimum": 1, "maximum": limits.n, "default": min(N_FOUND, limits.n)}
    words = "Words of a name or id; empty for the most popular items."
    return [
        {"name": "q", "in": "query", "description": words, "schema": q},
        {"name": "n", "in": "query", "description": "Maximum number of items.", "schema": n},
    ]


def _responses(answer: type[BaseModel], errors: dict[str, str]) -> dict[str, Any]:
    return {
        "200": _response((answer.__doc__ or "").strip(), answer),
        **{status: _response(text, wire.Error) for status, text in sorted(errors.items())},
    }


def _response(description: str, model: type[BaseModel]) -> dict[str, Any]:
    content = {"application/json": {"schema": _schema(model)}}
    return {"description": description, "content": content}


def _schema(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _require_key(document: dict[str, Any]) -> None:
    """Add the key to all operations that need one."""
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    missing = _response("The key is missing or wrong.", wire.Error)
    for path, operations in document["paths"].items():
        if path.startswith(("/v1/", "/metrics")):
            for operation in operations.values():
                operation["security"] = [{"bearer": []}, {"header": []}]
                operation["responses"]["401"] = missing
