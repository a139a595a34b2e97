"""The HTTP application: its paths, handlers and middleware."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cfnade.serve.batching import Batcher
from cfnade.serve.guards import ApiKey, HostNames, Metrics, Observed, read_body
from cfnade.serve.loaded import LoadedModel, Stamp
from cfnade.serve.model_source import ModelSource, Outcome
from cfnade.serve.openapi import N_FOUND, openapi_document
from cfnade.serve.page_files import page_routes
from cfnade.serve.problems import HANDLERS, RequestError, as_json, invalid_request, json_response
from cfnade.serve.service_settings import RequestLimits, ServeSettings
from cfnade.serve.wire import RecommendRequest, Requests

Request_ = TypeVar("Request_", bound=BaseModel)
_Asked: TypeAlias = tuple[LoadedModel, RecommendRequest]

LONG_BODY = 1 << 14
"""Bytes above which a body is checked in a thread; handing over a shorter one takes longer."""

MOST_EFFORT = 1 << 16
"""Most effort of one pass, see `RecommendRequest.effort`: about 10 ms at the paper's scale."""


class Service:
    """One worker's model, queue and metrics, with a handler for each path."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.requests = Requests(settings.limits)
        folder, name = settings.copy or settings.model, settings.model.resolve().name
        self.source = ModelSource(folder, self._count_model, name)
        self.metrics.model_items.set(self.source.current.n_items)
        self.batcher: Batcher[_Asked, bytes] = Batcher(
            self._answer_together,
            most_together=settings.most_together,
            most_waiting=settings.limits.waiting,
            cost=lambda asked: asked[1].effort(),
            most_cost=MOST_EFFORT,
            on_batch=self.metrics.together.observe,
        )
        self._document: tuple[Stamp, bytes] | None = None

    @contextlib.asynccontextmanager
    async def running(self, app: Starlette) -> AsyncIterator[None]:
        """Watch for new models while the application runs."""
        watch = asyncio.create_task(self.source.watch(self.settings.watch_seconds))
        try:
            yield
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            self.batcher.close()

    # Recommending ------------------------------------------------------------------------------

    async def recommend(self, request: Request) -> Response:
        """`POST /v1/recommend`."""
        asked = await self._read(request, self.requests.recommend)
        loaded = self.source.current
        await self._check(loaded, [asked])
        (answer,) = await self.batcher.ask((loaded, asked))
        return json_response(answer)

    async def recommend_batch(self, request: Request) -> Response:
        """`POST /v1/recommend:batch`."""
        many = await self._read(request, self.requests.batch)
        loaded = self.source.current
        await self._check(loaded, many.requests)
        answers = await self.batcher.ask(*((loaded, asked) for asked in many.requests))
        return json_response(b'{"answers":[' + b",".join(answers) + b"]}")

    async def explain(self, request: Request) -> Response:
        """`POST /v1/explain`."""
        asked = await self._read(request, self.requests.explain)
        asked.check()
        return await self._answer_about_item(LoadedModel.explain, asked)

    async def similar(self, request: Request) -> Response:
        """`POST /v1/similar`."""
        asked = await self._read(request, self.requests.similar)
        return await self._answer_about_item(LoadedModel.similar, asked)

    # Items and the model -----------------------------------------------------------------------

    async def items(self, request: Request) -> Response:
        """`GET /v1/items`."""
        query, n = _search(request, self.limits)
        loaded = self.source.current
        columns, n_found = await self.batcher.run_beside(partial(loaded.search.find, query, n))
        found = [loaded.items[column] for column in columns]
        return json_response({"items": found, "n_found": n_found, "unknown": []})

    async def look_up(self, request: Request) -> Response:
        """`POST /v1/items:lookup`; ids are in the body, as proxies log addresses."""
        asked = await self._read(request, self.requests.lookup)
        loaded = self.source.current
        columns, unknown = loaded.columns(asked.items)
        found = [loaded.items[column] for column in columns]
        return json_response({"items": found, "n_found": len(found), "unknown": unknown})

    async def model(self, request: Request) -> Response:
        """`GET /v1/model`."""
        loaded = self.source.current
        return json_response(
            {
                "name": loaded.name,
                "version": loaded.version,
                "loaded_at": loaded.loaded_at,
                "n_items": loaded.n_items,
                "has_names": loaded.model.catalogue_.names is not None,
                "is_calibrated": loaded.is_calibrated,
                "clock": loaded.model.clock_,
                "filters": loaded.filters,
                "categories": loaded.categories,
                "event_weights": loaded.model.event_weights_,
                "target_event": loaded.model.target_event_,
                "network": asdict(loaded.model.scorer_.network.config),
                "metrics": {"validation_mpr": loaded.model.validation_mpr_},
                "refused": self.source.refused,
                "limits": asdict(self.limits),
                "cfnade_version": version("cfnade"),
            }
        )

    # Operations --------------------------------------------------------------------------------

    async def healthz(self, request: Request) -> Response:
        """`GET /healthz`: the process answers."""
        return json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """`GET /readyz`: the queue has room."""
        self.batcher.check_room()
        return json_response({"status": "ready"})

    async def show_metrics(self, request: Request) -> Response:
        """`GET /metrics`."""
        return self.metrics.response()

    async def openapi(self, request: Request) -> Response:
        """`GET /openapi.json`, with examples for the model in use."""
        loaded = self.source.current
        if self._document is None or self._document[0] != loaded.stamp:
            document = await self.batcher.run_beside(partial(self._describe, loaded))
            self._document = (loaded.stamp, document)
        return json_response(self._document[1])

    # Shared ------------------------------------------------------------------------------------

    async def _read(self, request: Request, kind: type[Request_]) -> Request_:
        body = await read_body(request, self.limits.body_bytes)
        try:
            if len(body) <= LONG_BODY:
                return kind.model_validate_json(body)
            return await self.batcher.run_beside(partial(kind.model_validate_json, body))
        except ValidationError as error:
            raise invalid_request(error) from None

    async def _check(self, loaded: LoadedModel, asked: Sequence[RecommendRequest]) -> None:
        """Raise a RequestError if a request contradicts itself or the model."""
        for one in asked:
            one.check()
        if any(one.dials is not None or one.names_categories for one in asked):
            await self.batcher.run_beside(partial(loaded.check, asked))
        if detailed := [one for one in asked if one.is_detailed]:
            await self.batcher.run_beside(lambda: [loaded.counts(one) for one in detailed])

    def _answer_together(self, asked: list[_Asked]) -> list[bytes]:
        """Answer requests, each by the model that was in use when it arrived."""
        answers = [b""] * len(asked)
        for loaded in dict.fromkeys(loaded for loaded, _ in asked):
            places = [place for place, (theirs, _) in enumerate(asked) if theirs is loaded]
            found = loaded.recommend([asked[place][1] for place in places])
            self.metrics.unknown.inc(sum(len(answer["unknown"]) for answer in found))
            for place, answer in zip(places, found, strict=True):
                answers[place] = as_json(answer)
        return answers

    async def _answer_about_item(
        self, compute: Callable[[LoadedModel, Request_], dict[str, Any] | None], asked: Request_
    ) -> Response:
        loaded = self.source.current
        found = await self.batcher.run(partial(compute, loaded, asked))
        if found is None:
            message = f"the model does not know this item ({loaded.n_items:,} items)"
            raise RequestError(404, "unknown_item", message, "find its id with /v1/items?q=NAME")
        return json_response(found)

    def _describe(self, loaded: LoadedModel) -> bytes:
        has_key = self.settings.api_key is not None
        items = [f"item-{number}" for number in (1, 2, 3)]  # for those who have no key
        if not has_key:
            items = [str(loaded.ids[column]) for column in loaded.search.find("", 3)[0]]
        return as_json(openapi_document(self.requests, self.limits, items=items, needs_key=has_key))

    def _count_model(self, outcome: Outcome) -> None:
        self.metrics.models.labels(outcome).inc()
        if outcome == "swapped":
            self.metrics.model_items.set(self.source.current.n_items)


def _search(request: Request, limits: RequestLimits) -> tuple[str, int]:
    """Read the parameters of `GET /v1/items`."""
    asked = request.query_params
    extra = sorted(set(asked) - {"q", "n"})
    query, text = asked.get("q", ""), asked.get("n", str(min(N_FOUND, limits.n)))
    n = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    fault = None
    if extra:
        fault = f"{extra[0][:40]}: unknown parameter"
    elif any(len(asked.getlist(name)) > 1 for name in asked):
        fault = "a parameter is given twice"
    elif len(query) > limits.query:
        fault = f"q: at most {limits.query} characters"
    elif not 1 <= n <= limits.n:
        fault = f"n: must be a whole number from 1 to {limits.n}"
    if fault is not None:
        raise RequestError(422, "invalid_request", fault, "see /openapi.json for the parameters")
    return query, n


def build_app(service: Service) -> Starlette:
    """Build the ASGI application of a service."""
    get, post = ["GET"], ["POST"]
    routes = [
        Route("/v1/recommend", service.recommend, methods=post),
        Route("/v1/recommend:batch", service.recommend_batch, methods=post),
        Route("/v1/explain", service.explain, methods=post),
        Route("/v1/similar", service.similar, methods=post),
        Route("/v1/items", service.items, methods=get),
        Route("/v1/items:lookup", service.look_up, methods=post),
        Route("/v1/model", service.model, methods=get),
        Route("/healthz", service.healthz, methods=get),
        Route("/readyz", service.readyz, methods=get),
        Route("/metrics", service.show_metrics, methods=get),
        Route("/openapi.json", service.openapi, methods=get),
        *page_routes(lambda: service.source.current.image_sources),
    ]
    settings = service.settings
    paths = frozenset(route.path for route in routes)
    middleware = [Middleware(Observed, metrics=service.metrics, paths=paths)]
    if settings.allowed_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=get + post,
            allow_headers=["authorization", "content-type", "x-api-key"],
            max_age=3600,
        )
        middleware.insert(0, cors)
    if settings.api_key is not None:
        middleware.append(Middleware(ApiKey, key=settings.api_key.encode()))
    if names := settings.host_names:
        middleware.append(Middleware(HostNames, names=frozenset(name.encode() for name in names)))
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers=HANDLERS,
        lifespan=service.running,
    )
    app.router.redirect_slashes = False  # a redirect would lead to the host of the request
    return app
