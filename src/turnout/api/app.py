"""The HTTP application, made of what it serves; it reads nothing from its surroundings."""

import time
from dataclasses import dataclass

from fastapi import FastAPI

from turnout import __version__
from turnout.api import admin, errors, health
from turnout.api.auth import everyone, require_admin, require_key
from turnout.api.context import RequestContext
from turnout.api.openai import generation, models
from turnout.core.engine import Engine
from turnout.registry.catalog import Catalog
from turnout.serving.generate import Generator
from turnout.serving.lifecycle import Lifecycle
from turnout.telemetry.metrics import Metrics
from turnout.text.chat import ChatTemplate
from turnout.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Services:
    """What the application serves. Without an `api_key` everybody may ask, without an `admin_key` nobody may change."""

    engine: Engine
    catalog: Catalog
    lifecycle: Lifecycle
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    api_key: str | None = None
    admin_key: str | None = None


def create_app(services: Services) -> FastAPI:
    """All routes."""
    app = FastAPI(
        title="Turnout", version=__version__, description="Many LoRA adapters on one base model, as OpenAI serves it."
    )
    info = services.engine.info
    metrics = Metrics(services.engine.stats)
    caller = require_key(services.api_key, services.admin_key) if services.api_key else everyone
    generator = Generator(services.engine, services.catalog, services.tokenizer, metrics)
    app.include_router(health.router(services.engine, metrics))
    app.include_router(models.router(services.catalog, info, int(time.time()), caller))
    app.include_router(
        generation.router(
            generator, services.catalog, info, services.tokenizer, services.chat_template, metrics, caller
        )
    )
    app.include_router(admin.router(services.lifecycle, require_admin(services.admin_key)))
    errors.install(app)
    app.add_middleware(RequestContext)
    return app
