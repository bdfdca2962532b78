"""The HTTP application, made of what it serves; it reads nothing from its surroundings."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI

from turnout import __version__
from turnout.api import errors, health, lora, registry
from turnout.api.auth import Gate
from turnout.api.context import RequestContext
from turnout.api.openai import generation, models
from turnout.artifacts.store import ArtifactStore
from turnout.core.engine import Engine
from turnout.registry.directory import Directory
from turnout.registry.failures import Failure
from turnout.registry.lineage import LineageRecord
from turnout.serving.generate import Generator
from turnout.serving.lifecycle import Lifecycle
from turnout.serving.publishing import Publisher
from turnout.serving.weights import Weights
from turnout.telemetry.metrics import Metrics
from turnout.text.chat import ChatTemplate
from turnout.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Services:
    """What the application serves. `keep` takes lineage records, `refused` authorisation failures."""

    engine: Engine
    directory: Directory
    store: ArtifactStore
    weights: Weights
    publisher: Publisher
    lifecycle: Lifecycle
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    keep: Callable[[LineageRecord], None]
    refused: Callable[[Failure], None]
    keep_prompts: bool = False


def create_app(services: Services) -> FastAPI:
    """All routes."""
    app = FastAPI(
        title="Turnout", version=__version__, description="Many LoRA adapters on one base model, as OpenAI serves it."
    )
    info = services.engine.info
    metrics = Metrics(services.engine.stats)
    gate = Gate(services.directory, services.refused)
    caller = gate.needs("infer")
    generator = Generator(
        services.engine,
        services.directory,
        services.weights,
        services.tokenizer,
        metrics,
        services.keep,
        keep_prompts=services.keep_prompts,
    )
    app.include_router(health.router(services.engine, metrics))
    app.include_router(models.router(services.directory, info, int(time.time()), caller))
    app.include_router(
        generation.router(
            generator, services.directory, info, services.tokenizer, services.chat_template, metrics, caller
        )
    )
    app.include_router(lora.router(services.lifecycle, gate.operator))
    base = services.directory.snapshot().base.name
    app.include_router(registry.router(services.directory, services.store, services.publisher, gate, base))
    errors.install(app)
    app.add_middleware(RequestContext)
    return app
