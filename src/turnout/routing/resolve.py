"""Which version a request means."""

import re
from dataclasses import dataclass

from turnout.core.errors import AdapterConflict, InvalidRequest, ModelNotFound
from turnout.core.identity import Route, VersionRef
from turnout.routing.snapshot import Snapshot

MIN_DIGEST_DIGITS = 4

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{1,64})")


@dataclass(frozen=True, slots=True)
class AdapterAsk:
    """The three places where a request may name what serves it; None where it does not.

    `model`: the body's `model`; `header`: X-Adapter-ID; `field`: the body's `adapter_id`.
    """

    model: str | None = None
    header: str | None = None
    field: str | None = None

    def references(self) -> list[tuple[str, str, str]]:
        """What is named, with the parameter that names it and the reason it gives, the more specific places first."""
        places = (
            (self.header, "X-Adapter-ID", "X-Adapter-ID header"),
            (self.field, "adapter_id", "adapter_id field"),
            (self.model, "model", "model field"),
        )
        return [(reference, param, reason) for reference, param, reason in places if reference is not None]


@dataclass(frozen=True, slots=True)
class _Named:
    param: str
    reason: str
    version: VersionRef


def resolve(ask: AdapterAsk, snapshot: Snapshot, *, tenant: str = "default") -> Route:
    """The one Route that `ask` means.

    A reference is a name, `name@number` or `name@sha256:<prefix>`. Whole names are matched before anything is
    split off, so an adapter may itself be called `a@1` or `base:sql`. A `model` that means the base does not
    contradict an adapter named elsewhere, for the base is what the adapter sits on; any other two must mean the
    same version, however they spell it. Without any, the base serves.

    Raises ModelNotFound, whose message repeats what the caller sent and no other name; AdapterConflict; and
    InvalidRequest for a digest prefix that is too short or fits several versions, and for an empty reference:
    it is more likely an adapter somebody forgot to fill in than a wish for the base.
    """
    named = [_Named(param, reason, _find(reference, snapshot, param)) for reference, param, reason in ask.references()]
    if not named:
        return _route(snapshot.base, snapshot, tenant, "base model by default")
    first, *others = [n for n in named if not (n.param == "model" and n.version.is_base)] or named
    for other in others:
        if other.version != first.version:
            raise AdapterConflict(
                f"{first.param} and {other.param} name two different adapters; name one, or the same in both",
                param=other.param,
            )
    return _route(first.version, snapshot, tenant, first.reason)


def not_found(ask: AdapterAsk) -> ModelNotFound:
    """The error for an ask whose version has gone; word for word that for one which never was."""
    reference, param, _ = ask.references()[0]
    return _unknown(reference, param)


def _unknown(reference: str, param: str) -> ModelNotFound:
    return ModelNotFound(f"the model {reference!r} does not exist", param=param)


def _route(version: VersionRef, snapshot: Snapshot, tenant: str, reason: str) -> Route:
    return Route(tenant, version, snapshot.model_revision, snapshot.tokenizer_revision, reason)


def _find(reference: str, snapshot: Snapshot, param: str) -> VersionRef:
    if not reference:
        raise InvalidRequest(f"{param} is empty; give a name, or leave it out for the base model", param=param)
    versions = _versions(reference, snapshot)
    if versions:
        return versions[-1]
    name, at, selector = reference.rpartition("@")
    chosen = _select(_versions(name, snapshot), selector, param) if at else None
    if chosen is None:
        raise _unknown(reference, param)
    return chosen


def _versions(name: str, snapshot: Snapshot) -> tuple[VersionRef, ...]:
    return (snapshot.base,) if name in snapshot.base_names else snapshot.adapters.get(name, ())


def _select(versions: tuple[VersionRef, ...], selector: str, param: str) -> VersionRef | None:
    if _NUMBER.fullmatch(selector):
        return next((version for version in versions if version.number == int(selector)), None)
    digits = _DIGEST.fullmatch(selector)
    if digits is None:
        return None
    # Said of any name, known or not: what is refused here must not tell which names there are.
    if len(digits[1]) < MIN_DIGEST_DIGITS:
        raise InvalidRequest(f"a digest prefix has at least {MIN_DIGEST_DIGITS} hexadecimal digits", param=param)
    fitting = [version for version in versions if version.digest.startswith(selector)]
    if len(fitting) > 1:
        raise InvalidRequest(f"'{selector}' fits more than one version; give more digits", param=param)
    return fitting[0] if fitting else None
