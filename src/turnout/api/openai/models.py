"""GET /v1/models: the base and all adapters."""

from typing import Any

from fastapi import APIRouter, Depends

from turnout.api.auth import Check
from turnout.core.engine import EngineInfo
from turnout.core.errors import ModelNotFound
from turnout.registry.catalog import Catalog, Version


def router(catalog: Catalog, info: EngineInfo, created: int, caller: Check) -> APIRouter:
    """`created` is the base's: seconds since 1970 at the server's start."""
    routes = APIRouter(prefix="/v1", tags=["models"], dependencies=[Depends(caller)])

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        """All that may be named as `model`."""
        snapshot = catalog.snapshot()
        bases = [_base_card(name, snapshot.base.name, info, created) for name in sorted(snapshot.base_names)]
        adapters = [_adapter_card(version, snapshot.base.name, info) for version in catalog.listing()]
        return {"object": "list", "data": bases + adapters}

    @routes.get("/models/{model:path}")
    async def one_model(model: str) -> dict[str, Any]:
        """One of them, by its whole name."""
        snapshot = catalog.snapshot()
        if model in snapshot.base_names:
            return _base_card(model, snapshot.base.name, info, created)
        for version in catalog.listing():
            if version.ref.name == model:
                return _adapter_card(version, snapshot.base.name, info)
        raise ModelNotFound(f"the model '{model}' does not exist", param="model")

    return routes


def _base_card(name: str, root: str, info: EngineInfo, created: int) -> dict[str, Any]:
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


def _adapter_card(version: Version, base: str, info: EngineInfo) -> dict[str, Any]:
    state = version.state
    return {
        "id": version.ref.name,
        "object": "model",
        "created": version.created,
        "owned_by": "turnout",
        "root": version.path,
        "parent": base,
        "max_model_len": info.context_length,
        "digest": version.ref.digest,
        "number": version.ref.number,
        "adapted_modules": state.adapted,
        "untouched_modules": state.untouched,
        "ranks": list(state.ranks),
        "bytes": state.nbytes,
        "warnings": list(state.warnings),
    }
