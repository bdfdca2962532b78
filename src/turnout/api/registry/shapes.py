"""What the answers look like. They are made from the registry's records by the names of fields."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from turnout.registry.keys import SCOPES
from turnout.registry.records import Claims, Facts
from turnout.routing.snapshot import VersionSummary

Item = TypeVar("Item")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(at: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC."""
    time = _EPOCH + timedelta(microseconds=at)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _in_order(scopes: Iterable[str]) -> list[str]:
    return sorted(scopes, key=SCOPES.index)


def _sorted(names: Collection[str]) -> list[str]:
    return sorted(names)


def _number(version: VersionSummary | None) -> int | None:
    return None if version is None else version.number


Time = Annotated[int, PlainSerializer(iso, return_type=str)]
Scopes = Annotated[list[str], BeforeValidator(_in_order)]
Names = Annotated[list[str], BeforeValidator(_sorted)]


class Shape(BaseModel):
    """Made from a record."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class Listing(Shape, Generic[Item]):
    """All there are."""

    data: list[Item]


class Base(Shape):
    """The base model."""

    name: str
    model_revision: str
    tokenizer_revision: str


class Caller(Shape):
    """Whose key was sent."""

    prefix: str
    tenant: str | None
    scopes: Scopes


class Server(Shape):
    """What serves, and for whom."""

    version: str
    base: Base
    key: Caller


class File(Shape):
    """A file of a version: the digest of its bytes, and their number."""

    digest: str
    nbytes: int = Field(serialization_alias="bytes")


class Summary(Shape):
    """A version, in short."""

    number: int
    semantic_version: str | None
    digest: str
    model_revision: str
    created_at: Time


class Version(Summary):
    """A version."""

    files: dict[str, File]
    facts: Facts
    claims: Claims
    note: str
    parent: int | None
    signature: Mapping[str, Any] | None
    flags: tuple[str, ...]
    created_by: str


class Adapter(Shape):
    """An adapter, its versions in short; `latest` is its highest number."""

    tenant: str
    name: str
    public: bool
    shared_with: Names
    aliases: Mapping[str, int]
    latest: Annotated[int | None, BeforeValidator(_number)]
    versions: list[Summary]
    created_at: Time


class FullAdapter(Adapter):
    """An adapter, its versions in full."""

    versions: list[Version]  # type: ignore[assignment]


class Pushed(Shape):
    """What a push came to."""

    created: bool
    version: Version


class Deleted(Shape):
    """The number of a deleted version."""

    number: int


class Promotion(Shape):
    """A move of an alias, from a number to a number. `kind`: promote, rollback or remove."""

    alias: str
    kind: str
    before: int | None
    after: int | None
    reason: str
    requirements: tuple[str, ...]
    created_by: str
    created_at: Time


class Promoted(Promotion):
    """The move that put the alias where it is; `unchanged` if it was there already."""

    unchanged: bool


class Change(Shape):
    """What stands in one version and in the other."""

    before: Any
    after: Any


class Difference(Shape):
    """What differs, by name."""

    facts: dict[str, Change]
    claims: dict[str, Change]
    files: dict[str, Change]
    modules: dict[str, Change]


class Key(Shape):
    """A key, without its text."""

    prefix: str
    tenant: str | None
    name: str
    scopes: Scopes
    adapters: tuple[str, ...] = Field(validation_alias="patterns")
    default_adapter: str | None
    requests_per_minute: int | None = Field(validation_alias=AliasPath("limits", "requests_per_minute"))
    tokens_per_minute: int | None = Field(validation_alias=AliasPath("limits", "tokens_per_minute"))
    concurrent_requests: int | None = Field(validation_alias=AliasPath("limits", "concurrent_requests"))
    created_by: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None


class NewKey(Shape):
    """A new key, with its text, which is shown this once."""

    key: Key
    token: str


class Tenant(Shape):
    """A tenant. `signed_aliases` are for signed versions."""

    name: str
    created_at: Time
    signed_aliases: Names


class AuditEntry(Shape):
    """An entry of the audit. A tenant sees its own, numbered by themselves, without hashes."""

    sequence: int
    at: Time
    actor: str
    action: str
    tenant: str | None
    subject: str
    detail: Mapping[str, Any]
    hash: str


class Head(Shape):
    """Number and hash of the audit's last entry."""

    sequence: int
    hash: str


class Audit(Shape):
    """A stretch of the audit; its head for operators alone."""

    data: list[AuditEntry]
    head: Head | None


class AuditFault(Shape):
    """What is wrong at an entry."""

    sequence: int
    what: str


class AuditCheck(Shape):
    """Whether the audit is as it was written."""

    faults: list[AuditFault]
    head: Head


class Fault(Shape):
    """What is wrong, and with what."""

    subject: str
    what: str


class Verification(Shape):
    """How many versions were checked, and what is wrong."""

    checked: int
    faults: list[Fault]


class Collected(Shape):
    """What was, or would be, deleted, and its bytes."""

    deleted: list[str]
    nbytes: int = Field(serialization_alias="bytes")


class Uploaded(Shape):
    """Stored bytes."""

    digest: str
    nbytes: int = Field(serialization_alias="bytes")
