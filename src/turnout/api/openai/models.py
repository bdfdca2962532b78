"""GET /v1/models: the base, and the adapters that the caller may use."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from turnout.api.auth import Check
from turnout.core.engine import EngineInfo
from turnout.core.errors import ModelNotFound
from turnout.core.identity import VersionRef
from turnout.registry.directory import Directory
from turnout.registry.keys import Key
from turnout.routing.resolve import find_adapter, plain_version
from turnout.routing.snapshot import Adapter, Snapshot
from turnout.serving.generate import caller_of


def router(directory: Directory, info: EngineInfo, created: int, caller: Check) -> APIRouter:
    """`created` is the base's: seconds since 1970 at the server's start."""
    routes = APIRouter(prefix="/v1", tags=["models"])

    def base_card(name: str, root: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "turnout",
            "root": root,
            "parent": None,
            "max_model_len": info.context_length,
            "digest": info.model_revision,
        }

    def adapter_card(name: str, adapter: Adapter, version: VersionRef, base: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": adapter.created_at // 1_000_000,
            "owned_by": adapter.tenant,
            "root": base,
            "parent": base,
            "max_model_len": info.context_length,
            "digest": version.digest,
            "number": version.number,
            "aliases": dict(adapter.aliases),
        }

    @routes.get("/models")
    async def models(key: Annotated[Key, Depends(caller)]) -> dict[str, Any]:
        """All that this caller may name as `model`."""
        snapshot = directory.snapshot()
        base = snapshot.base.name
        cards = [base_card(name, base) for name in sorted(snapshot.base_names)]
        for name, adapter in sorted(_usable(snapshot, key)):
            version = plain_version(adapter)
            if version is not None:
                cards.append(adapter_card(name, adapter, version, base))
        return {"object": "list", "data": cards}

    @routes.get("/models/{model:path}")
    async def one_model(model: str, key: Annotated[Key, Depends(caller)]) -> dict[str, Any]:
        """One of them, by its whole name."""
        snapshot = directory.snapshot()
        if model in snapshot.base_names:
            return base_card(model, snapshot.base.name)
        adapter = find_adapter(model, snapshot, caller_of(key))
        version = plain_version(adapter) if adapter is not None else None
        if adapter is None or version is None:
            raise ModelNotFound(f"the model '{model}' does not exist", param="model")
        return adapter_card(model, adapter, version, snapshot.base.name)

    return routes


def _usable(snapshot: Snapshot, key: Key) -> Iterator[tuple[str, Adapter]]:
    """Every adapter that this caller can route to, by the name that means it."""
    caller = caller_of(key)
    for (owner, name), adapter in snapshot.adapters.items():
        called = name if owner == caller.tenant else f"{owner}/{name}"
        # One's own adapter may be called like another's with its owner in front, and then hides that.
        if find_adapter(called, snapshot, caller) is adapter:
            yield called, adapter
