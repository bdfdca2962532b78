"""A server of `/admin/v1` in memory, over real HTTP: what the client and the commands are tested against.

It keeps what it is sent and answers in the shapes of the real one; it knows only the rules that the tests are about.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response

from tests.support.servers import _running
from turnout.api import errors
from turnout.core.errors import (
    ArtifactDigestMismatch,
    ArtifactNotFound,
    Forbidden,
    GateNotMet,
    KeyNotFound,
    ModelNotFound,
    NothingToRollBack,
    TenantExists,
    Unauthorized,
    VersionInUse,
)
from turnout.registry.requirements import parse_requirement

TOKEN = "tk_0123456789ab_" + "5e" * 32
WHEN = "2026-12-03T07:00:00.000000Z"
BASE = "sha256:" + "ba" * 32


@dataclass
class Registry:
    """What the server keeps, by adapters' names; and every request that came, as `METHOD path?query`."""

    url: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    adapters: dict[str, dict[str, Any]] = field(default_factory=dict)
    moves: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)
    lineage: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    collect_before_push: bool = False

    def adapter(self, name: str) -> dict[str, Any]:
        if name not in self.adapters:
            raise ModelNotFound(f"there is no adapter {name!r}", param="adapter")
        return self.adapters[name]

    def version(self, name: str, selector: str) -> dict[str, Any]:
        adapter = self.adapter(name)
        number = adapter["aliases"].get(selector, selector)
        for version in adapter["versions"]:
            if str(number) == str(version["number"]) or version["digest"].startswith(selector):
                return version
        raise ModelNotFound(f"{name} has no version or alias {selector!r}", param="version")

    def push(self, name: str, body: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        if self.collect_before_push:
            self.collect_before_push = False
            self.blobs.clear()
        for file in body["files"].values():
            if file["digest"] not in self.blobs:
                raise ArtifactNotFound(f"{file['digest']} is not here; upload it first")
        adapter = self.adapters.setdefault(name, new_adapter(name))
        digest = digest_of("".join(file["digest"] for file in body["files"].values()).encode())
        for version in adapter["versions"]:
            if version["digest"] == digest:
                return False, version
        version = new_version(len(adapter["versions"]) + 1, digest, body)
        adapter["versions"].append(version)
        adapter["latest"] = version["number"]
        return True, version

    def move(self, name: str, alias: str, kind: str, after: int | None, body: dict[str, Any]) -> dict[str, Any]:
        aliases = self.adapter(name)["aliases"]
        before = aliases.pop(alias, None)
        if after is not None:
            aliases[alias] = after
        asked = {"reason": body.get("reason", ""), "requirements": body.get("require", [])}
        made = {"created_by": "tester", "created_at": WHEN}
        move = {"alias": alias, "kind": kind, "before": before, "after": after, **asked, **made}
        self.moves.setdefault(name, []).append(move)
        return move


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def new_adapter(name: str) -> dict[str, Any]:
    seen = {"public": False, "shared_with": []}
    return {
        "tenant": "acme", "name": name, **seen, "aliases": {}, "latest": None, "versions": [], "created_at": WHEN
    }  # fmt: skip


def new_version(number: int, digest: str, body: dict[str, Any]) -> dict[str, Any]:
    claims = ("metrics", "hyper_parameters", "dataset", "dataset_digest", "owner", "licence")
    facts = {"config": {"r": 8, "lora_alpha": 16}, "ranks": [8], "nbytes": 921600, "adapted": 60, "untouched": 150}
    return {
        "number": number,
        "semantic_version": body.get("semantic_version"),
        "digest": digest,
        "model_revision": BASE,
        "created_at": WHEN,
        "files": body["files"],
        "facts": {**facts, "warnings": ["it changes nothing"], "norms": {"layers.0.q_proj": 0.5 * number}},
        "claims": {name: body.get(name, {} if name in claims[:2] else None) for name in claims},
        "note": body.get("note", ""),
        "parent": body.get("parent"),
        "signature": body.get("signature"),
        "flags": [],
        "created_by": "tester",
    }


def application(registry: Registry) -> FastAPI:
    app = FastAPI()
    errors.install(app)
    _adapters(app, registry)
    _rest(app, registry)

    @app.middleware("http")
    async def note(request: Request, then: Any) -> Any:
        query = f"?{request.url.query}" if request.url.query else ""
        registry.requests.append(f"{request.method} {request.scope['raw_path'].decode()}{query}")
        sent = request.headers.get("Authorization")
        if sent == "Bearer forbidden":
            return errors.answer(Forbidden("this key lacks the scope admin"))
        if sent != f"Bearer {TOKEN}":
            return errors.answer(Unauthorized("a valid key is needed: send 'Authorization: Bearer <key>'"))
        if request.headers.get("Content-Type") == "application/json":
            registry.bodies.append(await request.json())
        return await then(request)

    return app


def _adapters(app: FastAPI, registry: Registry) -> None:
    root = "/admin/v1/adapters"

    @app.head("/admin/v1/blobs/{digest}")
    def has(digest: str) -> Response:
        return Response(status_code=200 if digest in registry.blobs else 404)

    @app.put("/admin/v1/blobs/{digest}", status_code=201)
    async def put(digest: str, request: Request) -> Any:
        data = await request.body()
        if digest_of(data) != digest:
            raise ArtifactDigestMismatch("the bytes do not have the digest; nothing was stored")
        registry.blobs[digest] = data
        return {"digest": digest, "bytes": len(data)}

    @app.post(root + "/{name:path}/versions")
    async def push(name: str, request: Request, response: Response) -> Any:
        created, version = registry.push(name, await request.json())
        response.status_code = 201 if created else 200
        return {"created": created, "version": version}

    @app.get(root)
    def listing() -> Any:
        return {"data": list(registry.adapters.values())}

    @app.get(root + "/{name:path}/history")
    def history(name: str) -> Any:
        return {"data": registry.moves.get(registry.adapter(name)["name"], [])}

    @app.get(root + "/{name:path}/diff")
    def diff(name: str, request: Request) -> Any:
        old, new = (registry.version(name, request.query_params[side]) for side in ("from", "to"))
        before, after = old["claims"]["metrics"], new["claims"]["metrics"]
        claims = {f"metrics.{key}": {"before": before.get(key), "after": after[key]} for key in after}
        norms = {"layers.0.q_proj": {"before": 0.5 * old["number"], "after": 0.5 * new["number"]}}
        same = old["number"] == new["number"]
        return {"facts": {}, "claims": {} if same else claims, "files": {}, "modules": {} if same else norms}

    @app.get(root + "/{name:path}/versions/{selector}/files/{file}")
    def download(name: str, selector: str, file: str) -> Response:
        return Response(registry.blobs[registry.version(name, selector)["files"][file]["digest"]])

    @app.get(root + "/{name:path}/versions/{selector}")
    def version(name: str, selector: str) -> Any:
        return registry.version(name, selector)

    @app.delete(root + "/{name:path}/versions/{selector}")
    def delete_version(name: str, selector: str) -> Any:
        found = registry.version(name, selector)
        if found["number"] in registry.adapter(name)["aliases"].values():
            raise VersionInUse(f"an alias points at {name}@{found['number']}")
        registry.adapter(name)["versions"].remove(found)
        return {"number": found["number"]}

    @app.put(root + "/{name:path}/aliases/{alias}")
    async def promote(name: str, alias: str, request: Request) -> Any:
        body = await request.json()
        version = registry.version(name, body["version"])
        for text in body["require"]:
            fault = parse_requirement(text).fault(version["claims"]["metrics"])
            if fault is not None:
                raise GateNotMet(f"{name}@{version['number']} cannot become {alias!r}: {fault}", param="requirements")
        if registry.adapter(name)["aliases"].get(alias) == version["number"]:
            return {**registry.moves[name][-1], "unchanged": True}
        return {**registry.move(name, alias, "promote", version["number"], body), "unchanged": False}

    @app.post(root + "/{name:path}/aliases/{alias}/rollback")
    async def rollback(name: str, alias: str, request: Request) -> Any:
        before = registry.moves[name][-1]["before"]
        if before is None:
            raise NothingToRollBack(f"{name}@{alias} pointed at no other version before")
        return registry.move(name, alias, "rollback", before, await request.json())

    @app.delete(root + "/{name:path}/aliases/{alias}")
    def unalias(name: str, alias: str, reason: str = "") -> Any:
        return registry.move(name, alias, "remove", None, {"reason": reason})

    @app.put(root + "/{name:path}/visibility")
    async def share(name: str, request: Request) -> Any:
        return registry.adapter(name) | await request.json()

    @app.get(root + "/{name:path}")
    def show(name: str) -> Any:
        return registry.adapter(name)

    @app.delete(root + "/{name:path}", status_code=204)
    def delete(name: str) -> Response:
        del registry.adapters[registry.adapter(name)["name"]]
        return Response(status_code=204)


def _rest(app: FastAPI, registry: Registry) -> None:
    @app.get("/admin/v1/server")
    def server() -> Any:
        base = {"name": "smollm2-135m", "model_revision": BASE, "tokenizer_revision": BASE}
        return {"version": "0.1.0", "base": base, "key": {"prefix": "0123456789ab", "tenant": None, "scopes": []}}

    @app.get("/admin/v1/keys")
    def keys() -> Any:
        return {"data": list(registry.keys.values())}

    @app.post("/admin/v1/keys", status_code=201)
    async def create_key(request: Request) -> Any:
        body = await request.json()
        given = {"prefix": "ab" * 6, "tenant": "default", "name": "unnamed", "adapters": ["*"], "default_adapter": None}
        limits = dict.fromkeys(("requests_per_minute", "tokens_per_minute", "concurrent_requests"))
        times = {"created_by": "tester", "created_at": WHEN, "expires_at": body.pop("expires", None) and WHEN}
        key = {**given, **limits, **times, "revoked_at": None, **body}
        registry.keys[key["prefix"]] = key
        return {"key": key, "token": f"tk_{key['prefix']}_{'0' * 64}"}

    @app.delete("/admin/v1/keys/{prefix}")
    def revoke(prefix: str) -> Any:
        if prefix not in registry.keys:
            raise KeyNotFound(f"there is no key {prefix!r}")
        return registry.keys[prefix] | {"revoked_at": WHEN}

    @app.get("/admin/v1/tenants")
    def tenants() -> Any:
        return {"data": list(registry.tenants.values())}

    @app.post("/admin/v1/tenants", status_code=201)
    async def create_tenant(request: Request) -> Any:
        name = (await request.json())["name"]
        if name in registry.tenants:
            raise TenantExists(f"there is a tenant {name!r} already")
        registry.tenants[name] = {"name": name, "created_at": WHEN, "signed_aliases": []}
        return registry.tenants[name]

    @app.put("/admin/v1/tenants/{name}/signed_aliases")
    async def sign(name: str, request: Request) -> Any:
        registry.tenants[name]["signed_aliases"] = (await request.json())["aliases"]
        return registry.tenants[name]

    @app.get("/admin/v1/audit")
    def audit() -> Any:
        said = {"sequence": 7, "at": WHEN, "actor": "tester", "action": "alias.promote", "tenant": "acme"}
        entry = {**said, "subject": "acme/legal@production", "detail": {"after": 4, "reason": "\x1b[31mred"}}
        return {"data": [{**entry, "hash": "ab" * 32}], "head": {"sequence": 7, "hash": "ab" * 32}}

    @app.get("/admin/v1/audit/verify")
    def verify_audit() -> Any:
        return {"faults": registry.faults, "head": {"sequence": 7, "hash": "ab" * 32}}

    @app.get("/admin/v1/lineage")
    def export() -> Response:
        return Response(b'{"request_id":"one"}\n')

    @app.get("/admin/v1/lineage/{request_id:path}")
    def find(request_id: str) -> Any:
        return {"data": [record for record in registry.lineage if record["request_id"] == request_id]}

    @app.post("/admin/v1/verify")
    def verify() -> Any:
        return {"checked": 3, "faults": registry.faults}

    @app.post("/admin/v1/gc")
    async def collect(request: Request) -> Any:
        body = await request.json()
        deleted, nbytes = list(registry.blobs), sum(map(len, registry.blobs.values()))
        if not body["dry_run"]:
            registry.blobs.clear()
        return {"deleted": deleted, "bytes": nbytes}


@contextmanager
def running() -> Iterator[Registry]:
    registry = Registry()
    config = uvicorn.Config(application(registry), port=0, log_config=None, access_log=False, lifespan="off")
    with _running(uvicorn.Server(config)) as registry.url:
        yield registry
