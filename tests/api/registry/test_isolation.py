"""Nothing that one tenant does changes, or tells it anything of, what another has.

The same calls are made in two worlds. In one of them the tenant `theirs` has adapters, and goes on working on them
between the calls; in the other it has nothing. The answers must be the same bytes, and its things be as it left them.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.registry.world import SCOPES, World, digest_of, files_of, listed, world
from turnout.registry.adapters import list_adapters
from turnout.registry.aliases import history, promote
from turnout.registry.versions import list_versions

API = "/admin/v1"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
TOKEN = re.compile("tk_[0-9a-f]{12}_[0-9a-f]{64}")

THEIRS = files_of(b"private weights")
OURS = files_of(b"our weights")
UNKNOWN = files_of(b"nobody's weights")
CONTENTS = {**{digest_of(data): data for files in (THEIRS, OURS, UNKNOWN) for data in files.values()}}

names = st.sampled_from(["legal", "ours", "theirs/legal", "secret", "a/b", "%", "é", "legal@1", "legal/versions/1"])
selectors = st.sampled_from(["1", "2", "3", "production", "1.0.0", "nothing", "sha256:zz"]) | st.sampled_from(
    [digest_of("".join(f"{file} {digest_of(data)}" for file, data in sorted(files.items())).encode())[:20] for files in
     (THEIRS, OURS)]
)  # fmt: skip
aliases = st.sampled_from(["production", "dev", "1", "sha256"])
digests = st.sampled_from(sorted(CONTENTS))
keys = st.sampled_from(["all", "push", "promote", "admin", "restricted"])
tenants = st.sampled_from([None, None, None, "own", "theirs", "nobody"])
manifests = st.sampled_from([THEIRS, OURS, UNKNOWN])


def call(method: str, path: str, **options: Any) -> tuple[str, str, dict[str, Any]]:
    return method, path, options


adapter_calls = st.one_of(
    st.builds(lambda name: call("GET", f"/adapters/{name}"), names),
    st.builds(lambda name: call("GET", f"/adapters/{name}/history"), names),
    st.builds(lambda name, old, new: call("GET", f"/adapters/{name}/diff?from={old}&to={new}"),
              names, selectors, selectors),
    st.builds(lambda name, which: call("GET", f"/adapters/{name}/versions/{which}"), names, selectors),
    st.builds(lambda name, which: call("GET", f"/adapters/{name}/versions/{which}/files/adapter_model.safetensors"),
              names, selectors),
    st.builds(lambda name: call("DELETE", f"/adapters/{name}"), names),
    st.builds(lambda name, which: call("DELETE", f"/adapters/{name}/versions/{which}"), names, selectors),
    st.builds(lambda name, public: call("PUT", f"/adapters/{name}/visibility", json={"public": public}),
              names, st.booleans()),
    st.builds(lambda name, files, said: call("POST", f"/adapters/{name}/versions",
                                             json={"files": listed(files), **said}),
              names, manifests, st.sampled_from([{}, {"semantic_version": "1.0.0"}, {"parent": 1}])),
    st.builds(lambda name, alias, which: call("PUT", f"/adapters/{name}/aliases/{alias}", json={"version": which}),
              names, aliases, selectors),
    st.builds(lambda name, alias: call("DELETE", f"/adapters/{name}/aliases/{alias}"), names, aliases),
    st.builds(lambda name, alias: call("POST", f"/adapters/{name}/aliases/{alias}/rollback"), names, aliases),
)  # fmt: skip
other_calls = st.one_of(
    st.sampled_from(
        [call("GET", path) for path in ("/adapters", "/keys", "/audit", "/audit?after=1&limit=2", "/audit/verify",
                                         "/tenants", "/lineage", "/lineage/their-request", "/server")]
        + [call("POST", "/verify"), call("POST", "/gc"), call("POST", "/tenants", json={"name": "more"}),
           call("PUT", "/tenants/theirs/signed_aliases", json={"aliases": ["production"]}),
           call("DELETE", "/keys/THEIR-KEY")]
    ),
    st.builds(lambda digest: call("HEAD", f"/blobs/{digest}"), digests),
    st.builds(lambda digest, data: call("PUT", f"/blobs/{digest}", content=CONTENTS[data]), digests, digests),
    st.builds(lambda scopes, patterns: call("POST", "/keys", json={"scopes": scopes, "adapters": patterns}),
              st.sampled_from([["infer"], ["admin"], ["push", "promote"]]), st.sampled_from([["*"], ["our*"]])),
)  # fmt: skip
# After everything else, in case it left traces that no other call came upon.
LOOK_AROUND = [
    *(call("GET", path) for path in ("/adapters", "/keys", "/audit", "/adapters/legal", "/adapters/theirs/legal")),
    *(call("HEAD", f"/blobs/{digest}") for digest in sorted(CONTENTS)),
    # No other call uploads these, so only one of the two stores ever has them.
    call("HEAD", f"/blobs/{digest_of(b'secret weights')}"),
    *(call("POST", "/adapters/taken/versions", json={"files": listed(files)}) for files in (THEIRS, OURS, UNKNOWN)),
]
# A push of what was uploaded before is what most of the rest builds on, and chance alone seldom gets there.
whole_pushes = st.builds(
    lambda name, files: [
        *(call("PUT", f"/blobs/{digest_of(data)}", content=data) for data in files.values()),
        call("POST", f"/adapters/{name}/versions", json={"files": listed(files)}),
    ],
    names,
    manifests,
)
steps = st.lists(st.one_of(
    st.tuples(st.just("call"), keys, tenants, (adapter_calls | other_calls).map(lambda one: [one])),
    st.tuples(st.just("call"), st.sampled_from(["all", "all", "restricted"]), st.none(), whole_pushes),
    st.tuples(st.just("they act"), st.none(), st.none(), st.none()),
), min_size=1, max_size=15)  # fmt: skip


class Side:
    """One world, its answers made comparable: what is random there by its nature gets one name in both."""

    def __init__(self, made: World, inhabited: bool) -> None:
        self.world = made
        self.inhabited = inhabited
        self.acts = count(1)
        made.make_tenant("theirs")
        if inhabited:
            made.make_key("their-key", "theirs", SCOPES["all"])
            made.make_adapter("theirs", "legal", b"private weights", b"more", aliases={"production": 1, "dev": 2})
            made.make_adapter("theirs", "secret", b"secret weights")
        self.left = self.picture()

    def arrive(self, tenant: str) -> None:
        self.tenant = tenant
        self.world.make_tenant(tenant)
        self.aliases = {}
        for name in ("all", "push", "promote", "admin", "restricted"):
            patterns = ("our*",) if name == "restricted" else ()
            self.world.make_key(f"{tenant}-{name}", tenant, SCOPES.get(name, SCOPES["all"]), *patterns)
            self.aliases[self.world.prefixes[f"{tenant}-{name}"]] = f"<{name}>"

    def they_act(self) -> None:
        if not self.inhabited:
            return
        number = next(self.acts)
        self.world.make_adapter("theirs", "legal", f"private {number}".encode())
        with self.world.directory.write("them") as write:
            promote(write, "theirs", "legal", str(1 + number % 2), "dev", f"act {number}")
        self.left = self.picture()

    def picture(self) -> Any:
        with self.world.directory.database.read() as connection:
            adapters = list_adapters(connection, "theirs")
            moves = [history(connection, "theirs", each.name) for each in adapters]
            return adapters, moves, [list_versions(connection, "theirs", each.name) for each in adapters]

    def answer(self, key: str, tenant: str | None, method: str, path: str, options: dict[str, Any]) -> Any:
        if tenant is not None:
            path += ("&" if "?" in path else "?") + f"tenant={self.tenant if tenant == 'own' else tenant}"
        their_key = self.world.prefixes.get("their-key", "0123456789ab")
        path = path.replace("THEIR-KEY", their_key)
        answer = self.world.send(
            method, API + path, f"{self.tenant}-{key}", headers={"X-Request-ID": "same"}, **options
        )
        if (answer.status_code, path.partition("?")[0]) == (201, "/keys"):
            self.aliases[answer.json()["key"]["prefix"]] = f"<made {len(self.aliases)}>"
        text = TOKEN.sub("<token>", answer.content.decode()).replace(their_key, "<theirs>")
        for prefix, alias in self.aliases.items():
            text = text.replace(prefix, alias)
        return answer.status_code, TIME.sub("<time>", text), dict(answer.headers)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        folders = [tmp_path_factory.mktemp(name) for name in ("inhabited", "empty")]
        made = [stack.enter_context(world(str(folder / "registry.db"), folder / "store")) for folder in folders]
        yield Side(made[0], inhabited=True), Side(made[1], inhabited=False)


tenant_numbers = count()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_a_tenant_neither_changes_nor_learns_what_another_has(sides: tuple[Side, Side], steps: list[Any]) -> None:
    tenant = f"tenant-{next(tenant_numbers)}"
    for side in sides:
        side.arrive(tenant)
    for kind, key, of, calls in steps:
        if kind == "they act":
            for side in sides:
                side.they_act()
            continue
        for method, path, options in calls:
            inhabited, empty = (side.answer(key, of, method, path, options) for side in sides)
            assert inhabited == empty, (key, of, method, path)
    for method, path, options in LOOK_AROUND:
        inhabited, empty = (side.answer("all", None, method, path, options) for side in sides)
        assert inhabited == empty, (method, path)
    assert sides[0].picture() == sides[0].left
    for data in THEIRS.values():
        assert b"".join(sides[0].world.store.read(digest_of(data))) == data


def test_a_digest_alone_neither_finds_nor_takes_anothers_bytes(fresh: World) -> None:
    fresh.make_adapter("globex", "legal", b"private weights")
    digest = digest_of(b"private weights")
    assert fresh.send("HEAD", f"{API}/blobs/{digest}", "globex-push").status_code == 200
    assert fresh.send("HEAD", f"{API}/blobs/{digest}", "acme-push").status_code == 404
    fresh.upload(files_of(b"")["adapter_config.json"], "acme-push")
    body = {"files": listed(THEIRS)}
    answer = fresh.send("POST", f"{API}/adapters/mine/versions", "acme-push", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "artifact_not_found")
    assert fresh.push("mine", b"private weights", "acme-push").status_code == 201


def test_the_bytes_of_a_key_for_other_adapters_are_not_found_either(fresh: World) -> None:
    fresh.push("secret", b"secret weights", "acme-push")
    digest = digest_of(b"secret weights")
    assert fresh.send("HEAD", f"{API}/blobs/{digest}", "acme-all").status_code == 200
    assert fresh.send("HEAD", f"{API}/blobs/{digest}", "acme-open").status_code == 404
    body = {"files": listed(files_of(b"secret weights"))}
    assert fresh.send("POST", f"{API}/adapters/open-x/versions", "acme-open", json=body).status_code == 404
