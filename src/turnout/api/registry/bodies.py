"""What clients send. What is not understood is refused."""

from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, Field

from turnout.api import body
from turnout.api.schemas import Strict
from turnout.core.errors import InvalidRequest
from turnout.core.identity import parse_digest

MAX_FILES = 64
MAX_DEPTH = 32
MAX_TEXT = 4096

Model = TypeVar("Model", bound=BaseModel)


def _shallow(value: dict[str, Any], depth: int = MAX_DEPTH) -> dict[str, Any]:
    """`value`, if it can be shown again: what is nested without end cannot."""
    level: list[Any] = [value]
    while level:
        if depth == 0:
            raise ValueError(f"is nested more than {MAX_DEPTH} deep")
        inner = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
        depth -= 1
    return value


Text = Annotated[str, Field(max_length=MAX_TEXT)]
Digest = Annotated[str, AfterValidator(parse_digest)]
Object = Annotated[dict[str, Any], AfterValidator(_shallow)]


class File(Strict):
    """A file of a version, which has been uploaded."""

    digest: Digest
    nbytes: int = Field(alias="bytes", ge=0)


class Push(Strict):
    """A version to be made: its files by name, and what is said of it."""

    files: dict[str, File] = Field(min_length=1, max_length=MAX_FILES)
    semantic_version: Text | None = None
    parent: int | None = Field(None, ge=1, lt=1 << 31)
    metrics: dict[str, float] = Field(default_factory=dict)
    dataset: Text | None = None
    dataset_digest: Text | None = None
    hyper_parameters: Object = Field(default_factory=dict)
    owner: Text | None = None
    licence: Text | None = None
    note: Text = ""
    signature: Object | None = None


class Visibility(Strict):
    """Who sees an adapter besides its owner."""

    public: bool = False
    shared_with: list[str] = Field([], max_length=1000)


class Promote(Strict):
    """Where to point an alias, why, and what that takes, such as `f1>=0.9`."""

    version: str
    reason: Text = ""
    require: list[Text] = Field([], max_length=64)


class Rollback(Strict):
    """Why."""

    reason: Text = ""


class NewKey(Strict):
    """A key to be made. `tenant` null makes an operator's; without `adapters` it has its maker's patterns."""

    name: str = "unnamed"
    tenant: str | None = None
    scopes: list[str]
    adapters: list[str] | None = None
    default_adapter: str | None = None
    expires: str | None = Field(None, description="A span such as `90d`, or a time such as `2027-01-01T00:00:00Z`.")
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


class NewTenant(Strict):
    """A tenant to be made."""

    name: str


class SignedAliases(Strict):
    """The aliases that are for signed versions."""

    aliases: list[str] = Field(max_length=1000)


class Collect(Strict):
    """What to take for garbage: unused bytes that nobody has put for so long."""

    older_than: str = "1h"
    dry_run: bool = False


async def read_optional(request: Request, model: type[Model]) -> Model:
    """The body as `model`, which may be left out altogether. Raises what `body.read` raises."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return model()
    return await body.read(request, model)


def check_addressable(name: str) -> None:
    """Raise InvalidRequest for an adapter's name that an address could not tell from what stands behind names."""
    taken = {"versions", "aliases", "history", "diff", "visibility"}.intersection(name.split("/")[1:])
    if taken:
        raise InvalidRequest(
            f"the adapter's name has the part {min(taken)!r} behind a slash, which addresses give a meaning; "
            "choose another",
            param="name",
        )
