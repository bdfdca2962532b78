"""What this server is, and whom it takes the caller for."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from turnout import __version__
from turnout.api.auth import Gate
from turnout.api.registry import shapes
from turnout.api.registry.reach import READ
from turnout.registry.directory import Directory
from turnout.registry.keys import Key


def router(directory: Directory, gate: Gate, base_name: str) -> APIRouter:
    """`/server`."""
    routes = APIRouter(tags=["server"])

    @routes.get("/server", response_model=shapes.Server)
    async def show(key: Annotated[Key, Depends(gate.needs(*READ))]) -> Any:
        """Tell the server's version, its base model, and whose key this is."""
        snapshot = directory.snapshot()
        base = {
            "name": base_name,
            "model_revision": snapshot.model_revision,
            "tokenizer_revision": snapshot.tokenizer_revision,
        }
        return {"version": __version__, "base": base, "key": key}

    return routes
