"""The server: settings to everything that serves, and its end."""

import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
import uvicorn
from fastapi import FastAPI

from turnout import adapters
from turnout.api import Services, create_app
from turnout.artifacts.sources import BUILT_IN, BUILT_IN_ORIGIN, default_name
from turnout.build.base import Base, base_folder, load_base
from turnout.build.registry import open_registry
from turnout.core.adapter import Dtype
from turnout.core.errors import SettingsError
from turnout.core.identity import DEFAULT_TENANT, VersionRef
from turnout.core.settings import Settings, check_reach
from turnout.engine import EngineConfig, LocalEngine
from turnout.kernels import fast_in_bfloat16, native
from turnout.registry.versions import Pushed
from turnout.serving.publishing import Publisher
from turnout.serving.weights import READERS

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

SWITCH_INTERVAL = 0.0005
"""Seconds for which a thread may keep the interpreter from another. The engine's thread needs it for a moment between
two kernels; with Python's default of 5 ms, each such moment could cost as much as the kernels."""

DRAIN_SECONDS = 30
"""How long running answers may take after a signal to stop."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready to run. `app` is its HTTP application."""

    app: FastAPI
    listener: socket.socket

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Serve until a signal; returns when running answers have ended, or after DRAIN_SECONDS."""
        # From here on connections wait for the loop instead of being refused: the log is not ahead of the truth.
        self.listener.listen()
        logger.info("listening on %s", self.url)
        config = uvicorn.Config(
            self.app,
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            lifespan="off",
        )
        # uvicorn ends on a signal and then raises it again, to end the process as the signal would have; there is
        # still the engine to stop, so for that second time it does nothing.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[self.listener])


@contextmanager
def build_server(settings: Settings) -> Iterator[Server]:
    """Load the base and the adapters, start the engine, listen; on leaving, stop the engine.

    Raises BaseModelError, SettingsError, and an AdapterError if any of the adapters named in the settings is not sound.
    """
    # First, for it fails at once: a port that is taken should not cost the wait for a model.
    with closing(_listen(settings.host, settings.port)) as listener:
        dtype = _dtype(settings)
        name = settings.served_model_name or default_name(settings.base)
        logger.info("loading %s in %s", settings.base, dtype)
        base, started = on_a_thread_of_its_own(lambda: _start(settings, dtype))
        with closing(started) as engine:
            _report_base(name, base, engine, settings)
            read = partial(
                adapters.load,
                spec=base.spec,
                model_revision=base.model_revision,
                dtype=dtype,
                max_rank=settings.max_lora_rank,
                base_names=(name, settings.base, *((BUILT_IN_ORIGIN,) if settings.base == BUILT_IN else ())),
            )
            version = VersionRef(name, 0, base.model_revision)
            with open_registry(settings, engine, version, base.tokenizer.revision, read) as registry:
                guarded = registry.directory.keys().guards_inference
                check_reach(settings.host, guarded=guarded)
                if not guarded:
                    logger.info("there is no key for inference, so only this machine can reach the server")
                publish_adapters(registry.publisher, adapters_at_start(settings))
                services = Services(
                    engine,
                    registry.directory,
                    registry.store,
                    registry.weights,
                    registry.publisher,
                    registry.lifecycle,
                    base.tokenizer,
                    base.chat_template,
                    registry.lineage.put,
                    registry.failures.record,
                    keep_prompts=settings.keep_prompts,
                )
                yield Server(create_app(services), listener)


def on_a_thread_of_its_own(call: Callable[[], Result]) -> Result:
    """The call's result, from a thread that has ended.

    OpenMP keeps a pool of workers for every living thread that has computed. As soon as all pools together have more
    workers than there are cores, none of them spins between two kernels any more, and waking one up for each kernel
    takes longer than most kernels do: a step twice as long. So the engine's thread must be the only one with a pool.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="turnout-start") as starter:
        return starter.submit(call).result()


def adapters_at_start(settings: Settings) -> list[tuple[str, Path]]:
    """Name and folder of each adapter in the settings. Raises SettingsError for a folder that is not there."""
    found: list[tuple[str, Path]] = []
    if settings.adapters is not None:
        if not settings.adapters.is_dir():
            raise SettingsError(f"--adapters: there is no folder {settings.adapters}")
        found += [
            (folder.name, folder)
            for folder in sorted(settings.adapters.iterdir())
            if (folder / "adapter_config.json").exists()
        ]
        if not found:
            raise SettingsError(
                f"--adapters: no folder in {settings.adapters} holds an adapter_config.json; for a single adapter "
                "use --adapter NAME=PATH"
            )
    return found + list(settings.named_adapters)


def publish_adapters(publisher: Publisher, wanted: list[tuple[str, Path]]) -> None:
    """Bring several into the registry at the same time, and say what they are there.

    Raises the first one's error, in their order.
    """
    with ThreadPoolExecutor(READERS) as workers:
        for (name, _), pushed in zip(
            wanted, workers.map(lambda entry: publisher.publish("server", DEFAULT_TENANT, *entry), wanted), strict=True
        ):
            _report(name, pushed)


def _report_base(name: str, base: Base, engine: LocalEngine, settings: Settings) -> None:
    info = engine.info
    logger.info(
        "base %s (%s), kernels %s, context %d tokens", name, info.model_revision, info.kernels, info.context_length
    )
    reason = native.why_not(base.weights.embedding.dtype)
    if settings.device == "cpu" and reason is not None:
        logger.info("slower kernels serve than the native ones: %s", reason)


def _report(name: str, pushed: Pushed) -> None:
    version, facts = pushed.version, pushed.version.facts
    logger.info(
        "adapter %s@%d %s%s: adapts %d modules, leaves %d alone, ranks %s, %.1f MB",
        name, version.number, version.digest, "" if pushed.created else " (known)",
        facts.adapted, facts.untouched, ", ".join(map(str, facts.ranks)), facts.nbytes / 1e6,
    )  # fmt: skip
    for warning in facts.warnings:
        logger.warning("adapter %s@%d: %s", name, version.number, warning)


def _start(settings: Settings, dtype: Dtype) -> tuple[Base, LocalEngine]:
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    base = load_base(
        base_folder(settings.base), dtype=dtype, device=settings.device, int8_weights=settings.weights == "int8"
    )
    return base, _start_engine(base, dtype, settings)


def _start_engine(base: Base, dtype: Dtype, settings: Settings) -> LocalEngine:
    sys.setswitchinterval(SWITCH_INTERVAL)
    return LocalEngine(
        base.weights,
        base.kernels,
        model_revision=base.model_revision,
        dtype=dtype,
        device=torch.device(settings.device),
        config=EngineConfig(
            max_batch_tokens=settings.max_batch_tokens,
            max_sequences=settings.max_sequences,
            max_waiting=settings.max_waiting,
            kv_memory=settings.kv_memory,
            adapter_memory=settings.adapter_memory,
        ),
    )


def _dtype(settings: Settings) -> Dtype:
    if settings.dtype != "auto":
        return settings.dtype
    return "bfloat16" if fast_in_bfloat16(settings.device) else "float32"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener
