"""Metrics for Prometheus: counts, times and outcomes, never contents."""

from __future__ import annotations

import os
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.responses import Response

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Folder in which workers share metrics; prometheus-client reads it when imported."""

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def count_as(place: int) -> None:
    """Continue the metrics of the worker that had this number before.

    By default files are named by process, so those of dead workers would pile up.
    """
    values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]


class Metrics:
    """Metrics of one worker, or of all through their shared folder."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="cfnade", registry=self.registry)
        histogram = partial(Histogram, namespace="cfnade", registry=self.registry)
        gauge = partial(Gauge, namespace="cfnade", registry=self.registry)
        self.requests = counter("requests", "Requests answered.", ["path", "status"])
        took = "Seconds from the head of a request to its answer."
        self.seconds = histogram("request_seconds", took, ["path"], buckets=_SECONDS)
        passes = "Histories answered in one pass."
        self.together = histogram("answered_together", passes, buckets=_SIZES)
        self.unknown = counter("unknown_items", "Unknown items in requests.")
        self.models = counter("models", "Models loaded, swapped or refused.", ["outcome"])
        self.model_items = gauge(
            "model_items", "Items of the model in use.", multiprocess_mode="livemostrecent"
        )

    def response(self) -> Response:
        """All metrics in Prometheus' text format."""
        registry = self.registry
        if os.environ.get(SHARED_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        headers = {"content-type": CONTENT_TYPE_PLAIN_0_0_4}
        return Response(generate_latest(registry), headers=headers)
