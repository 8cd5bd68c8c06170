"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dmlvk.spec.errors import MissingPackageError

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
except ImportError as error:
    raise MissingPackageError("serving needs the package prometheus-client: pip install 'dmlvk[serve]'") from error

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of one application: those of its process, of requests, and its own.

    Args:
        gauges: What is looked up when somebody asks, by name, each with its meaning.
        counters: Names and meanings of what is counted.
        histograms: Names and meanings of times in seconds.
    """

    def __init__(
        self,
        gauges: Mapping[str, tuple[str, Callable[[], float]]],
        counters: Mapping[str, str],
        histograms: Mapping[str, str],
    ) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("dmlvk_requests", "Requests that were answered", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "dmlvk_request_seconds",
            "From a request to the end of its answer",
            ["route"],
            registry=registry,
            buckets=_SECONDS,
        )
        for name, (meaning, value) in gauges.items():
            Gauge(f"dmlvk_{name}", meaning, registry=registry).set_function(value)
        self._counters = {name: Counter(f"dmlvk_{name}", meaning, registry=registry) for name, meaning in counters.items()}
        self._histograms = {
            name: Histogram(f"dmlvk_{name}_seconds", meaning, registry=registry, buckets=_SECONDS)
            for name, meaning in histograms.items()
        }

    def request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count(self, name: str, amount: float) -> None:
        """Adds to a counter."""
        self._counters[name].inc(amount)

    def time(self, name: str, seconds: float) -> None:
        """Adds a time."""
        self._histograms[name].observe(seconds)

    def exposed(self) -> tuple[bytes, str]:
        """All of them as Prometheus reads them, and the type of that."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
