"""All that routes depend on, at one moment, or what of it has changed since another."""

from dataclasses import dataclass

from sqlalchemy import Connection

from turnout.registry.adapters import changed_adapters
from turnout.registry.database import revision
from turnout.routing.snapshot import Adapter


@dataclass(frozen=True, slots=True)
class Picture:
    """As of `revision`: adapters with their live versions, aliases and shares; and tenant and name of deleted ones."""

    revision: int
    adapters: tuple[Adapter, ...]
    gone: tuple[tuple[str, str], ...]


def read_picture(connection: Connection, since: int = 0) -> Picture:
    """What has changed after revision `since`, as this connection sees it."""
    changed, gone = changed_adapters(connection, since)
    return Picture(revision(connection), tuple(changed), tuple(gone))
