"""A writer killed at any moment leaves whole changes only, and every one that it was told was made.

TURNOUT_CRASHES is how many are killed for each database.
"""

import os
import random
import time
from copy import deepcopy
from typing import Any

from tests.registry.model import REFUSED, Model, picture_of
from tests.registry.samples import digest_of
from tests.registry.writers import CONTENTS, processes, write_at_random
from turnout.registry import audit
from turnout.registry.adapters import list_adapters
from turnout.registry.database import Database, Write, open_database, revision
from turnout.registry.moves import read_moves

CRASHES = int(os.environ.get("TURNOUT_CRASHES", "15"))
DIGESTS = {digest_of(content): content for content in CONTENTS}
TENANT = "default"


class Counted:
    """The model, and how many changes there have been."""

    def __init__(self) -> None:
        self.model = Model()
        self.changes = 0

    def apply(self, operation: list[Any]) -> Any:
        before = self.model.picture()
        answer = self.model.apply(operation)
        self.changes += answer != REFUSED and self.model.picture() != before
        return answer

    def state(self) -> tuple[dict[str, Any], int]:
        return self.model.picture(), self.changes


def killed_at_random(location: str, seed: int) -> list[Any]:
    """What a writer said, operations and answers by turns, until it was killed."""
    generator = random.Random(seed)
    said: list[Any] = []
    into, out = processes.Pipe(duplex=False)
    process = processes.Process(target=write_at_random, args=(location, TENANT, seed, out))
    process.start()
    out.close()
    for _ in range(generator.randint(1, 30)):
        said.append(into.recv())
    # Anywhere within a write, which takes about this long.
    time.sleep(generator.random() * 0.008)
    process.kill()
    try:
        while True:
            said.append(into.recv())
    except EOFError:
        into.close()
    process.join()
    assert process.exitcode == -9
    return said


def found(write: Write, first_revision: int) -> tuple[dict[str, Any], int]:
    """The state as `Counted` has it, after a look at whether its parts fit each other."""
    assert list(audit.verify(write.connection)) == []
    adapters = list_adapters(write.connection, TENANT)
    for adapter in adapters:
        ends = {move.alias: move.after for move in read_moves(write.connection, adapter.id)}
        assert {alias: number for alias, number in ends.items() if number is not None} == adapter.aliases
    changes = revision(write.connection) - first_revision
    assert audit.head(write.connection)[0] == changes
    return picture_of(adapters, DIGESTS), changes


def test_a_killed_writer_leaves_whole_changes_only(location: str, database: Database) -> None:
    with database.read() as connection:
        first_revision = revision(connection)
    database.close()
    known = Counted()
    for seed in range(CRASHES):
        said = killed_at_random(location, seed)
        begun = said.pop() if len(said) % 2 else None
        for operation, answer in zip(said[::2], said[1::2], strict=True):
            assert known.apply(operation) == answer
        possible = [known]
        if begun is not None:
            possible.append(deepcopy(known))
            possible[1].apply(begun)
        reopened = open_database(location)
        # As a writer, which waits until a PostgreSQL server has finished what a killed client had sent.
        with reopened.write("checker") as write:
            state = found(write, first_revision)
        reopened.close()
        fitting = [candidate for candidate in possible if candidate.state() == state]
        assert fitting, (seed, begun, state, [candidate.state() for candidate in possible])
        known = fitting[0]
    assert known.changes > CRASHES
