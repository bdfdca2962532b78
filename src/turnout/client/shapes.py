"""What the server answers, as it stands in its JSON. Times are ISO 8601 in UTC; sizes are bytes."""

from typing import Any, NotRequired, TypedDict


class File(TypedDict):
    """One file of a version."""

    digest: str
    bytes: int


class Facts(TypedDict):
    """What the server measured when the version was pushed."""

    config: dict[str, Any]
    ranks: list[int]
    nbytes: int
    adapted: int
    untouched: int
    warnings: list[str]
    norms: dict[str, float]


class Claims(TypedDict):
    """What the pusher says of the version."""

    metrics: dict[str, float]
    dataset: str | None
    dataset_digest: str | None
    hyper_parameters: dict[str, Any]
    owner: str | None
    licence: str | None


class VersionSummary(TypedDict):
    """What a version is called, and which base it belongs to."""

    number: int
    semantic_version: str | None
    digest: str
    model_revision: str
    created_at: str


class Version(VersionSummary):
    """All that is known of a version."""

    files: dict[str, File]
    facts: Facts
    claims: Claims
    note: str
    parent: int | None
    signature: dict[str, Any] | None
    flags: list[str]
    created_by: str


class Adapter(TypedDict):
    """An adapter, with its versions in short."""

    tenant: str
    name: str
    public: bool
    shared_with: list[str]
    aliases: dict[str, int]
    latest: int | None
    versions: list[VersionSummary]
    created_at: str


class AdapterDetails(TypedDict):
    """An adapter, with all that is known of its versions."""

    tenant: str
    name: str
    public: bool
    shared_with: list[str]
    aliases: dict[str, int]
    latest: int | None
    versions: list[Version]
    created_at: str


class Pushed(TypedDict):
    """What a push gave; `created` is False for weights that were a version already."""

    created: bool
    version: Version


class Promotion(TypedDict):
    """One move of an alias between numbers, None being nowhere; `unchanged` where there was nothing to move."""

    alias: str
    kind: str
    before: int | None
    after: int | None
    reason: str
    requirements: list[str]
    created_by: str
    created_at: str
    unchanged: NotRequired[bool]


class Change(TypedDict):
    """What stands in one version and in the other."""

    before: Any
    after: Any


class Difference(TypedDict):
    """All that differs between two versions, by name."""

    facts: dict[str, Change]
    claims: dict[str, Change]
    files: dict[str, Change]
    modules: dict[str, Change]


class Key(TypedDict):
    """Whose a key is and what it may do; never its text. Without a tenant it is an operator's.

    `adapters` are patterns of names; limits are None for as much as the server can do.
    """

    prefix: str
    tenant: str | None
    name: str
    scopes: list[str]
    adapters: list[str]
    default_adapter: str | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_requests: int | None
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class CreatedKey(TypedDict):
    """A new key, and its text, which cannot be had again."""

    key: Key
    token: str


class Tenant(TypedDict):
    """A tenant, and the aliases that only signed versions of its adapters may have."""

    name: str
    created_at: str
    signed_aliases: list[str]


class AuditHead(TypedDict):
    """The last entry's number and hash, which stand for the whole log."""

    sequence: int
    hash: str


class AuditEntry(TypedDict):
    """Who did what to what, and when."""

    sequence: int
    at: str
    actor: str
    action: str
    tenant: str | None
    subject: str
    detail: dict[str, Any]
    hash: str


class AuditLog(TypedDict):
    """A part of the audit; a tenant's admin is told no head."""

    data: list[AuditEntry]
    head: AuditHead | None


class AuditFault(TypedDict):
    """What is wrong with the audit, at which entry."""

    sequence: int
    what: str


class AuditCheck(TypedDict):
    """What checking the audit's chain found."""

    faults: list[AuditFault]
    head: AuditHead


class LineageRecord(TypedDict):
    """Which exact weights gave one answer."""

    request_id: str
    at: str
    tenant: str
    key_prefix: str | None
    owner: str | None
    adapter: str
    number: int
    digest: str
    model_revision: str
    tokenizer_revision: str
    reason: str
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    timings: dict[str, float]
    prompt: str | None


class Fault(TypedDict):
    """What is wrong with what."""

    subject: str
    what: str


class Check(TypedDict):
    """How many versions were checked, and what was found."""

    checked: int
    faults: list[Fault]


class Swept(TypedDict):
    """Files that were deleted, or would be, and their bytes together."""

    deleted: list[str]
    bytes: int


class Base(TypedDict):
    """The base model that is served."""

    name: str
    model_revision: str
    tokenizer_revision: str


class KeyInUse(TypedDict):
    """The key that asked."""

    prefix: str
    tenant: str | None
    scopes: list[str]


class Server(TypedDict):
    """The server, its base, and who it takes you for."""

    version: str
    base: Base
    key: KeyInUse
