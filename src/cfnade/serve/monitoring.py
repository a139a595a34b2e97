"""Metrics for Prometheus: counts, times and outcomes, never contents."""

from __future__ import annotations

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    values,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.responses import Response

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Folder in which workers share metrics; prometheus-client reads it when imported."""

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


def count_as(place: int) -> None:
    """Continue the metrics of the worker that had this number before.

    By default files are named by process, so those of dead workers would pile up.
    """
    of_place = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]
    values.ValueClass = of_place


class Metrics:
    """Metrics of one worker, or of all through their shared folder."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "cfnade_requests", "Requests answered.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "cfnade_request_seconds",
            "Seconds from the head of a request to its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.together = Histogram(
            "cfnade_answered_together",
            "Histories answered in one pass.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        self.unknown = Counter(
            "cfnade_unknown_items", "Unknown items in requests.", registry=self.registry
        )
        self.models = Counter(
            "cfnade_models", "Models loaded, swapped or refused.", ["outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.model_items = Gauge(
            "cfnade_model_items", "Items of the model in use.", registry=self.registry,
            multiprocess_mode="livemostrecent",
        )  # fmt: skip

    def response(self) -> Response:
        """All metrics in Prometheus' text format."""
        registry = self.registry
        if os.environ.get(SHARED_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(
            generate_latest(registry), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4}
        )
