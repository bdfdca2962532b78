"""The registry and all that works on it, from the settings to their end."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from turnout.artifacts.checkout import sweep_checkouts
from turnout.artifacts.home import ADMIN_TOKEN_FILE, data_home, home
from turnout.artifacts.store import ArtifactStore, open_store
from turnout.core.adapter import AdapterState
from turnout.core.engine import Engine
from turnout.core.identity import DEFAULT_TENANT, Digest, VersionRef
from turnout.core.settings import Settings
from turnout.registry.database import open_database
from turnout.registry.directory import Directory
from turnout.registry.failures import FailureLog
from turnout.registry.keyring import Member, static_key
from turnout.registry.keys import SCOPES
from turnout.registry.lineage_log import LineageLog, Retention
from turnout.serving.lifecycle import Lifecycle
from turnout.serving.publishing import Publisher
from turnout.serving.version_files import VersionFiles
from turnout.serving.weights import Weights

LEFTOVERS = timedelta(hours=24)
"""Age from which on what killed processes left half done is cleared away."""


@dataclass(frozen=True, slots=True)
class Registry:
    """What the server serves from, and how it is changed."""

    directory: Directory
    store: ArtifactStore
    weights: Weights
    publisher: Publisher
    lifecycle: Lifecycle
    failures: FailureLog
    lineage: LineageLog


@contextmanager
def open_registry(
    settings: Settings,
    engine: Engine,
    base: VersionRef,
    tokenizer_revision: Digest,
    read: Callable[[Path], AdapterState],
    base_names: frozenset[str] = frozenset(),
) -> Iterator[Registry]:
    """Open it; on leaving, write what is left to write, and close. Raises SettingsError."""
    with ExitStack() as closes:
        database = closes.enter_context(closing(open_database(settings.registry or data_home() / "registry.db")))
        store = open_store(settings.artifacts or data_home() / "artifacts")
        checkouts = home() / "checkouts"
        store.sweep_incoming(LEFTOVERS)
        sweep_checkouts(checkouts, LEFTOVERS)
        names = base_names or frozenset({base.name})
        directory = Directory(database, base, names, tokenizer_revision, static_keys(settings))
        closes.enter_context(closing(directory))
        failures = closes.enter_context(closing(FailureLog(database)))
        lineage = closes.enter_context(closing(LineageLog(database)))
        if settings.lineage_for is not None:
            closes.enter_context(closing(Retention(database, settings.lineage_for)))
        files = VersionFiles(directory, store, read, checkouts)
        weights = closes.enter_context(closing(Weights(engine, files.read_version, directory.is_live)))
        directory.on_change(weights.settle)
        publisher = Publisher(directory, files, weights)
        lifecycle = closes.enter_context(closing(Lifecycle(directory, publisher, settings.roots)))
        yield Registry(directory, store, weights, publisher, lifecycle, failures, lineage)


def static_keys(settings: Settings) -> tuple[Member, ...]:
    """The keys of the settings, and this machine's own operator's."""
    keys = []
    if settings.api_key is not None:
        keys.append(static_key(settings.api_key, prefix="env:api", tenant=DEFAULT_TENANT, scopes=frozenset({"infer"})))
    operators = [("local:admin", local_token())]
    if settings.admin_key is not None:
        operators.append(("env:admin", settings.admin_key))
    everything = frozenset(SCOPES)
    return (*keys, *(static_key(token, prefix=prefix, tenant=None, scopes=everything) for prefix, token in operators))


def local_token() -> str:
    """The token in the data folder, for the owner's eyes alone; made if there is none."""
    file = data_home() / ADMIN_TOKEN_FILE
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text().strip()
    with os.fdopen(descriptor, "w") as opened:
        token = secrets.token_hex(32)
        opened.write(token)
    return token
