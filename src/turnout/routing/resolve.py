"""Which version a request means."""

from collections.abc import Callable
from dataclasses import dataclass

from turnout.core.errors import AdapterConflict, InvalidRequest, ModelNotFound
from turnout.core.identity import DEFAULT_TENANT, Route, VersionRef
from turnout.routing.selectors import check_selector, find_version
from turnout.routing.snapshot import Adapter, Snapshot, VersionSummary

PRODUCTION = "production"
"""The alias that a plain name means."""


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
class Caller:
    """For whom a route is made. `may_use`: which adapters' names are open to them, `owner/name` for others' adapters.

    `default` is the reference that stands in where a request names nothing.
    """

    tenant: str = DEFAULT_TENANT
    may_use: Callable[[str], bool] = lambda _: True
    default: str | None = None


ANYONE = Caller()
"""A caller of a server without keys."""


@dataclass(frozen=True, slots=True)
class _Named:
    param: str
    reason: str
    version: VersionRef


def resolve(ask: AdapterAsk, snapshot: Snapshot, caller: Caller = ANYONE) -> Route:
    """The one Route that `ask` means.

    A reference is a name, or `name@` and a selector: a number, a semantic version, `sha256:<prefix>` or an alias.
    A plain name means its alias `production`, and without one its highest number. The caller's own adapters come
    first; those of others, where they are public or shared, are named `owner/name`. Whole names are matched before
    anything is split off, so an adapter may itself be called `a@1` or `base:sql`. A `model` that means the base does
    not contradict an adapter named elsewhere, for the base is what the adapter sits on; any other two must mean the
    same version, however they spell it. Without any, the caller's default serves, and without that the base.

    Raises ModelNotFound, whose message repeats what the caller sent and no other name; AdapterConflict; and
    InvalidRequest for a digest prefix that is too short or fits several versions, and for an empty reference:
    it is more likely an adapter somebody forgot to fill in than a wish for the base.
    """
    named = [_named(reference, param, reason, snapshot, caller) for reference, param, reason in ask.references()]
    adapters = [each for each in named if not (each.param == "model" and each.version.is_base)]
    if not adapters and caller.default is not None:
        # A client library always sends a model; the base's name says no more than that somebody had to fill it in.
        return _route(_named(caller.default, "model", "default of the key", snapshot, caller), snapshot, caller)
    if not named:
        return _route(_Named("model", "base model by default", snapshot.base), snapshot, caller)
    first, *others = adapters or named
    for other in others:
        if other.version != first.version:
            raise AdapterConflict(
                f"{first.param} and {other.param} name two different adapters; name one, or the same in both",
                param=other.param,
            )
    return _route(first, snapshot, caller)


def not_found(ask: AdapterAsk, caller: Caller = ANYONE) -> ModelNotFound:
    """The error for an ask whose version has gone; word for word that for one which never was."""
    references = ask.references() or [(caller.default or "", "model", "")]
    reference, param, _ = references[0]
    return _unknown(reference, param)


def find_adapter(name: str, snapshot: Snapshot, caller: Caller) -> Adapter | None:
    """The adapter that this caller means by a whole name, if it may use it."""
    own = snapshot.adapters.get((caller.tenant, name))
    if own is not None:
        return own if caller.may_use(name) else None
    owner, slash, rest = name.partition("/")
    other = snapshot.adapters.get((owner, rest)) if slash else None
    return other if other is not None and other.visible_to(caller.tenant) and caller.may_use(name) else None


def plain_version(adapter: Adapter) -> VersionRef | None:
    """What the adapter's plain name means; None where that does not fit this base."""
    number = adapter.aliases.get(PRODUCTION)
    # Where it points at a version for another base, the highest one here would be a substitute.
    version = adapter.latest if number is None else adapter.version(number)
    return None if version is None else _ref(adapter, version)


def _unknown(reference: str, param: str) -> ModelNotFound:
    return ModelNotFound(f"the model {reference!r} does not exist", param=param)


def _route(named: _Named, snapshot: Snapshot, caller: Caller) -> Route:
    return Route(caller.tenant, named.version, snapshot.model_revision, snapshot.tokenizer_revision, named.reason)


def _named(reference: str, param: str, reason: str, snapshot: Snapshot, caller: Caller) -> _Named:
    if not reference:
        raise InvalidRequest(f"{param} is empty; give a name, or leave it out for the base model", param=param)
    found = _plain(reference, snapshot, caller)
    name, at, selector = reference.rpartition("@")
    if found is None and at:
        # Said of any name, known or not: what is refused here must not tell which names there are.
        check_selector(selector, param)
        found = _selected(name, selector, snapshot, caller, param)
    if found is None:
        raise _unknown(reference, param)
    version, how = found
    return _Named(param, f"{reason}{how}", version)


def _plain(name: str, snapshot: Snapshot, caller: Caller) -> tuple[VersionRef, str] | None:
    if name in snapshot.base_names:
        return snapshot.base, ""
    adapter = find_adapter(name, snapshot, caller)
    if adapter is None:
        return None
    version = plain_version(adapter)
    if version is None:
        return None
    return version, f", alias {PRODUCTION}" if PRODUCTION in adapter.aliases else ", latest version"


def _selected(
    name: str, selector: str, snapshot: Snapshot, caller: Caller, param: str
) -> tuple[VersionRef, str] | None:
    if name in snapshot.base_names:
        prefix = selector.startswith("sha256:") and snapshot.base.digest.startswith(selector)
        return (snapshot.base, "") if selector == "0" or prefix else None
    adapter = find_adapter(name, snapshot, caller)
    version = find_version(adapter, selector, param) if adapter is not None else None
    if adapter is None or version is None:
        return None
    return _ref(adapter, version), f", alias {selector}" if selector in adapter.aliases else ""


def _ref(adapter: Adapter, version: VersionSummary) -> VersionRef:
    return VersionRef(adapter.name, version.number, version.digest, adapter.tenant)
