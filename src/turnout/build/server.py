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
from turnout.core.adapter import Dtype
from turnout.core.errors import SettingsError
from turnout.core.identity import VersionRef
from turnout.core.settings import Settings
from turnout.engine import EngineConfig, LocalEngine
from turnout.kernels import native, onednn
from turnout.registry.catalog import Catalog, Version
from turnout.serving.lifecycle import READERS, Lifecycle

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
    settings: Settings
    listener: socket.socket

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Serve until a signal; returns when running answers have ended, or after DRAIN_SECONDS."""
        if self.settings.api_key is None:
            logger.info("no key is set, so only this machine can reach it")
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
            catalog = Catalog(
                VersionRef(name, 0, base.model_revision),
                frozenset({name}),
                base.model_revision,
                base.tokenizer.revision,
            )
            read = partial(
                adapters.load,
                spec=base.spec,
                model_revision=base.model_revision,
                dtype=dtype,
                max_rank=settings.max_lora_rank,
                roots=settings.roots,
                base_names=(name, settings.base, *((BUILT_IN_ORIGIN,) if settings.base == BUILT_IN else ())),
            )
            with closing(Lifecycle(engine, catalog, read, settings.roots)) as lifecycle:
                load_adapters(lifecycle, adapters_at_start(settings))
                services = Services(
                    engine,
                    catalog,
                    lifecycle,
                    base.tokenizer,
                    base.chat_template,
                    api_key=settings.api_key,
                    admin_key=settings.admin_key,
                )
                yield Server(create_app(services), settings, listener)


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


def load_adapters(lifecycle: Lifecycle, wanted: list[tuple[str, Path]]) -> None:
    """Load several at the same time, and say what was loaded. Raises the first one's error, in their order."""
    with ThreadPoolExecutor(READERS) as workers:
        for version in workers.map(lambda entry: lifecycle.load_now(*entry), wanted):
            _report(version)


def _report_base(name: str, base: Base, engine: LocalEngine, settings: Settings) -> None:
    info = engine.info
    logger.info(
        "base %s (%s), kernels %s, context %d tokens", name, info.model_revision, info.kernels, info.context_length
    )
    if settings.device == "cpu" and not native.available(base.weights.embedding.dtype):
        logger.info("slower kernels serve than the native ones: %s", native.why_not(base.weights.embedding.dtype))


def _report(version: Version) -> None:
    state = version.state
    logger.info(
        "adapter %s %s: adapts %d modules, leaves %d alone, ranks %s, %.1f MB",
        version.ref, state.digest, state.adapted, state.untouched, ", ".join(map(str, state.ranks)), state.nbytes / 1e6,
    )  # fmt: skip
    for warning in state.warnings:
        logger.warning("adapter %s: %s", version.ref, warning)


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
    return "bfloat16" if settings.device != "cpu" or onednn.available(torch.bfloat16) else "float32"


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
