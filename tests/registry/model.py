"""What the registry should do, in plain dictionaries: the oracle of the tests that try many operations."""

from dataclasses import dataclass, field
from typing import Any

from tests.registry.samples import new_version
from turnout.core.errors import TurnoutError
from turnout.registry.adapters import delete_adapter, set_visibility
from turnout.registry.aliases import promote, remove_alias, rollback
from turnout.registry.database import Write
from turnout.registry.versions import delete_version, push
from turnout.routing.snapshot import Adapter

REFUSED = "refused"


@dataclass
class ModelAdapter:
    live: bool = True
    public: bool = False
    shared_with: frozenset[str] = frozenset()
    numbers: dict[str, int] = field(default_factory=dict)
    """Content to number, deleted ones too."""
    versions: set[int] = field(default_factory=set)
    piles: dict[str, list[int]] = field(default_factory=dict)
    """An alias's numbers, the last one being where it is."""


class Model:
    """One tenant's adapters. An operation is a name and its arguments, so that it can be sent to another process."""

    def __init__(self) -> None:
        self.adapters: dict[str, ModelAdapter] = {}

    def apply(self, operation: list[Any]) -> Any:
        """Do it, and say what it answers: a number, None, or that it is refused."""
        kind, name, *arguments = operation
        if kind == "push":
            return self._push(name, *arguments)
        adapter = self.adapters.get(name)
        if adapter is None or not adapter.live:
            return REFUSED
        return getattr(self, f"_{kind}")(adapter, *arguments)

    def picture(self) -> dict[str, Any]:
        return {
            name: (
                max(adapter.numbers.values()),
                adapter.public,
                adapter.shared_with,
                {number: content for content, number in adapter.numbers.items() if number in adapter.versions},
                {alias: pile[-1] for alias, pile in adapter.piles.items()},
            )
            for name, adapter in self.adapters.items()
            if adapter.live
        }

    def _push(self, name: str, content: str) -> int:
        adapter = self.adapters.setdefault(name, ModelAdapter())
        adapter.live = True
        number = adapter.numbers.setdefault(content, len(adapter.numbers) + 1)
        adapter.versions.add(number)
        return number

    def _promote(self, adapter: ModelAdapter, number: int, alias: str) -> Any:
        if number not in adapter.versions:
            return REFUSED
        pile = adapter.piles.setdefault(alias, [])
        if pile[-1:] != [number]:
            pile.append(number)
        return number

    def _rollback(self, adapter: ModelAdapter, alias: str) -> Any:
        pile = adapter.piles.get(alias, [])
        for i in reversed(range(len(pile) - 1)):
            if pile[i] in adapter.versions and pile[i] != pile[-1]:
                del pile[i + 1 :]
                return pile[i]
        return REFUSED

    def _remove(self, adapter: ModelAdapter, alias: str) -> Any:
        return None if adapter.piles.pop(alias, None) else REFUSED

    def _delete(self, adapter: ModelAdapter, number: int) -> Any:
        if number not in adapter.versions or any(pile[-1] == number for pile in adapter.piles.values()):
            return REFUSED
        adapter.versions.remove(number)
        return number

    def _share(self, adapter: ModelAdapter, public: bool, others: list[str]) -> Any:
        if public and others:
            return REFUSED
        adapter.public, adapter.shared_with = public, frozenset(others)
        return None

    def _drop(self, adapter: ModelAdapter) -> None:
        adapter.live = adapter.public = False
        adapter.shared_with = frozenset()
        adapter.versions.clear()
        adapter.piles.clear()


def apply(write: Write, tenant: str, operation: list[Any]) -> Any:
    """Do to the registry what `Model.apply` does to the model; an error is raised and undoes the write."""
    kind, name, *arguments = operation
    match kind:
        case "push":
            return push(write, tenant, name, new_version(*arguments)).version.number
        case "promote":
            return promote(write, tenant, name, str(arguments[0]), arguments[1], "why").number
        case "rollback":
            return rollback(write, tenant, name, arguments[0], "why").number
        case "remove":
            return remove_alias(write, tenant, name, arguments[0], "why")
        case "delete":
            return delete_version(write, tenant, name, str(arguments[0]))
        case "share":
            return set_visibility(write, tenant, name, public=arguments[0], shared_with=arguments[1])
        case "drop":
            return delete_adapter(write, tenant, name)
    raise ValueError(kind)


def answer(write: Write, tenant: str, operation: list[Any]) -> Any:
    """What `Model.apply` answers, for an operation in a write of its own: a refused one has changed nothing."""
    try:
        return apply(write, tenant, operation)
    except TurnoutError as error:
        assert error.status in (400, 404, 409)
        return REFUSED


def picture_of(adapters: list[Adapter], contents: dict[str, str]) -> dict[str, Any]:
    """`Model.picture` of the registry's adapters; `contents`: digest to content."""
    return {
        adapter.name: (
            adapter.last_number,
            adapter.public,
            adapter.shared_with,
            {version.number: contents[version.digest] for version in adapter.versions},
            dict(adapter.aliases),
        )
        for adapter in adapters
    }
