"""Is it alive, can it serve, what does it count."""

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from turnout.core.engine import Engine
from turnout.telemetry.metrics import CONTENT_TYPE, Metrics


def router(engine: Engine, metrics: Metrics) -> APIRouter:
    """`/health`, `/ready`, `/metrics`; open to all, for probes carry no keys and no names show here."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @routes.get("/ready")
    async def ready() -> JSONResponse:
        """The engine takes requests (200), or not (503)."""
        accepting = engine.stats().accepting
        return JSONResponse({"status": "ready" if accepting else "stopping"}, 200 if accepting else 503)

    @routes.get("/metrics")
    def exposition() -> Response:
        """Prometheus metrics."""
        return Response(metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    return routes
