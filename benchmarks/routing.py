"""What a route costs with many adapters registered, and what a change of the registry costs a running server.

    python -m benchmarks.routing [--adapters 10000] [--versions 3]

Fills a registry (SQLite in a temporary folder) with adapters of as many versions each, opens it as a server does, and
times `resolve` for every way to name one, and a change from its commit to the new routes.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import insert

from turnout.core.errors import ModelNotFound
from turnout.core.identity import Digest, VersionRef
from turnout.registry.aliases import promote
from turnout.registry.database import Database, open_database
from turnout.registry.directory import Directory
from turnout.registry.records import Facts, NewVersion
from turnout.registry.rows import version_values
from turnout.registry.tables import adapters, aliases, versions
from turnout.routing.resolve import AdapterAsk, resolve

MODEL, TOKENIZER = Digest("sha256:" + "f" * 64), Digest("sha256:" + "e" * 64)
ROUNDS = 20_000


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapters", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, closing(open_database(Path(folder) / "registry.db")) as database:
        _fill(database, options.adapters, options.versions)
        base = VersionRef("base", 0, MODEL)
        began = time.perf_counter()
        with closing(Directory(database, base, frozenset({"base"}), TOKENIZER)) as directory:
            print(f"{options.adapters} adapters with {options.versions} versions each")
            print(f"  opened in {time.perf_counter() - began:.2f} s")
            _routes(directory, options.adapters)
            print(f"  a promotion, to the new route:  {_change(directory) * 1e3:.1f} ms")


def _fill(database: Database, count: int, each: int) -> None:
    with database.write("benchmark") as write:
        rows = [
            {
                "tenant": "default",
                "name": f"adapter-{i}",
                "public": False,
                "last_number": each,
                "created_at": write.now,
                "revision": 2,
            }
            for i in range(count)
        ]
        write.connection.execute(insert(adapters), [{"id": i + 1, **row} for i, row in enumerate(rows)])
        facts = Facts(config={}, ranks=(8,), nbytes=1, adapted=1, untouched=0)
        made = []
        for i in range(count):
            for number in range(1, each + 1):
                digest = Digest(f"sha256:{i * each + number:064x}")
                new = NewVersion(digest=digest, model_revision=MODEL, files={}, facts=facts)
                values = version_values(new) | {"created_by": "benchmark", "created_at": write.now}
                made.append({"adapter_id": i + 1, "number": number, **values})
        write.connection.execute(insert(versions), made)
        pointed = [{"adapter_id": i + 1, "alias": "production", "number": 1} for i in range(count)]
        write.connection.execute(insert(aliases), pointed)
        write.changed()


def _routes(directory: Directory, count: int) -> None:
    for words, form in (
        ("plain name", "adapter-{i}"),
        ("name@number", "adapter-{i}@2"),
        ("name@alias", "adapter-{i}@production"),
        ("name@sha256:<prefix>", "adapter-{i}@sha256:0000"),
        ("unknown name", "nothing-{i}"),
    ):
        references = [form.format(i=i * 7919 % count) for i in range(ROUNDS)]
        print(f"  resolve, {words + ':':22} {_median(directory, references) * 1e6:.1f} µs")


def _median(directory: Directory, references: list[str]) -> float:
    times = []
    for reference in references:
        ask = AdapterAsk(model=reference)
        began = time.perf_counter()
        with suppress(ModelNotFound):
            resolve(ask, directory.snapshot())
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _change(directory: Directory) -> float:
    times = []
    for number in ("2", "1") * 5:
        began = time.perf_counter()
        with directory.write("benchmark") as write:
            promote(write, "default", "adapter-5", number, "production", "")
        assert resolve(AdapterAsk(model="adapter-5"), directory.snapshot()).version.number == int(number)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
