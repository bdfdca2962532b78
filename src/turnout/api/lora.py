"""Loading and unloading adapters of the server's machine at run time, as vLLM names it."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse

from turnout.api import body
from turnout.api.auth import Check
from turnout.api.schemas import LoadBody, UnloadBody
from turnout.registry.keys import Key
from turnout.serving.lifecycle import Lifecycle


def router(lifecycle: Lifecycle, operator: Check) -> APIRouter:
    """`/v1/load_lora_adapter`, `/v1/unload_lora_adapter`."""
    routes = APIRouter(prefix="/v1", tags=["adapters"])

    @routes.post("/load_lora_adapter", openapi_extra=body.documented(LoadBody), response_class=PlainTextResponse)
    async def load(request: Request, key: Annotated[Key, Depends(operator)]) -> PlainTextResponse:
        """Make an adapter folder a version in the registry; it is routable when this answers."""
        wanted = await body.read(request, LoadBody)
        name = wanted.lora_name
        version = await lifecycle.load(key.prefix, name, Path(wanted.lora_path), replace=wanted.load_inplace)
        facts = version.facts
        lines = [
            f"Success: LoRA adapter '{name}' added successfully.",
            f"{name}@{version.number} {version.digest}: adapts {facts.adapted} modules, "
            f"leaves {facts.untouched} alone, ranks {', '.join(map(str, facts.ranks))}, {facts.nbytes} bytes.",
            *(f"Warning: {warning}" for warning in facts.warnings),
        ]
        return PlainTextResponse("\n".join(lines))

    @routes.post("/unload_lora_adapter", openapi_extra=body.documented(UnloadBody), response_class=PlainTextResponse)
    async def unload(request: Request, key: Annotated[Key, Depends(operator)]) -> PlainTextResponse:
        """Delete the adapter: its name is refused from now on, and running requests end on the weights they hold."""
        wanted = await body.read(request, UnloadBody)
        await lifecycle.unload(key.prefix, wanted.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{wanted.lora_name}' removed successfully.")

    return routes
