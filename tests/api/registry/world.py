"""A registry behind its HTTP application, with keys of every kind."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import event

from tests.registry.samples import BASE, FACTS
from turnout.api import errors
from turnout.api.auth import Gate
from turnout.api.context import RequestContext
from turnout.api.registry import router
from turnout.artifacts.store import ArtifactStore, open_store
from turnout.core.errors import ArtifactNotFound
from turnout.core.identity import Digest, VersionRef
from turnout.registry import keys
from turnout.registry.aliases import promote
from turnout.registry.database import open_database
from turnout.registry.directory import Directory
from turnout.registry.failures import Failure
from turnout.registry.keys import NewKey, Scope
from turnout.registry.records import NewVersion, Said, StoredFile
from turnout.registry.tenants import create_tenant
from turnout.registry.versions import Pushed, push

CONFIG = b'{"peft_type": "LORA"}'
SCOPES: dict[str, frozenset[Scope]] = {
    "all": frozenset({"infer", "push", "promote", "admin"}),
    **{scope: frozenset({scope}) for scope in ("infer", "push", "promote", "admin")},
}


def digest_of(data: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(data).hexdigest()}")


def files_of(weights: bytes) -> dict[str, bytes]:
    return {"adapter_config.json": CONFIG, "adapter_model.safetensors": weights}


def listed(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The files as a push names them."""
    return {name: {"digest": digest_of(data), "bytes": len(data)} for name, data in files.items()}


class PlainPublisher:
    """Registers what it is given, without looking into the files: their names and digests are the version."""

    def __init__(self, directory: Directory, store: ArtifactStore) -> None:
        self._directory = directory
        self._store = store

    def push(self, actor: str, tenant: str, name: str, files: Mapping[str, StoredFile], said: Said) -> Pushed:
        with self._directory.write(actor) as write:
            for file in files.values():
                if not self._store.has(file.digest):
                    raise ArtifactNotFound(f"{file.digest} is missing")
            digest = digest_of("".join(f"{file} {files[file].digest}" for file in sorted(files)).encode())
            new = NewVersion(
                digest=digest,
                model_revision=BASE,
                files=files,
                facts=FACTS,
                claims=said.claims,
                note=said.note,
                parent=said.parent,
                semantic_version=said.semantic_version,
                signature=said.signature,
            )
            return push(write, tenant, name, new)


@dataclass
class World:
    """`send` asks the application with a named key; `prefixes` are those of the keys."""

    directory: Directory
    store: ArtifactStore
    publisher: PlainPublisher
    app: FastAPI
    runner: asyncio.Runner
    http: httpx.AsyncClient
    failures: list[Failure]
    tokens: dict[str, str] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def send(self, method: str, path: str, key: str | None = "operator", **options: Any) -> httpx.Response:
        headers = options.pop("headers", {})
        if key is not None:
            headers = {"Authorization": f"Bearer {self.tokens.get(key, key)}", **headers}
        return self.runner.run(self.http.request(method, path, headers=headers, **options))

    def make_tenant(self, name: str) -> None:
        with self.directory.write("tester") as write:
            create_tenant(write, name)

    def make_key(self, name: str, tenant: str | None, scopes: frozenset[Scope], *patterns: str) -> None:
        with self.directory.write("tester") as write:
            key, self.tokens[name] = keys.create(write, NewKey(tenant, name, scopes, patterns or ("*",)))
        self.prefixes[name] = key.prefix

    def make_adapter(self, tenant: str, name: str, *weights: bytes, aliases: Mapping[str, int] | None = None) -> None:
        """Push a version for each of `weights`, and point `aliases` at numbers."""
        for each in weights:
            stored = {}
            for file, data in files_of(each).items():
                if not self.store.has(digest_of(data)):
                    self.store.put([data], digest_of(data))
                stored[file] = StoredFile(digest_of(data), len(data))
            self.publisher.push("tester", tenant, name, stored, Said())
        with self.directory.write("tester") as write:
            for alias, number in (aliases or {}).items():
                promote(write, tenant, name, str(number), alias, "")

    def upload(self, data: bytes, key: str = "operator") -> None:
        answer = self.send("PUT", f"/admin/v1/blobs/{digest_of(data)}", key, content=data)
        assert answer.status_code == 201, answer.text

    def push(self, name: str, weights: bytes, key: str = "operator", **said: Any) -> httpx.Response:
        files = files_of(weights)
        for data in files.values():
            self.upload(data, key)
        return self.send("POST", f"/admin/v1/adapters/{name}/versions", key, json={"files": listed(files), **said})


@contextmanager
def world(location: str, where: str | Path) -> Iterator[World]:
    """A registry at `location`, with its artefact store at `where`.

    Tenants acme and globex besides `default`; keys `acme-<scopes>`, `globex-all`, `operator` and some restricted."""
    database = open_database(location)
    if database.engine.name == "sqlite":
        # Nobody minds what a power cut would take.
        event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        database.engine.dispose()
    directory = Directory(database, VersionRef("base", 0, BASE), frozenset({"base"}), digest_of(b"tokenizer"))
    store = open_store(where)
    publisher = PlainPublisher(directory, store)
    failures: list[Failure] = []
    app = FastAPI()
    app.include_router(router(directory, store, publisher, Gate(directory, failures.append), "base"))
    errors.install(app)
    app.add_middleware(RequestContext)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    with asyncio.Runner() as runner:
        made = World(directory, store, publisher, app, runner, http, failures)
        made.make_key("operator", None, SCOPES["all"])
        for tenant in ("acme", "globex"):
            made.make_tenant(tenant)
            for name, scopes in SCOPES.items():
                made.make_key(f"{tenant}-{name}", tenant, scopes)
        made.make_key("acme-open", "acme", SCOPES["all"], "open-*")
        made.make_key("ended", "acme", SCOPES["all"])
        with directory.write("tester") as write:
            keys.revoke(write, made.prefixes["ended"])
        yield made
        runner.run(http.aclose())
    directory.close()
    database.close()
