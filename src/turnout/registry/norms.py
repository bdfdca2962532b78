"""Whether a version changes the base far more, or far less, than those before it: a flag for people, not a refusal."""

import math
from collections.abc import Mapping

from sqlalchemy import Connection, select

from turnout.registry.tables import adapters, versions

FAR = 4.0
"""A total norm this many times outside the range of earlier ones is worth a look."""

ENOUGH = 3
"""Versions that make a range of a tenant's."""


def unusual(connection: Connection, tenant: str, name: str, norms: Mapping[str, float]) -> tuple[str, ...]:
    """Sentences that say how the norms fall out of the adapter's own history or, where it has none, the tenant's."""
    facts = (
        select(adapters.c.name, versions.c.facts)
        .join(versions, versions.c.adapter_id == adapters.c.id)
        .where(adapters.c.tenant == tenant, versions.c.deleted_at.is_(None))
    )
    totals = [(row.name, _total(row.facts["norms"])) for row in connection.execute(facts)]
    own = [total for adapter, total in totals if adapter == name]
    if own:
        return _compared(norms, own, "this adapter's earlier versions")
    if len(totals) >= ENOUGH:
        return _compared(norms, [total for _, total in totals], f"the adapters of tenant {tenant}")
    return ()


def _compared(norms: Mapping[str, float], others: list[float], whose: str) -> tuple[str, ...]:
    total, least, most = _total(norms), min(others), max(others)
    if total > FAR * most:
        return (f"the update's norm {total:.3g} is far above the {most:.3g} that {whose} have at most",)
    if total < least / FAR:
        return (f"the update's norm {total:.3g} is far below the {least:.3g} that {whose} have at least",)
    return ()


def _total(norms: Mapping[str, float]) -> float:
    return math.sqrt(math.fsum(value * value for value in norms.values()))
