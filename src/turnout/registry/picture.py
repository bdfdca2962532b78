"""All that routes depend on, at one moment."""

from dataclasses import dataclass

from sqlalchemy import Connection

from turnout.registry.adapters import list_adapters
from turnout.registry.database import revision
from turnout.registry.records import Adapter


@dataclass(frozen=True, slots=True)
class Picture:
    """Every live adapter with its live versions, aliases and shares, by tenant and name, as of `revision`."""

    revision: int
    adapters: tuple[Adapter, ...]


def read_picture(connection: Connection) -> Picture:
    """The picture that this connection sees."""
    return Picture(revision(connection), tuple(list_adapters(connection)))
