"""Operations in any order do to the registry what they do to a plain model of it."""

import uuid
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.registry.model import Model, answer, picture_of
from tests.registry.samples import digest_of
from turnout.registry import audit
from turnout.registry.adapters import list_adapters
from turnout.registry.database import Database, revision
from turnout.registry.tenants import create_tenant

CONTENTS = "abcde"
NAMES = st.sampled_from(["legal", "legal", "legal", "sql"])
NUMBERS = st.integers(1, len(CONTENTS))
ALIASES = st.sampled_from(["production", "production", "staging"])
DIGESTS = {digest_of(content): content for content in CONTENTS}

KINDS = {
    "promote": (5, st.tuples(NUMBERS, ALIASES)),
    "rollback": (4, st.tuples(ALIASES)),
    "push": (3, st.tuples(st.sampled_from(CONTENTS))),
    "delete": (2, st.tuples(NUMBERS)),
    "remove": (1, st.tuples(ALIASES)),
    "share": (1, st.tuples(st.booleans(), st.sampled_from([[], ["default"]]))),
    "drop": (1, st.tuples()),
}
OPERATIONS = st.sampled_from([kind for kind, (weight, _) in KINDS.items() for _ in range(weight)]).flatmap(
    lambda kind: st.tuples(st.just(kind), NAMES, KINDS[kind][1])
)


class Operations(RuleBasedStateMachine):
    """Each run has a tenant of its own in the same database."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.tenant = f"run-{uuid.uuid4().hex}"
        self.model = Model()
        with database.write("tester") as write:
            create_tenant(write, self.tenant)
            for content in CONTENTS[:3]:
                assert answer(write, self.tenant, ["push", "legal", content]) == self.model.apply(
                    ["push", "legal", content]
                )
        with database.read() as connection:
            self.counts = revision(connection), audit.head(connection)[0]

    @rule(operation=OPERATIONS)
    def do(self, operation: tuple[str, str, tuple[Any, ...]]) -> None:
        kind, name, arguments = operation
        pictured = self.model.picture()
        expected = self.model.apply([kind, name, *arguments])
        with self.database.write("tester") as write:
            assert answer(write, self.tenant, [kind, name, *arguments]) == expected
        changes = self.model.picture() != pictured
        with self.database.read() as connection:
            adapters = list_adapters(connection, self.tenant)
            counts = revision(connection), audit.head(connection)[0]
        assert picture_of(adapters, DIGESTS) == self.model.picture()
        assert counts == (self.counts[0] + changes, self.counts[1] + changes)
        self.counts = counts


def test_any_order(shared: Database) -> None:
    examples = 30 if shared.engine.name == "sqlite" else 6
    run_state_machine_as_test(
        lambda: Operations(shared),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
