"""A real HTTP server on a small base and a real (or fake) engine, in this process."""

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import uvicorn
from openai import OpenAI

from tests.support.engines import Bench
from turnout.api import Services, create_app
from turnout.build.registry import Registry, open_registry
from turnout.build.server import publish_adapters
from turnout.core.engine import Engine
from turnout.core.fake import FakeEngine
from turnout.core.identity import VersionRef
from turnout.core.settings import Settings
from turnout.text.chat import load_chat_template
from turnout.text.tokenizer import load_tokenizer

BASE = "tiny"
ADMIN = {"Authorization": "Bearer admin-secret"}


@dataclass(frozen=True)
class Served:
    """A running server. `http` speaks to it, with no key."""

    url: str
    http: httpx.Client
    engine: Any
    bench: Bench | None
    registry: Registry
    folders: Mapping[str, Path]
    closing: ExitStack

    def openai(self, **options: Any) -> OpenAI:
        options = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0, **options}
        return self.closing.enter_context(OpenAI(**options))

    def complete(self, **body: Any) -> httpx.Response:
        return self.http.post("/v1/completions", json={"temperature": 0, **body})

    def chat(self, text: str = "hi", **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": text}]
        return self.http.post("/v1/chat/completions", json={"temperature": 0, "messages": messages, **body})

    def load(self, name: str, path: Path, **body: Any) -> httpx.Response:
        return self.http.post(
            "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path), **body}, headers=ADMIN
        )

    def unload(self, name: str) -> httpx.Response:
        return self.http.post("/v1/unload_lora_adapter", json={"lora_name": name}, headers=ADMIN)


@contextmanager
def serving(
    base: Path,
    adapters: Mapping[str, Path] | None = None,
    *,
    roots: tuple[Path, ...] = (),
    fake: FakeEngine | None = None,
    api_key: str | None = None,
    admin_key: str | None = "admin-secret",
    keep_prompts: bool = False,
    **config: Any,
) -> Iterator[Served]:
    """Serve `base` with `adapters`; `config` is the engine's. A `fake` engine takes any adapter as it is read."""
    bench = Bench(base, **config)
    engine: Engine = fake or bench.engine
    tokenizer = load_tokenizer(base)
    settings = Settings(
        base=BASE,
        named_adapters=tuple((adapters or {}).items()),
        adapter_roots=roots,
        api_key=api_key,
        admin_key=admin_key,
        keep_prompts=keep_prompts,
    )
    ref = VersionRef(BASE, 0, engine.info.model_revision)
    with ExitStack() as closing:
        closing.callback(bench.engine.close)
        closing.callback(engine.close)
        home = closing.enter_context(tempfile.TemporaryDirectory(prefix="turnout-served-"))
        closing.enter_context(patch.dict(os.environ, TURNOUT_HOME=home))
        registry = closing.enter_context(
            open_registry(settings, engine, ref, tokenizer.revision, bench.read, frozenset({BASE, "alias"}))
        )
        publish_adapters(registry.publisher, list((adapters or {}).items()))
        services = Services(
            engine,
            registry.directory,
            registry.store,
            registry.weights,
            registry.publisher,
            registry.lifecycle,
            tokenizer,
            load_chat_template(base),
            registry.lineage.put,
            registry.failures.record,
            keep_prompts=keep_prompts,
        )
        uvicorn_config = uvicorn.Config(create_app(services), port=0, log_config=None, access_log=False, lifespan="off")
        url = closing.enter_context(_running(uvicorn.Server(uvicorn_config)))
        http = closing.enter_context(httpx.Client(base_url=url, timeout=60))
        yield Served(url, http, engine, bench if fake is None else None, registry, adapters or {}, closing)


@contextmanager
def _running(server: uvicorn.Server) -> Iterator[str]:
    started = threading.Event()
    startup = server.startup

    async def signalling_startup(sockets: Any = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = signalling_startup  # type: ignore[method-assign]
    thread = threading.Thread(target=partial(server.run), name="uvicorn")
    thread.start()
    assert started.wait(30), "the server did not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
