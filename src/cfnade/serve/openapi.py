"""The OpenAPI document: made of the classes that check requests, so that it cannot differ."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cfnade.serve import wire
from cfnade.serve.service_settings import RequestLimits

_REFERENCE = "#/components/schemas/{model}"
_DESCRIPTION = (
    "Recommendations for anybody's history of counts. There is no table of users: a request "
    "carries all that is known, and nothing of it is kept or logged. Items that the model does "
    "not know are told in `unknown`. Every error has a code, a message and what to do."
)
_BODY_ERRORS = {
    "400": "The body is not JSON.",
    "413": "The body is too large.",
    "415": "The body is not said to be JSON.",
    "422": "A field is wrong or beyond a limit.",
    "503": "Too many requests wait.",
}


def openapi_document(
    requests: wire.Requests, limits: RequestLimits, *, items: list[str], needs_key: bool
) -> dict[str, Any]:
    """Describe the service.

    Args:
        requests: With its limits.
        limits: The same.
        items: Ids of some items, for examples that work.
        needs_key: Whether it asks for an API key.

    Returns:
        An OpenAPI 3.1 document.
    """
    first, last = items[0], items[-1]
    history = dict(zip(items, (12, 1, 3), strict=False))
    request = {"history": history, "n": 3, "explain": True}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "cfnade",
            "version": version("cfnade"),
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": {
            "/v1/recommend": _post(
                "recommend",
                "Recommend for one history",
                requests.recommend,
                wire.Recommendations,
                request,
                {"409": "An item is both liked and disliked."},
            ),
            "/v1/recommend:batch": _post(
                "recommendBatch",
                f"Recommend for up to {limits.batch} histories",
                requests.batch,
                wire.Batch,
                {"requests": [{"history": history}, {"history": {last: 1}, "n": 5}]},
                {"409": "An item is both liked and disliked."},
            ),
            "/v1/explain": _post(
                "explain",
                "What each entry of a history does for an item, exactly",
                requests.explain,
                wire.ExplainedItem,
                {"history": history, "item": last},
                {
                    "404": "The model does not know the item.",
                    "409": "An item is both liked and disliked.",
                },
            ),
            "/v1/similar": _post(
                "similar",
                "Items that are recommended to the same people",
                requests.similar,
                wire.Similar,
                {"item": first, "n": 5},
                {"404": "The model does not know the item."},
            ),
            "/v1/items": {"get": _items(limits)},
            "/v1/items:lookup": _post(
                "lookup",
                "Names of items by id",
                requests.lookup,
                wire.FoundItems,
                {"items": items},
                {},
            ),
            "/v1/model": _get("model", "The model in use, and the limits", wire.ModelInfo),
            "/healthz": _get("healthz", "Whether the process answers", wire.State),
            "/readyz": _get(
                "readyz",
                "Whether it takes requests",
                wire.State,
                {"503": "Too many requests wait."},
            ),
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "summary": "Figures for Prometheus",
                    "responses": {
                        "200": {
                            "description": "Prometheus' text format.",
                            "content": {"text/plain": {"schema": {"type": "string"}}},
                        }
                    },
                }
            },
        },
    }
    answers: list[type[BaseModel]] = [
        wire.Recommendations,
        wire.Batch,
        wire.ExplainedItem,
        wire.Similar,
        wire.FoundItems,
        wire.ModelInfo,
        wire.State,
        wire.Error,
    ]
    asked: list[type[BaseModel]] = [
        requests.recommend,
        requests.batch,
        requests.explain,
        requests.similar,
        requests.lookup,
    ]
    _, schemas = models_json_schema(
        [*((model, "validation") for model in asked), *((a, "serialization") for a in answers)],
        ref_template=_REFERENCE,
    )
    document["components"] = {"schemas": schemas["$defs"]}
    if needs_key:
        _ask_for_key(document)
    return document


def _post(
    name: str,
    summary: str,
    asked: type[BaseModel],
    answer: type[BaseModel],
    example: dict[str, Any],
    errors: dict[str, str],
) -> dict[str, Any]:
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _schema(asked), "example": example}},
            },
            "responses": _responses(answer, {**_BODY_ERRORS, **errors}),
        }
    }


def _get(
    name: str, summary: str, answer: type[BaseModel], errors: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "responses": _responses(answer, errors or {}),
        }
    }


def _items(limits: RequestLimits) -> dict[str, Any]:
    text = {"type": "string"}
    parameters = [
        ("q", "Words of a name or id; nothing gives the items with most watchers.",
         {**text, "maxLength": limits.query}),
        ("n", "Items to find.",
         {"type": "integer", "minimum": 1, "maximum": limits.n, "default": min(20, limits.n)}),
    ]  # fmt: skip
    return {
        "operationId": "items",
        "summary": "Find items by name or id",
        "parameters": [
            {"name": name, "in": "query", "description": told, "schema": schema}
            for name, told, schema in parameters
        ],
        "responses": _responses(
            wire.FoundItems, {"422": "A parameter is wrong or beyond a limit."}
        ),
    }


def _responses(answer: type[BaseModel], errors: dict[str, str]) -> dict[str, Any]:
    return {
        "200": {
            "description": (answer.__doc__ or "").strip(),
            "content": {"application/json": {"schema": _schema(answer)}},
        },
        **{status: _error(told) for status, told in sorted(errors.items())},
    }


def _error(told: str) -> dict[str, Any]:
    return {
        "description": told,
        "content": {"application/json": {"schema": _schema(wire.Error)}},
    }


def _schema(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _ask_for_key(document: dict[str, Any]) -> None:
    """Add the key to all operations that need one."""
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, operations in document["paths"].items():
        if not path.startswith(("/v1/", "/metrics")):
            continue
        for operation in operations.values():
            operation["security"] = [{"bearer": []}, {"header": []}]
            operation["responses"]["401"] = _error("The key is missing or wrong.")
