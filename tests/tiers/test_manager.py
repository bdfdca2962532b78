"""Weights come once, stay while they are used, and leave when others need the room."""

import asyncio
import threading
from contextlib import suppress
from itertools import count

import pytest

from tests.tiers.yard import BASE, version, yard
from turnout.core.adapter import AdapterState
from turnout.core.errors import (
    AdapterFileError,
    AdapterInUse,
    AdapterNotResident,
    AdapterPinned,
    AdapterTooLarge,
    ArtifactCorrupt,
    EngineStopped,
    Overloaded,
    TurnoutError,
)
from turnout.core.identity import VersionRef
from turnout.tiers import failures

A, B, C, D = (version(number) for number in range(1, 5))


async def until(true: object) -> None:
    """Let other tasks go on until `true()` is."""
    assert callable(true)
    for _ in count():
        if true():
            return
        await asyncio.sleep(0.001)


async def test_it_is_read_once_however_many_ask() -> None:
    with yard() as made:
        gate = made.source.gates[A.digest] = threading.Event()
        asking = [asyncio.ensure_future(made.tiers.lease(A)) for _ in range(20)]
        await asyncio.to_thread(made.source.wait_for_read, A.digest)
        gate.set()
        leases = await asyncio.gather(*asking)
        assert made.source.reads == {A.digest: 1}
        assert made.loaded == {A.digest}
        for lease in leases:
            lease.end()
            lease.end()  # which changes nothing
        (await made.tiers.lease(A)).end()
        assert made.source.reads == {A.digest: 1}
        assert [use.found for use in made.uses] == ["remote"] * 20 + ["warm"]


async def test_the_base_needs_no_weights() -> None:
    with yard(room=0) as made:
        (await made.tiers.lease(VersionRef("base", 0, BASE))).end()
        assert not made.source.reads


async def test_the_least_recently_used_leaves_for_another() -> None:
    with yard(room=400) as made:
        for each in (A, B, A, C):
            (await made.tiers.lease(each)).end()
        assert made.loaded == {A.digest, C.digest}
        assert [(move.digest, move.reason) for move in made.moves if move.target == "cold"] == [(B.digest, "room")]
        (await made.tiers.lease(B)).end()
        assert made.uses[-1].found == "cold"


async def test_who_is_in_use_stays_and_the_next_one_waits() -> None:
    with yard(room=400) as made:
        first, second = await made.tiers.lease(A), await made.tiers.lease(B)
        third = asyncio.ensure_future(made.tiers.lease(C))
        await asyncio.to_thread(made.source.wait_for_read, C.digest)
        assert made.loaded == {A.digest, B.digest}
        second.end()
        lease = await third
        assert made.loaded == {A.digest, C.digest}
        first.end()
        lease.end()


async def test_a_large_one_is_not_passed_over_by_small_ones() -> None:
    with yard(room=400) as made:
        made.source.sizes[C.digest] = 200
        first, second = await made.tiers.lease(A), await made.tiers.lease(B)
        large = asyncio.ensure_future(made.tiers.lease(C))
        await asyncio.to_thread(made.source.wait_for_read, C.digest)
        small = asyncio.ensure_future(made.tiers.lease(D))
        await asyncio.to_thread(made.source.wait_for_read, D.digest)
        first.end()
        second.end()
        lease = await large
        assert not small.done()
        lease.end()
        (await small).end()


async def test_what_can_never_fit_is_refused_at_once() -> None:
    with yard(room=199) as made:
        with pytest.raises(AdapterTooLarge, match="200 bytes, and of the 199 of --warm-memory"):
            await made.tiers.lease(A)
        assert made.loaded == set()


async def test_a_load_for_which_nobody_waits_is_given_up() -> None:
    with yard() as made:
        gate = made.source.gates[A.digest] = threading.Event()
        asking = [asyncio.ensure_future(made.tiers.lease(A)) for _ in range(2)]
        await asyncio.to_thread(made.source.wait_for_read, A.digest)
        asking[0].cancel()
        gate.set()
        (await asking[1]).end()  # the other one still waited
        assert made.loaded == {A.digest}

        gate = made.source.gates[B.digest] = threading.Event()
        only = asyncio.ensure_future(made.tiers.lease(B))
        await asyncio.to_thread(made.source.wait_for_read, B.digest)
        only.cancel()
        with suppress(asyncio.CancelledError):
            await only
        gate.set()
        del made.source.gates[B.digest]
        # It may be asked for again at once, while the first load is ending.
        (await made.tiers.lease(B)).end()
        assert made.loaded == {A.digest, B.digest}


async def test_a_load_that_waits_for_room_is_given_up_too() -> None:
    with yard(room=200) as made:
        first = await made.tiers.lease(A)
        second = asyncio.ensure_future(made.tiers.lease(B))
        await asyncio.to_thread(made.source.wait_for_read, B.digest)
        second.cancel()
        await until(lambda: len(made.tiers.entries()) == 1)
        first.end()
        (await made.tiers.lease(C)).end()
        assert made.loaded == {C.digest}


async def test_a_failure_is_told_to_those_who_wait_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("turnout.tiers.manager.time.monotonic", lambda: now)
    with yard() as made:
        made.source.errors[A.digest] = AdapterFileError("it is cut short")
        others = asyncio.gather(*(made.tiers.lease(each) for each in (B, C)))
        for lease in await asyncio.gather(*(made.tiers.lease(A) for _ in range(3)), return_exceptions=True):
            assert isinstance(lease, AdapterFileError)
        for lease in await others:
            lease.end()
        pauses = []
        for _ in range(9):
            # Not read again before its time, and then once.
            reads = made.source.reads[A.digest]
            failure = made.tiers.failure(A.digest)
            assert failure is not None
            pauses.append(failure.until - now)
            now = failure.until - 0.01
            with pytest.raises(AdapterFileError, match="it is cut short"):
                await made.tiers.lease(A)
            assert made.source.reads[A.digest] == reads
            now = failure.until
            with pytest.raises(AdapterFileError):
                await made.tiers.lease(A)
            assert made.source.reads[A.digest] == reads + 1
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        now += failures.LONGEST_PAUSE
        del made.source.errors[A.digest]
        (await made.tiers.lease(A)).end()
        assert made.tiers.failure(A.digest) is None
        assert made.tiers.used == 600


async def test_a_fault_of_our_own_is_no_adapters_error(caplog: pytest.LogCaptureFixture) -> None:
    with yard() as made:
        made.source.errors[A.digest] = ZeroDivisionError()
        with pytest.raises(TurnoutError, match="loading a@1 failed unexpectedly"):
            await made.tiers.lease(A)
        assert "ZeroDivisionError" in caplog.text
        assert made.tiers.used == 0


async def test_other_weights_than_the_versions_are_never_served() -> None:
    with yard() as made:
        other = VersionRef("a", 9, B.digest, "default")
        read = made.source.read
        made.source.read = lambda version, *rest: read(A, *rest)  # type: ignore[method-assign]
        with pytest.raises(ArtifactCorrupt):
            await made.tiers.lease(other)
        assert made.loaded == set()


async def test_what_no_version_has_goes_when_its_last_request_ends() -> None:
    with yard() as made:
        first, second = await made.tiers.lease(A), await made.tiers.lease(B)
        second.end()
        made.gone = {A.digest, B.digest}
        made.tiers.settle()
        assert made.loaded == {A.digest}
        first.end()
        assert made.loaded == set()
        assert made.tiers.used == 0


async def test_deleted_while_it_was_on_its_way() -> None:
    with yard() as made:
        gate = made.source.gates[A.digest] = threading.Event()
        asking = asyncio.ensure_future(made.tiers.lease(A))
        await asyncio.to_thread(made.source.wait_for_read, A.digest)
        made.gone.add(A.digest)
        made.tiers.settle()
        gate.set()
        lease = await asking  # its route was made while it was there
        assert made.loaded == {A.digest}
        lease.end()
        assert made.loaded == set()


async def test_evicting() -> None:
    with yard() as made:
        made.tiers.evict(A).result(1)
        lease = await made.tiers.lease(A)
        with pytest.raises(AdapterInUse, match="a@1 is in use by 1 requests"):
            made.tiers.evict(A)
        lease.end()
        made.tiers.evict(A).result(1)
        assert made.loaded == set()
        assert made.tiers.used == 0


async def test_kept_ones_come_by_themselves_and_stay() -> None:
    with yard(room=400) as made:
        made.tiers.keep([A])
        await until(lambda: made.loaded == {A.digest})
        for each in (B, C, D):
            (await made.tiers.lease(each)).end()
        assert made.loaded == {A.digest, D.digest}
        with pytest.raises(AdapterPinned):
            made.tiers.evict(A)
        made.source.sizes[B.digest] = 101
        with pytest.raises(AdapterTooLarge, match="pinned leave 200"):
            await made.tiers.lease(B)
        made.tiers.keep([])
        (await made.tiers.lease(B)).end()
        assert made.loaded == {B.digest}


async def test_swap_hot_refuses_all_but_the_kept() -> None:
    with yard(swap="hot") as made:
        made.tiers.keep([A])
        (await made.tiers.lease(A)).end()
        with pytest.raises(AdapterNotResident, match="--swap hot"):
            await made.tiers.lease(B)
        assert made.source.reads == {A.digest: 1}


async def test_swap_cold_has_one_at_a_time() -> None:
    with yard(swap="cold") as made:
        lease = await made.tiers.lease(A)
        other = asyncio.ensure_future(made.tiers.lease(B))
        await asyncio.to_thread(made.source.wait_for_read, B.digest)
        assert made.loaded == {A.digest}
        lease.end()
        (await other).end()
        assert made.loaded == {B.digest}
        assert made.tiers.used == 200


async def test_bringing_goes_on_though_nobody_waits() -> None:
    with yard() as made:
        await asyncio.wrap_future(made.tiers.bring(A))
        assert made.loaded == {A.digest}
        assert made.moves[0].reason == "asked"


async def test_an_arrival_stays_while_its_block_lasts_and_then_if_it_lives() -> None:
    with yard(room=400) as made:
        for survives in (True, False):
            made.gone = set() if survives else {A.digest}
            with made.tiers.arrival() as arrival:
                state = AdapterState(A.digest, BASE, "bfloat16", (), arrival.allocate(100, "bfloat16"), 0)
                await asyncio.to_thread(arrival.enter, state)
                assert made.loaded == {A.digest}
                made.tiers.settle()
                assert made.loaded == {A.digest}
            assert made.loaded == ({A.digest} if survives else set())
            assert made.tiers.used == (200 if survives else 0)


async def test_an_arrival_that_is_there_already_takes_its_memory_for_a_while_only() -> None:
    with yard(room=400) as made:
        lease = await made.tiers.lease(A)
        with made.tiers.arrival() as arrival:
            state = AdapterState(A.digest, BASE, "bfloat16", (), arrival.allocate(100, "bfloat16"), 0)
            assert made.tiers.used == 400
            await asyncio.to_thread(arrival.enter, state)
        assert made.tiers.used == 200
        lease.end()
        assert made.loaded == {A.digest}


async def test_an_arrival_that_is_refused_leaves_nothing() -> None:
    with yard() as made:
        with pytest.raises(AdapterFileError), made.tiers.arrival() as arrival:
            arrival.allocate(100, "bfloat16")
            raise AdapterFileError("no")
        assert made.tiers.used == 0


async def test_too_many_waiting_are_refused() -> None:
    with yard(max_waiting=2) as made:
        gate = made.source.gates[A.digest] = threading.Event()
        asking = [asyncio.ensure_future(made.tiers.lease(A)) for _ in range(2)]
        await asyncio.to_thread(made.source.wait_for_read, A.digest)
        with pytest.raises(Overloaded):
            await made.tiers.lease(A)
        gate.set()
        for lease in await asyncio.gather(*asking):
            lease.end()
        (await made.tiers.lease(A)).end()


async def test_closing_ends_every_wait() -> None:
    with yard(room=200) as made:
        lease = await made.tiers.lease(A)
        # Four wait for room in the loading threads, the others for a thread.
        asking = [asyncio.ensure_future(made.tiers.lease(version(number))) for number in range(2, 12)]
        await asyncio.to_thread(made.source.wait_for_read, B.digest)
        made.tiers.close()
        for ended in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(ended, EngineStopped)
        with pytest.raises(EngineStopped):
            await made.tiers.lease(B)
        lease.end()
