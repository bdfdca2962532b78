"""Timings as metrics and answers show them."""

from dataclasses import fields

from turnout.core.events import Phases
from turnout.telemetry.phases import Timings

TIMINGS = Timings(0.001, Phases(0.002, 0.003, 0.0000049, 0.25, 0.5, 1.0), 2.0)


def test_milliseconds_by_phase() -> None:
    assert TIMINGS.as_milliseconds() == {
        "resolve_ms": 1.0,
        "queue_ms": 2.0,
        "adapter_load_ms": 3.0,
        "cache_lookup_ms": 0.005,
        "prefill_ms": 250.0,
        "first_token_ms": 500.0,
        "decode_ms": 1000.0,
        "total_ms": 2000.0,
    }


def test_no_phase_of_the_engine_is_left_out() -> None:
    seconds = TIMINGS.by_phase()
    assert {f.name: getattr(TIMINGS.engine, f.name) for f in fields(Phases)}.items() <= seconds.items()
    assert seconds.keys() - {f.name for f in fields(Phases)} == {"resolve", "total"}
