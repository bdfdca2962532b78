"""Who has brought which bytes: what a key may push, and what is too new to be collected as garbage.

The store files bytes by digest, whoever brought them. To know a digest is not to have its bytes, so a key may make a
version only of what it has uploaded itself, or of files that versions in its reach have already.
"""

from collections.abc import Callable

from sqlalchemy import Connection, delete, insert, select

from turnout.core.identity import Digest
from turnout.registry.database import Write
from turnout.registry.tables import adapters, uploads, versions


def record(write: Write, digest: Digest) -> None:
    """Keep that the writer, a key, has uploaded these bytes now."""
    same = (uploads.c.key_prefix == write.actor) & (uploads.c.digest == digest)
    write.connection.execute(delete(uploads).where(same))
    write.connection.execute(insert(uploads).values(key_prefix=write.actor, digest=digest, uploaded_at=write.now))


def held(connection: Connection, key_prefix: str, tenant: str, may_use: Callable[[str], bool]) -> set[Digest]:
    """The digests whose bytes the key has uploaded, or finds in live versions of the tenant's adapters it may use."""
    uploaded = connection.execute(select(uploads.c.digest).where(uploads.c.key_prefix == key_prefix)).scalars()
    kept = connection.execute(
        select(adapters.c.name, versions.c.files)
        .join(adapters)
        .where(adapters.c.tenant == tenant, versions.c.deleted_at.is_(None))
    )
    of_versions = {Digest(digest) for name, files in kept if may_use(name) for digest, _ in files.values()}
    return of_versions | {Digest(digest) for digest in uploaded}


def recent(connection: Connection, since: int) -> set[Digest]:
    """The digests of what has been uploaded from this time on."""
    wanted = select(uploads.c.digest).where(uploads.c.uploaded_at >= since)
    return {Digest(digest) for digest in connection.execute(wanted).scalars()}


def forget(connection: Connection, before: int) -> None:
    """Drop what is known of uploads from before this time; whoever still means to push them uploads them again."""
    connection.execute(delete(uploads).where(uploads.c.uploaded_at < before))
