"""What the gateway counts, in Prometheus' form."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_WAITS = (0.001, 0.01, 0.1, 1, 5, 15, 60, 300)
_FIRST = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300)
_LABELS = ("model", "lane")


class Metrics:
    """Counters of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        kept = self.registry
        name = "spark_recipe_gateway"
        self.requests = Counter(
            f"{name}_requests", "Answered requests", (*_LABELS, "tenant", "status"), registry=kept
        )
        self.running = Gauge(f"{name}_running", "Requests at the server", _LABELS, registry=kept)
        self.waiting = Gauge(f"{name}_waiting", "Requests in the queue", _LABELS, registry=kept)
        self.waited = Histogram(
            f"{name}_queue_seconds", "Time in the queue", _LABELS, buckets=_WAITS, registry=kept
        )
        self.first = Histogram(
            f"{name}_first_byte_seconds",
            "Time until the server's first byte",
            _LABELS,
            buckets=_FIRST,
            registry=kept,
        )
        self.sound = Counter(
            f"{name}_video_sound",
            "What became of the sound of videos",
            ("model", "sound"),
            registry=kept,
        )

    def write(self) -> bytes:
        """The text of `/metrics`."""
        return generate_latest(self.registry)
