"""The moves of aliases: every promotion, rollback and removal, and where an alias goes back to."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, insert, select

from turnout.registry.database import Write
from turnout.registry.tables import promotions

Kind = Literal["promote", "rollback", "remove"]


@dataclass(frozen=True, slots=True)
class Promotion:
    """One move of an alias, from a number to a number, None being nowhere; what it required of the version's metrics;
    who made it, when (microseconds since 1970) and why.
    """

    alias: str
    kind: Kind
    before: int | None
    after: int | None
    reason: str
    requirements: tuple[str, ...]
    created_by: str
    created_at: int


def record_move(
    write: Write,
    adapter_id: int,
    alias: str,
    kind: Kind,
    before: int | None,
    after: int | None,
    reason: str,
    requirements: Sequence[str] = (),
) -> None:
    """Put a move on record."""
    write.connection.execute(
        insert(promotions).values(
            adapter_id=adapter_id,
            alias=alias,
            kind=kind,
            from_number=before,
            to_number=after,
            reason=reason,
            requirements=list(requirements),
            created_by=write.actor,
            created_at=write.now,
        )
    )


def read_moves(connection: Connection, adapter_id: int) -> list[Promotion]:
    """All moves of an adapter's aliases, the oldest first."""
    found = connection.execute(
        select(promotions).where(promotions.c.adapter_id == adapter_id).order_by(promotions.c.id)
    )
    return [
        Promotion(
            alias=row.alias,
            kind=row.kind,
            before=row.from_number,
            after=row.to_number,
            reason=row.reason,
            requirements=tuple(row.requirements),
            created_by=row.created_by,
            created_at=row.created_at,
        )
        for row in found
    ]


def number_before(moves: Iterable[Promotion], live: Collection[int]) -> int | None:
    """Where an alias with these moves, the oldest first, goes back to: where it was before, among what is `live`.

    Promotions pile up numbers, a rollback takes them off down to the one it went to, and a removal takes all. So
    rollbacks in a row go further back each, and never to what was rolled back from.
    """
    pile: list[int] = []
    for move in moves:
        if move.after is None:
            pile.clear()
        elif move.kind == "promote":
            pile.append(move.after)
        else:
            pile.pop()
            while pile[-1] != move.after:
                pile.pop()
    current = pile.pop()
    return next((number for number in reversed(pile) if number in live and number != current), None)
