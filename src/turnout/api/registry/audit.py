"""Reading the audit."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from sqlalchemy import Connection

from turnout.api.auth import Gate
from turnout.api.registry import shapes
from turnout.api.registry.reach import EVERYTHING, Sight, sight
from turnout.core.errors import Forbidden
from turnout.registry import audit
from turnout.registry.directory import Directory

MAX_ENTRIES = 10_000


def router(directory: Directory, gate: Gate) -> APIRouter:
    """`/audit` and `/audit/verify`."""
    routes = APIRouter(prefix="/audit", tags=["audit"])
    admin = Depends(sight(directory, gate, "admin"))

    @routes.get("", response_model=shapes.Audit)
    def read(
        caller: Annotated[Sight, admin],
        after: Annotated[int, Query(ge=0, lt=1 << 63, description="The last entry that is known already.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 1000,
    ) -> Any:
        """Read the audit in its order. A tenant's key reads what concerns the tenant, which is numbered by itself."""
        if EVERYTHING not in caller.key.patterns:
            raise Forbidden("this key is for some adapters and the audit is about all; use a key without patterns")
        with directory.database.read() as connection:
            if caller.key.tenant is not None:
                own = audit.own_entries(connection, caller.key.tenant, after=after, limit=limit)
                return {"data": own, "head": None}
            found = audit.entries(connection, tenant=caller.tenant, after=after, limit=limit)
            return {"data": found, "head": _head(connection)}

    @routes.get("/verify", response_model=shapes.AuditCheck, dependencies=[Depends(gate.operator)])
    def verify() -> Any:
        """Check that every entry is as it was written, none missing."""
        with directory.database.read() as connection:
            return {"faults": list(audit.verify(connection)), "head": _head(connection)}

    return routes


def _head(connection: Connection) -> shapes.Head:
    sequence, digest = audit.head(connection)
    return shapes.Head(sequence=sequence, hash=digest)
