"""Prometheus metrics. They contain no prompts, texts or user names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redraft.apps.server.supervisor import Supervisor

_ROUTES = ("/v1/", "/health/", "/metrics")


class _ServerMetrics:
    """Counters and histograms since the server started."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_State(supervisor))
        self._responses = Counter(
            "redraft_responses", "Responses by route and status", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "redraft_response_seconds", "Seconds to the first byte of a response", ["route"], registry=self._registry
        )
        self._tokens = Counter("redraft_tokens_written", "Tokens written", registry=self._registry)
        self._calls = Counter("redraft_forward_rows", "Rows passed through the network", registry=self._registry)

    def count_response(self, path: str, status: int, seconds: float) -> None:
        route = "/v1/models/{name}" if path.startswith("/v1/models/") else path
        route = route if route.startswith(_ROUTES) and status != 404 else "other"
        self._responses.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_result(self, record: dict[str, Any]) -> None:
        self._tokens.inc(record.get("new_tokens", 0))
        self._calls.inc(record.get("nfe", 0) * max(1, len(record.get("texts", ()))))

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _State(Collector):
    """Collects the current state of the queue and the model process."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        queue = self._supervisor.queue
        ledger = queue.ledger
        requests = CounterMetricFamily("redraft_requests", "Requests by how they ended", labels=["end"])
        for end in ("completed", "cancelled", "failed"):
            requests.add_metric([end], ledger.ends[end])
        yield requests
        failures = CounterMetricFamily("redraft_failures", "Failed requests by reason", labels=["reason"])
        for reason, count in ledger.reasons.items():
            failures.add_metric([reason], count)
        yield failures
        yield CounterMetricFamily("redraft_requests_accepted", "Requests accepted", value=ledger.accepted)
        yield CounterMetricFamily(
            "redraft_requests_rejected", "Requests rejected because the queue was full", value=ledger.rejected
        )
        yield CounterMetricFamily("redraft_model_restarts", "Model process restarts", value=self._supervisor.restarts)
        yield GaugeMetricFamily("redraft_requests_running", "Requests being generated", value=len(queue.running))
        yield GaugeMetricFamily("redraft_requests_queued", "Requests in the queue", value=queue.waiting)
        yield GaugeMetricFamily("redraft_ready", "1 if the models are loaded", value=float(self._supervisor.ready))
