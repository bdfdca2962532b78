"""Prometheus metrics, in base units, under `turnout_`."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from turnout.core.engine import EngineStats
from turnout.core.events import Phases
from turnout.telemetry.phases import Timings

CONTENT_TYPE = CONTENT_TYPE_LATEST

_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_GAUGES = {
    "running": ("turnout_requests_running", "Requests in the engine's batch."),
    "waiting": ("turnout_requests_waiting", "Requests that wait for the engine."),
    "kv_blocks_total": ("turnout_kv_blocks", "KV blocks in all."),
    "kv_blocks_free": ("turnout_kv_blocks_free", "KV blocks that no request holds."),
    "adapters_loaded": ("turnout_adapters_loaded", "Distinct adapter weights in RAM."),
    "adapters_hot": ("turnout_adapters_hot", "Distinct adapter weights in the device arena."),
    "adapter_bytes_total": ("turnout_adapter_arena_bytes", "Size of the adapter arena."),
    "adapter_bytes_used": ("turnout_adapter_arena_used_bytes", "Bytes of the adapter arena in use."),
    "leases": ("turnout_adapter_leases", "References that requests hold on adapters."),
    "accepting": ("turnout_engine_accepting", "1 while the engine takes requests, else 0."),
}
_COUNTERS = {
    "steps": ("turnout_engine_steps", "Steps of the engine."),
    "preemptions": ("turnout_preemptions", "Requests sent back to be recomputed, for want of KV blocks."),
    "prefix_lookup_tokens": ("turnout_prefix_lookup_tokens", "Prompt tokens looked up in the prefix cache."),
    "prefix_hit_tokens": ("turnout_prefix_hit_tokens", "Prompt tokens whose state came from the prefix cache."),
}


class Metrics:
    """One server's metrics, in a registry of their own. Safe to use from any thread."""

    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(stats))
        self._phases = Histogram(
            "turnout_request_phase_seconds",
            "Time of finished requests by phase.",
            ["phase"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        for phase in Timings(0.0, Phases(), 0.0).by_phase():
            self._phases.labels(phase)  # there before the first request, as rates in dashboards need it
        self._requests = Counter(
            "turnout_requests",
            "Answers to requests for generation, by HTTP status.",
            ["status"],
            registry=self._registry,
        )
        self._prompt_tokens = Counter("turnout_prompt_tokens", "Prompt tokens of requests.", registry=self._registry)
        self._generated_tokens = Counter("turnout_generated_tokens", "Tokens generated.", registry=self._registry)

    def answered(self, status: int) -> None:
        """Count an answer. A stream that fails after its start counts with the status its error would have had."""
        self._requests.labels(str(status)).inc()

    def finished(self, timings: Timings, prompt_tokens: int, generated_tokens: int) -> None:
        """Take in a request that was served to its end."""
        self._prompt_tokens.inc(prompt_tokens)
        self._generated_tokens.inc(generated_tokens)
        for phase, seconds in timings.by_phase().items():
            self._phases.labels(phase).observe(seconds)

    def exposition(self) -> bytes:
        """The page Prometheus scrapes, of CONTENT_TYPE."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """Reads the engine's statistics when somebody scrapes, not on every step."""

    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """One consistent picture per scrape."""
        return self._families(self._stats())

    @staticmethod
    def _families(stats: EngineStats) -> Iterator[Metric]:
        for field, (name, text) in _GAUGES.items():
            yield GaugeMetricFamily(name, text, value=getattr(stats, field))
        for field, (name, text) in _COUNTERS.items():
            yield CounterMetricFamily(name, text, value=getattr(stats, field))
