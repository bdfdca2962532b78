"""A version as a row, and back."""

from dataclasses import fields
from typing import Any

from sqlalchemy import Row

from turnout.core.identity import Digest
from turnout.registry.records import Claims, Facts, NewVersion, StoredFile, Version


def version_values(new: NewVersion) -> dict[str, Any]:
    """The columns that say what `new` says."""
    values = _plain(new)
    values["files"] = {name: [file.digest, file.nbytes] for name, file in new.files.items()}
    values["facts"] = _plain(new.facts)
    values["claims"] = _plain(new.claims)
    values["flags"] = list(new.flags)
    return values


def version_from(row: Row[Any]) -> Version:
    """The version that a row of `versions` holds."""
    return Version(
        digest=Digest(row.digest),
        model_revision=Digest(row.model_revision),
        files={name: StoredFile(Digest(digest), nbytes) for name, (digest, nbytes) in row.files.items()},
        facts=Facts(**row.facts | {"ranks": tuple(row.facts["ranks"]), "warnings": tuple(row.facts["warnings"])}),
        claims=Claims(**row.claims),
        note=row.note,
        parent=row.parent,
        semantic_version=row.semantic_version,
        signature=row.signature,
        flags=tuple(row.flags),
        number=row.number,
        created_by=row.created_by,
        created_at=row.created_at,
    )


def _plain(record: NewVersion | Facts | Claims) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
