"""Loading and unloading adapters at run time, as vLLM names it."""

from pathlib import Path

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse

from turnout.api import body
from turnout.api.auth import Check
from turnout.api.schemas import LoadBody, UnloadBody
from turnout.serving.lifecycle import Lifecycle


def router(lifecycle: Lifecycle, admin: Check) -> APIRouter:
    """`/v1/load_lora_adapter`, `/v1/unload_lora_adapter`."""
    routes = APIRouter(prefix="/v1", tags=["adapters"], dependencies=[Depends(admin)])

    @routes.post("/load_lora_adapter", openapi_extra=body.documented(LoadBody), response_class=PlainTextResponse)
    async def load(request: Request) -> PlainTextResponse:
        """Load an adapter folder under a name; it is routable when this answers."""
        wanted = await body.read(request, LoadBody)
        version = await lifecycle.load(wanted.lora_name, Path(wanted.lora_path), replace=wanted.load_inplace)
        state = version.state
        lines = [
            f"Success: LoRA adapter '{wanted.lora_name}' added successfully.",
            f"{version.ref} {state.digest}: adapts {state.adapted} modules, leaves {state.untouched} alone, "
            f"ranks {', '.join(map(str, state.ranks))}, {state.nbytes} bytes.",
            *(f"Warning: {warning}" for warning in state.warnings),
        ]
        return PlainTextResponse("\n".join(lines))

    @routes.post("/unload_lora_adapter", openapi_extra=body.documented(UnloadBody), response_class=PlainTextResponse)
    async def unload(request: Request) -> PlainTextResponse:
        """Refuse the name from now on; running requests end on the weights they hold, which are then freed."""
        wanted = await body.read(request, UnloadBody)
        await lifecycle.unload(wanted.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{wanted.lora_name}' removed successfully.")

    return routes
