"""Operations in any order do to the registry what they do to a plain model of it."""

import uuid
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.registry.model import REFUSED, Model, answer, picture_of
from tests.registry.samples import digest_of
from turnout.registry import audit
from turnout.registry.adapters import list_adapters
from turnout.registry.database import Database, revision
from turnout.registry.tenants import create_tenant

NAMES = st.sampled_from(["legal", "sql"])
CONTENTS = st.sampled_from("abcde")
NUMBERS = st.integers(1, 5)
ALIASES = st.sampled_from(["production", "staging"])
DIGESTS = {digest_of(content): content for content in "abcde"}


class Operations(RuleBasedStateMachine):
    """Each run has a tenant of its own in the same database."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.tenant = f"run-{uuid.uuid4().hex}"
        self.model = Model()
        with database.write("tester") as write:
            create_tenant(write, self.tenant)

    def try_both(self, *operation: Any) -> None:
        with self.database.read() as connection:
            before = revision(connection), audit.head(connection)[0]
        pictured = self.model.picture()
        expected = self.model.apply(list(operation))
        with self.database.write("tester") as write:
            assert answer(write, self.tenant, list(operation)) == expected
        with self.database.read() as connection:
            after = revision(connection), audit.head(connection)[0]
        changes = 0 if expected == REFUSED or self.model.picture() == pictured else 1
        assert after == (before[0] + changes, before[1] + changes)

    @rule(name=NAMES, content=CONTENTS)
    def push(self, name: str, content: str) -> None:
        self.try_both("push", name, content)

    @rule(name=NAMES, number=NUMBERS, alias=ALIASES)
    def promote(self, name: str, number: int, alias: str) -> None:
        self.try_both("promote", name, number, alias)

    @rule(name=NAMES, alias=ALIASES)
    def rollback(self, name: str, alias: str) -> None:
        self.try_both("rollback", name, alias)

    @rule(name=NAMES, alias=ALIASES)
    def remove(self, name: str, alias: str) -> None:
        self.try_both("remove", name, alias)

    @rule(name=NAMES, number=NUMBERS)
    def delete(self, name: str, number: int) -> None:
        self.try_both("delete", name, number)

    @rule(name=NAMES, public=st.booleans(), others=st.sampled_from([[], ["default"]]))
    def share(self, name: str, public: bool, others: list[str]) -> None:
        self.try_both("share", name, public, others)

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        self.try_both("drop", name)

    @invariant()
    def they_look_alike(self) -> None:
        with self.database.read() as connection:
            adapters = list_adapters(connection, self.tenant)
        assert picture_of(adapters, DIGESTS) == self.model.picture()


def test_any_order(shared: Database) -> None:
    examples = 25 if shared.engine.name == "sqlite" else 8
    run_state_machine_as_test(
        lambda: Operations(shared),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
