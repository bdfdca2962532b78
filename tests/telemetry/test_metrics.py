"""What a scrape shows, read back with prometheus-client's own parser."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from turnout.core.engine import EngineStats
from turnout.core.events import Phases
from turnout.telemetry.metrics import CONTENT_TYPE, Metrics
from turnout.telemetry.phases import Timings

Labels = tuple[tuple[str, str], ...]


def scrape(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    """Samples by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def distinct_stats(offset: int = 0) -> EngineStats:
    """Another number in every field."""
    return EngineStats(**{f.name: offset + number for number, f in enumerate(fields(EngineStats), 1)})


def test_every_field_of_the_engines_statistics_is_shown_as_it_is_at_the_scrape() -> None:
    stats = [distinct_stats()]
    metrics = Metrics(lambda: stats[-1])
    expected = range(1, len(fields(EngineStats)) + 1)
    assert set(expected) <= set(scrape(metrics).values())
    stats.append(distinct_stats(offset=1000))
    assert {1000.0 + number for number in expected} <= set(scrape(metrics).values())


def test_the_names_that_dashboards_rely_on() -> None:
    stats = EngineStats(running=1, waiting=2, kv_blocks_total=3, kv_blocks_free=4, adapters_hot=5, preemptions=6)
    samples = scrape(Metrics(lambda: stats))
    for name, value in {
        "turnout_requests_running": 1,
        "turnout_requests_waiting": 2,
        "turnout_kv_blocks": 3,
        "turnout_kv_blocks_free": 4,
        "turnout_adapters_hot": 5,
        "turnout_preemptions_total": 6,
        "turnout_engine_accepting": 1,
    }.items():
        assert samples[name, ()] == value


def test_finished_requests_are_counted_with_their_tokens_and_phases() -> None:
    metrics = Metrics(EngineStats)
    phases = Phases(queue=0.2, adapter_load=0.1, cache_lookup=0.0, prefill=0.3, first_token=0.5, decode=1.0)
    metrics.finished(Timings(0.01, phases, 1.5), prompt_tokens=7, generated_tokens=5)
    metrics.finished(Timings(0.03, phases, 2.5), prompt_tokens=1, generated_tokens=0)
    samples = scrape(metrics)
    assert samples["turnout_prompt_tokens_total", ()] == 8
    assert samples["turnout_generated_tokens_total", ()] == 5
    for phase, total in {"resolve": 0.04, "queue": 0.4, "first_token": 1.0, "decode": 2.0, "total": 4.0}.items():
        labels = (("phase", phase),)
        assert samples["turnout_request_phase_seconds_count", labels] == 2
        assert abs(samples["turnout_request_phase_seconds_sum", labels] - total) < 1e-9


def test_every_phase_has_its_series_before_the_first_request() -> None:
    samples = scrape(Metrics(EngineStats))
    phases = {labels[0][1] for name, labels in samples if name == "turnout_request_phase_seconds_count"}
    assert phases == Timings(0.0, Phases(), 0.0).by_phase().keys()


def test_answers_are_counted_by_status_from_any_thread() -> None:
    metrics = Metrics(EngineStats)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(metrics.answered, [200, 404, 200, 429] * 100))
    samples = scrape(metrics)
    counts = {status: samples["turnout_requests_total", (("status", status),)] for status in ("200", "404", "429")}
    assert counts == {"200": 200, "404": 100, "429": 100}


def test_two_servers_in_one_process_share_nothing() -> None:
    one, other = Metrics(EngineStats), Metrics(EngineStats)
    one.answered(200)
    assert ("turnout_requests_total", (("status", "200"),)) not in scrape(other)
    assert not any(family.name.startswith("turnout") for family in REGISTRY.collect())


def test_no_label_can_grow_with_what_clients_send() -> None:
    metrics = Metrics(EngineStats)
    metrics.answered(200)
    labels = {label for _, labels in scrape(metrics) for label, _ in labels}
    assert labels == {"phase", "status", "le"}


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert CONTENT_TYPE.startswith("text/plain")
