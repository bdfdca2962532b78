"""Loaded, hot, leased, pinned: who may go and who must stay."""

import numpy as np
import torch

from tests.support.states import state_of
from turnout.core.adapter import AdapterState, LoraModule, aligned
from turnout.core.identity import Digest
from turnout.engine.arena import Arena
from turnout.engine.residency import Residency, lay_out

BASE = Digest("sha256:base")
WIDTH = 64
SIZE = aligned(WIDTH) * 2


def adapter(name: str, value: float = 1.0) -> AdapterState:
    a, b = np.full((1, WIDTH), value, np.float32), np.full((WIDTH, 1), -value, np.float32)
    return state_of(name, BASE, "float32", [LoraModule(0, "v_proj", 1, 0.5, a, b)], untouched=6)


def residency(room: int) -> Residency:
    return Residency(Arena(SIZE * room, torch.float32, torch.device("cpu")), BASE, layers=1)


def use(store: Residency, digest: str) -> bool:
    store.lease(Digest(digest))
    if store.pin(Digest(digest)):
        return True
    store.end_lease(Digest(digest))
    return False


def stop_using(store: Residency, digest: str) -> None:
    store.unpin(Digest(digest))
    store.end_lease(Digest(digest))


def test_the_least_recently_used_goes_and_pinned_ones_stay() -> None:
    store = residency(room=2)
    for name in "abc":
        store.load(adapter(name))
    assert use(store, "a") and use(store, "b")
    assert not use(store, "c"), "both are pinned: no room"
    stop_using(store, "a")
    stop_using(store, "b")
    assert use(store, "a")
    assert use(store, "c"), "b is free to go"
    store.hot(Digest("a"))
    assert store.counts() == (3, 2, 2)
    store.check()


def test_hot_weights_are_the_adapters_own_after_eviction_and_return() -> None:
    store = residency(room=1)
    for name, value in (("a", 2.0), ("b", 3.0)):
        store.load(adapter(name, value))
    for name, value in (("a", 2.0), ("b", 3.0), ("a", 2.0)):
        assert use(store, name)
        table, start = store.hot(Digest(name))
        a = start + int(table.a_offsets[0, 2])
        b = start + int(table.b_offsets[0, 2])
        buffer = store._arena.buffer
        assert bool((buffer[a : a + WIDTH] == value).all()) and bool((buffer[b : b + WIDTH] == -value).all())
        stop_using(store, name)


def test_bfloat16_bits_arrive_as_they_are() -> None:
    store = Residency(Arena(SIZE, torch.bfloat16, torch.device("cpu")), BASE, layers=1)
    bits = np.array([[0x3F80, 0xBF80, 0x4049, 0x0001]], np.uint16)  # 1, -1, 3.140625, the smallest subnormal
    module = LoraModule(0, "q_proj", 1, 1.0, bits, bits.T.copy())
    store.load(state_of("a", BASE, "bfloat16", [module], untouched=6))
    assert use(store, "a")
    assert store._arena.buffer[:4].view(torch.uint16).tolist() == bits[0].tolist()


def test_unload_waits_for_the_last_lease_and_then_frees() -> None:
    store = residency(room=1)
    store.load(adapter("a"))
    assert use(store, "a")
    told: list[str] = []
    store.unload(Digest("a"), lambda: told.append("drained"))
    assert told == [] and store.counts() == (1, 1, 1)
    store.hot(Digest("a"))  # the running sequence still has its weights
    stop_using(store, "a")
    assert told == ["drained"] and store.counts() == (0, 0, 0)
    assert store._arena.used == 0
    store.unload(Digest("a"), lambda: told.append("again"))
    assert told == ["drained", "again"]


def test_a_digest_loaded_again_while_it_drains_stays() -> None:
    store = residency(room=1)
    store.load(adapter("a"))
    assert use(store, "a")
    told: list[str] = []
    store.unload(Digest("a"), lambda: told.append("drained"))
    store.load(adapter("a"))
    assert told == ["drained"], "who waits for the unload is not left waiting"
    stop_using(store, "a")
    assert use(store, "a")


def test_the_base_takes_no_room_and_is_always_hot() -> None:
    store = residency(room=0)
    assert use(store, BASE)
    table, _ = store.hot(BASE)
    assert table.size == 0 and not table.ranks.any()


def test_a_table_gives_each_module_its_own_rank() -> None:
    a, b = np.zeros((3, WIDTH), np.float32), np.zeros((2 * WIDTH, 3), np.float32)
    state = state_of("a", BASE, "float32", [LoraModule(1, "up_proj", 3, 2.0, a, b)], untouched=13)
    table = lay_out(state, layers=2)
    assert table.ranks.sum() == 3 and table.ranks[1, 5] == 3
    assert table.scales[1, 5] == 2.0
    assert table.size == aligned(a.size) + aligned(b.size)
