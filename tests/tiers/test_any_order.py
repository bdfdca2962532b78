"""Whatever happens in whatever order: no byte over the budget, no promise broken, nobody forgotten."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.tiers.yard import BASE, Yard, version
from turnout.core.adapter import AdapterState
from turnout.core.errors import AdapterFileError, AdapterInUse, AdapterPinned, AdapterTooLarge, TurnoutError
from turnout.tiers.lease import Lease

VERSIONS = [version(number) for number in range(1, 9)]
SIZES = [40, 60, 100, 100, 120, 200, 300, 601]
ROOM = 1200  # bytes, two for an element; the last one never fits
WHICH = st.sampled_from(VERSIONS)


class AnyOrder(RuleBasedStateMachine):
    """Requests come, wait, give up and end; reads are held up and fail; versions are kept, evicted and deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.yard = Yard(ROOM)
        self.yard.source.sizes = {each.digest: size for each, size in zip(VERSIONS, SIZES, strict=True)}
        self.asking: list[tuple[str, asyncio.Task[Lease]]] = []
        self.leases: list[tuple[str, Lease]] = []
        self.publishers = ThreadPoolExecutor(4)
        self.arrivals: list[Future[None]] = []

    def turn(self, times: int = 1) -> None:
        """Let tasks go on, and take the leases that were given."""
        for _ in range(times):
            self.loop.run_until_complete(asyncio.sleep(0))
        still = []
        for digest, task in self.asking:
            if not task.done():
                still.append((digest, task))
            elif not task.cancelled() and task.exception() is None:
                self.leases.append((digest, task.result()))
            else:
                assert task.cancelled() or isinstance(task.exception(), TurnoutError), task.exception()
        self.asking = still

    @rule(which=WHICH)
    def ask(self, which):  # type: ignore[no-untyped-def]
        self.asking.append((which.digest, self.loop.create_task(self.yard.tiers.lease(which))))
        self.turn(2)

    # How many there are depends on threads, so which one it is must not be drawn from their number.
    @rule(one=st.integers(0, 99))
    def end(self, one):  # type: ignore[no-untyped-def]
        if self.leases:
            self.leases.pop(one % len(self.leases))[1].end()

    @rule(one=st.integers(0, 99))
    def give_up(self, one):  # type: ignore[no-untyped-def]
        if self.asking:
            self.asking[one % len(self.asking)][1].cancel()
            self.turn(2)

    @rule(which=WHICH)
    def hold_up(self, which):  # type: ignore[no-untyped-def]
        self.yard.source.gates.setdefault(which.digest, threading.Event())

    @rule(which=WHICH)
    def go_on(self, which):  # type: ignore[no-untyped-def]
        gate = self.yard.source.gates.pop(which.digest, None)
        if gate is not None:
            gate.set()

    @rule(which=WHICH)
    def break_it(self, which):  # type: ignore[no-untyped-def]
        self.yard.source.errors[which.digest] = AdapterFileError("it is broken")

    @rule(which=WHICH)
    def mend(self, which):  # type: ignore[no-untyped-def]
        self.yard.source.errors.pop(which.digest, None)

    @rule(which=WHICH)
    def evict(self, which):  # type: ignore[no-untyped-def]
        try:
            self.yard.tiers.evict(which)
        except AdapterInUse:
            assert which.digest in {entry.digest for entry in self.yard.tiers.entries()}
        except AdapterPinned:
            pass

    @rule(which=st.lists(WHICH, max_size=3, unique_by=lambda each: each.digest))
    def keep(self, which):  # type: ignore[no-untyped-def]
        self.yard.tiers.keep(which)

    @rule(which=WHICH)
    def delete(self, which):  # type: ignore[no-untyped-def]
        self.yard.gone.add(which.digest)
        self.yard.tiers.settle()

    @rule(which=WHICH)
    def publish(self, which):  # type: ignore[no-untyped-def]
        def arrive() -> None:
            with self.yard.tiers.arrival() as arrival:
                buffer = arrival.allocate(SIZES[VERSIONS.index(which)], "bfloat16")
                arrival.enter(AdapterState(which.digest, BASE, "bfloat16", (), buffer, 0))
                self.yard.gone.discard(which.digest)

        # It may have to wait for room.
        self.arrivals.append(self.publishers.submit(arrive))

    @rule()
    def let_them(self):  # type: ignore[no-untyped-def]
        self.turn(20)

    @invariant()
    def the_books_are_right(self) -> None:
        self.yard.tiers.check()
        assert self.yard.tiers.used <= ROOM

    @invariant()
    def what_is_promised_is_there(self) -> None:
        self.turn()
        assert {digest for digest, _ in self.leases} <= self.yard.loaded

    def teardown(self) -> None:
        yard = self.yard
        for gate in yard.source.gates.values():
            gate.set()
        yard.source.gates.clear()
        yard.tiers.keep([])
        # Each that ends makes room for others, so all come to their end.
        while self.asking or self.leases or not all(arrival.done() for arrival in self.arrivals):
            for _, lease in self.leases:
                lease.end()
            self.leases = []
            pending = [task for _, task in self.asking]
            if pending:
                done = self.loop.run_until_complete(asyncio.wait(pending, timeout=20, return_when="FIRST_COMPLETED"))[0]
                assert done, "a request waits for ever"
            else:
                wait(self.arrivals, timeout=20, return_when="FIRST_COMPLETED")
            self.turn()
        for arrival in self.arrivals:
            assert isinstance(arrival.exception(), AdapterTooLarge | None)
        self.publishers.shutdown()
        yard.tiers.close()
        for entry in yard.tiers.entries():
            if entry.state == "loading":
                entry.done.exception(20)
        sizes = dict(yard.source.sizes)
        assert yard.tiers.used == 2 * sum(sizes[digest] for digest in yard.loaded)
        yard.close()
        self.loop.close()


AnyOrder.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyOrder = AnyOrder.TestCase
