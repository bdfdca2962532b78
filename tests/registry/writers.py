"""Processes that write to a registry, beside the test's own."""

import multiprocessing
import random
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

from tests.registry.model import REFUSED, apply
from tests.registry.samples import new_version
from turnout.core.errors import TurnoutError
from turnout.registry.aliases import promote
from turnout.registry.database import open_database
from turnout.registry.versions import push

# Each process is forked from one that has imported everything already, and has no threads.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", __name__])

CONTENTS = "abcdefgh"


def write_steadily(location: str, tenant: str, worker: int, count: int) -> list[int]:
    """Push `count` versions of one adapter that others write to as well, pointing an alias of one's own at each."""
    numbers = []
    with closing(open_database(location)) as database:
        for i in range(count):
            with database.write(f"writer {worker}") as write:
                pushed = push(write, tenant, "legal", new_version(f"{worker} {i}"))
                numbers.append(promote(write, tenant, "legal", pushed.version.digest, f"of-{worker}", "mine").number)
    return numbers


def write_at_random(location: str, tenant: str, seed: int, out: Connection) -> None:
    """Do one operation after the other until killed; say each before it begins, and its answer once it is committed."""
    generator = random.Random(seed)
    with closing(open_database(location)) as database:
        while True:
            operation = _operation(generator)
            out.send(operation)
            try:
                with database.write("writer") as write:
                    answer = apply(write, tenant, operation)
            except TurnoutError:
                answer = REFUSED
            out.send(answer)


def _operation(generator: random.Random) -> list[Any]:
    name, alias = generator.choice(["legal", "sql"]), generator.choice(["production", "staging"])
    number = generator.randint(1, len(CONTENTS))
    operations: list[list[Any]] = [
        ["push", name, generator.choice(CONTENTS)],
        ["promote", name, number, alias],
        ["rollback", name, alias],
        ["delete", name, number],
        ["remove", name, alias],
        ["share", name, generator.random() < 0.5, []],
        ["drop", name],
    ]
    return generator.choices(operations, weights=[8, 8, 4, 4, 1, 1, 0.3])[0]
