"""Counters of a server, for Prometheus."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from ostinato.serve.lanes import Call
from ostinato.serve.protocol import ServeError

# Quantiles are those of the last requests, as many as tell the 99th of a hundred ten times over.
_LATEST = 1000
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_BATCHES = tuple(2**power for power in range(11))


class Metrics:
    """Counters of one server. frame: seconds of signal in a frame, for the real-time factor."""

    def __init__(self, frame: float | None = None) -> None:
        self._frame = frame
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"registry": self.registry, "namespace": "ostinato"}

        def by(labels: Sequence[str], kind: Any, name: str, text: str, **more: Any) -> Any:
            # The child of labels, looked up for each message.
            return cache(kind(name, text, labels, **common, **more).labels)

        models = partial(by, ["model"])
        text = "Requests that were answered, by status."
        self._requests = by(["model", "status"], Counter, "requests", text)
        self._seconds = models(
            Histogram, "request_seconds", "From request to answer.", buckets=_SECONDS
        )
        self._batch = models(Histogram, "batch_size", "Sequences in a call.", buckets=_BATCHES)
        self._busy = models(Counter, "busy_seconds", "Native code running.")
        self._signal = models(Counter, "signal_seconds", "Signal that was processed.")
        self._deaths = Counter("worker_deaths", "Workers that crashed.", **common)
        self._lost = Counter("lost_sequences", "Sequences lost with a worker.", **common)
        self._sequences = Gauge("sequences", "Sequences that are open.", **common)
        self._queue = Gauge("queue_messages", "Messages that no worker has answered.", **common)
        self._latest: dict[str, deque[float]] = {}
        # For the real-time factor; a registry must not be asked while it collects.
        self._busy_seconds: dict[str, float] = defaultdict(float)
        self._signal_seconds: dict[str, float] = defaultdict(float)
        self.registry.register(_Derived(self))

    def watch(self, sequences: Callable[[], int], queue: Callable[[], int]) -> None:
        """Set the functions that tell what is not counted."""
        self._sequences.set_function(sequences)
        self._queue.set_function(queue)

    @contextmanager
    def request(self, model: str, frames: int) -> Iterator[None]:
        """Count a request. frames: how many its inputs have."""
        before, status = time.perf_counter(), "OK"
        try:
            yield
        except ServeError as error:
            status = error.status.name
            raise
        finally:
            self._requests(model, status).inc()
            if status == "OK":
                seconds = time.perf_counter() - before
                self._seconds(model).observe(seconds)
                self._latest.setdefault(model, deque(maxlen=_LATEST)).append(seconds)
                if self._frame is not None:
                    self._signal(model).inc(frames * self._frame)
                    self._signal_seconds[model] += frames * self._frame

    def called(self, call: Call) -> None:
        """Count a call of native code."""
        self._batch(call.model).observe(call.batch)
        self._busy(call.model).inc(call.seconds)
        self._busy_seconds[call.model] += call.seconds

    def died(self, sequences: int) -> None:
        """Count a worker that crashed, and the sequences it had."""
        self._deaths.inc()
        self._lost.inc(sequences)

    def derived(self) -> Iterable[Metric]:
        """Quantiles of the last requests, and how much of real time the native code takes."""
        quantiles = GaugeMetricFamily(
            "ostinato_request_seconds_quantile",
            f"Of the last {_LATEST} requests.",
            labels=["model", "quantile"],
        )
        factor = GaugeMetricFamily(
            "ostinato_real_time_factor",
            "Seconds of native code for a second of signal.",
            labels=["model"],
        )
        for model, latest in self._latest.items():
            for quantile in (0.5, 0.99):
                value = float(np.quantile(np.array(latest), quantile))
                quantiles.add_metric([model, str(quantile)], value)
            if signal := self._signal_seconds.get(model):
                factor.add_metric([model], self._busy_seconds.get(model, 0.0) / signal)
        return [quantiles, factor]

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return bytes(generate_latest(self.registry))


class _Derived:
    """Metrics that are computed when they are read."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.derived()
