"""Many writers at once, in threads and in processes."""

from concurrent.futures import ThreadPoolExecutor

from tests.registry.samples import digest_of
from tests.registry.writers import processes, write_steadily
from turnout.registry import audit
from turnout.registry.adapters import show_adapter
from turnout.registry.database import Database

THREADS, PROCESSES, COUNT = 12, 4, 4


def test_sixteen_writers_lose_nothing_and_share_no_number(location: str, database: Database) -> None:
    beside = [
        processes.Process(target=write_steadily, args=(location, "default", THREADS + worker, COUNT))
        for worker in range(PROCESSES)
    ]
    for process in beside:
        process.start()
    with ThreadPoolExecutor(THREADS) as pool:
        told = list(pool.map(lambda worker: write_steadily(location, "default", worker, COUNT), range(THREADS)))
    for process in beside:
        process.join()
        assert process.exitcode == 0
    with database.read() as connection:
        adapter = show_adapter(connection, "default", "legal")
        assert list(audit.verify(connection)) == []
        # A push and a promotion for each version.
        assert audit.head(connection)[0] == 2 * len(adapter.versions)
    writers = range(THREADS + PROCESSES)
    numbers = {version.digest: version.number for version in adapter.versions}
    assert sorted(numbers.values()) == list(range(1, len(writers) * COUNT + 1))
    of_writers = [[numbers[digest_of(f"{worker} {i}")] for i in range(COUNT)] for worker in writers]
    assert of_writers[:THREADS] == told
    assert adapter.aliases == {f"of-{worker}": of_writers[worker][-1] for worker in writers}
