"""`turnout adapters`, `keys`, `tenants`, `audit` and `lineage`: what they print, and how they end."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.client.server import TOKEN, Registry
from turnout.cli import app


def turnout(*arguments: object, code: int = 0) -> Result:
    """Run a command in this process; whatever it does, it prints no key."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, (result.output, result.exception)
    assert TOKEN not in result.output
    return result


def in_json(*arguments: object, code: int = 0):
    return json.loads(turnout(*arguments, "--json", code=code).stdout)


def pushed(folder: Path, *metrics: str) -> None:
    """A version of `legal` for each metric."""
    for metric in metrics:
        (folder / "adapter_model.safetensors").write_text(metric)
        turnout("adapters", "push", folder, "--name", "legal", "--metric", metric)


def test_push_says_what_was_pushed_and_what_to_do_next(registry: Registry, folder: Path) -> None:
    said = ["--metric", "f1=0.91", "--metric", "loss=1e-2", "--hyper-parameter", "lr=1e-4"]
    said += ["--hyper-parameter", "schedule=cosine", "--hyper-parameter", "odd=NaN", "--dataset", "contracts-2026"]
    said += ["--licence", "Apache-2.0", "--version", "2.1.0", "--note", "first"]
    first = turnout("adapters", "push", folder, "--name", "legal", *said)
    assert re.fullmatch(r"pushed legal@1 sha256:[0-9a-f]{12}\n", first.stdout)
    assert first.stderr == "warning: it changes nothing\nNext: turnout adapters promote legal@1 production\n"
    sent = registry.bodies[-1]
    assert sent["metrics"] == {"f1": 0.91, "loss": 0.01}
    assert sent["hyper_parameters"] == {"lr": 1e-4, "schedule": "cosine", "odd": "NaN"}
    assert (sent["dataset"], sent["licence"], sent["semantic_version"]) == ("contracts-2026", "Apache-2.0", "2.1.0")
    again = turnout("adapters", "push", folder, "--name", "legal")
    assert again.stdout.startswith("there already: legal@1 sha256:")


def test_promote_and_rollback_say_what_moved_from_where_to_where(registry: Registry, folder: Path) -> None:
    pushed(folder, "f1=0.5", "f1=0.9")
    promote = ("adapters", "promote")
    assert turnout(*promote, "legal@1", "production").stdout == "legal@production: nothing -> 1\n"
    moved = turnout(*promote, "legal@2", "production", "--require", "f1>=0.9", "--reason", "better")
    assert moved.stdout == "legal@production: 1 -> 2\n"
    assert turnout(*promote, "legal@2", "production").stdout == "legal@production is 2 already\n"
    assert turnout("adapters", "rollback", "legal").stdout == "legal@production: 2 -> 1\n"
    assert turnout("adapters", "alias", "legal@2", "canary").stdout == "legal@canary: nothing -> 2\n"
    assert turnout("adapters", "unalias", "legal@canary").stdout == "legal@canary: 2 -> nothing\n"
    history = turnout("adapters", "history", "legal").stdout.splitlines()
    assert history[0].split() == ["WHEN", "ALIAS", "WHAT", "FROM", "TO", "BY", "REQUIRED", "REASON"]
    assert history[2].split()[2:] == ["production", "promote", "1", "2", "tester", "f1>=0.9", "better"]
    assert len(history) == 6


def test_a_gate_that_is_not_met_ends_with_1_and_says_why(registry: Registry, folder: Path) -> None:
    pushed(folder, "f1=0.5")
    arguments = ("adapters", "promote", "legal@1", "production", "--require", "f1>=0.9")
    refused = turnout(*arguments, code=1)
    assert refused.stdout == ""
    assert refused.stderr == (
        "error: legal@1 cannot become 'production': f1 must be >= 0.9, found 0.5 (gate_not_met)\n"
    )
    assert registry.adapters["legal"]["aliases"] == {}
    refused = turnout(*arguments, "--json", code=1)
    assert refused.stdout == ""
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["param"]) == ("gate_not_met", "requirements")


@pytest.mark.parametrize(
    "arguments",
    [
        ("adapters", "push"),
        ("adapters", "push", "nowhere", "--name", "legal"),
        ("adapters", "push", ".", "--name", "legal", "--metric", "f1"),
        ("adapters", "push", ".", "--name", "legal", "--metric", "f1=good"),
        ("adapters", "push", ".", "--name", "legal", "--metric", "f1=nan"),
        ("adapters", "push", ".", "--name", "legal", "--metric", "f1=1", "--metric", "f1=2"),
        ("adapters", "promote", "legal", "production"),
        ("adapters", "diff", "legal@1", "sql@2"),
        ("adapters", "unalias", "legal"),
        ("adapters", "share", "legal"),
        ("adapters", "share", "legal", "--public", "--private"),
        ("adapters", "share", "legal", "--public", "--with", "globex"),
        ("adapters", "delete", "../keys/ab"),
        ("adapters", "list", "--url", "ftp://host"),
        ("tenants", "require-signed", "acme"),
        ("tenants", "require-signed", "acme", "production", "--none"),
        ("keys", "create"),
        ("lineage", "show", "a/../b"),
        ("adapters", "nothing"),
    ],
)
def test_wrong_usage_ends_with_2_and_asks_nothing(registry: Registry, arguments: tuple[str, ...]) -> None:
    assert turnout(*arguments, code=2).stderr
    assert registry.requests == []


def test_settings_that_cannot_be_end_with_2(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNOUT_API_KEY")
    assert "set TURNOUT_API_KEY" in turnout("adapters", "list", code=2).stderr


def test_what_the_server_refuses_ends_with_1(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "(model_not_found)" in turnout("adapters", "show", "legal", code=1).stderr
    assert "(key_not_found)" in turnout("keys", "revoke", "ab" * 6, code=1).stderr
    monkeypatch.setenv("TURNOUT_API_KEY", "forbidden")
    assert "(forbidden)" in turnout("keys", "list", code=1).stderr
    monkeypatch.setenv("TURNOUT_API_KEY", "wrong-secret")
    refused = turnout("adapters", "list", code=1)
    assert (
        "(invalid_api_key)" in refused.stderr
        and "wrong-secret" not in refused.output
        and "TURNOUT_API_KEY" in refused.stderr
    )


def test_no_connection_ends_with_3(registry: Registry) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert url in turnout("adapters", "list", "--url", url, code=3).stderr
        error = json.loads(turnout("adapters", "list", "--url", url, "--json", code=3).stderr)
    assert error["error"]["code"] == "server_unreachable"
    # Something is there, but no Turnout server.
    turnout("adapters", "list", "--url", f"{registry.url}/elsewhere", code=3)


def test_list_and_show_an_adapter(registry: Registry, folder: Path) -> None:
    pushed(folder, "f1=0.5", "f1=0.9")
    turnout("adapters", "promote", "legal@2", "production")
    listed = turnout("adapters", "list").stdout.splitlines()
    assert re.split(r"\s{2,}", listed[0].strip()) == [
        "NAME", "TENANT", "LATEST", "VERSIONS", "ALIASES", "SEEN BY", "CREATED"
    ]  # fmt: skip
    assert listed[1].split()[:6] == ["legal", "acme", "2", "2", "production=2", "acme"]
    shown = turnout("adapters", "show", "legal").stdout
    assert "Aliases   production=2" in shown
    assert [line.split()[0] for line in shown.splitlines()[-2:]] == ["1", "2"]
    assert turnout("adapters", "delete", "legal@1").stdout == "deleted legal@1\n"
    assert "(version_in_use)" in turnout("adapters", "delete", "legal@2", code=1).stderr
    assert turnout("adapters", "delete", "legal").stdout == "deleted legal with all its versions\n"
    assert registry.adapters == {}


def test_show_a_version_with_licence_and_training_data(registry: Registry, folder: Path) -> None:
    said = ["--licence", "Apache-2.0", "--dataset", "s3://data/contracts", "--owner", "ada", "--metric", "f1=0.91"]
    turnout("adapters", "push", folder, "--name", "legal", *said, "--hyper-parameter", "lr=1e-4", "--note", "one\ntwo")
    lines = turnout("adapters", "show", "legal@1").stdout.splitlines()
    shown = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines if line)
    assert shown["Version"].strip() == "legal@1"
    assert shown["Licence"].strip() == "Apache-2.0"
    assert shown["Training data"].strip() == "s3://data/contracts"
    assert shown["Metrics"].strip() == "f1=0.91"
    assert shown["Hyper-parameters"].strip() == "lr=0.0001"
    assert shown["Note"].strip() == "one two"
    assert shown["Configuration"].strip() == "r=8, lora_alpha=16"
    assert shown["Weights"].strip() == "900.0 KiB"
    assert shown["adapter_model.safetensors"].strip().startswith("7 B")
    assert in_json("adapters", "show", "legal@1") == registry.adapters["legal"]["versions"][0]


def test_what_is_not_said_is_shown_as_not_stated(registry: Registry, folder: Path) -> None:
    turnout("adapters", "push", folder, "--name", "legal")
    shown = turnout("adapters", "show", "legal@1").stdout
    assert re.search(r"Licence +not stated", shown) and re.search(r"Training data +not stated", shown)


def test_diff_shows_both_sides_and_the_change(registry: Registry, folder: Path) -> None:
    pushed(folder, "f1=0.5", "f1=0.9")
    lines = turnout("adapters", "diff", "legal@1", "legal@2").stdout.splitlines()
    assert lines[0].split() == ["WHAT", "legal@1", "legal@2", "CHANGE"]
    assert lines[1].split() == ["said", "metrics.f1", "0.5", "0.9", "+0.4"]
    assert lines[2].split() == ["module", "layers.0.q_proj", "0.5", "1", "+0.5"]
    assert turnout("adapters", "diff", "legal@1", "legal@1").stdout == "legal@1 and legal@1 do not differ\n"


def test_export_and_import(registry: Registry, folder: Path, tmp_path: Path) -> None:
    pushed(folder, "f1=0.5")
    version = registry.adapters["legal"]["versions"][0]
    archive = tmp_path / "legal.tar"
    assert turnout("adapters", "export", "legal@1", archive).stdout.startswith("wrote legal@1 (sha256:")
    registry.adapters.clear()
    assert turnout("adapters", "import", archive).stdout.startswith("pushed legal@1 sha256:")
    assert registry.adapters["legal"]["versions"] == [version]
    assert in_json("adapters", "import", archive, "--name", "other")["version"] == version
    assert ".tar" in turnout("adapters", "export", "legal@1", tmp_path / "legal.zip", code=2).stderr
    assert "cannot be written" in turnout("adapters", "export", "legal@1", tmp_path / "no" / "a.tar", code=2).stderr


def test_share(registry: Registry, folder: Path) -> None:
    pushed(folder, "f1=0.5")
    share = ("adapters", "share", "legal")
    assert turnout(*share, "--with", "globex,initech").stdout == "legal is seen by acme, globex, initech\n"
    assert registry.bodies[-1] == {"public": False, "shared_with": ["globex", "initech"]}
    assert turnout(*share, "--public").stdout == "legal is seen by everyone\n"
    assert turnout(*share, "--private").stdout == "legal is seen by acme\n"
    assert registry.bodies[-1] == {"public": False, "shared_with": []}


def test_verify_ends_with_1_when_something_is_wrong(registry: Registry) -> None:
    assert turnout("adapters", "verify").stdout == "checked 3 versions and the audit: all are as they were written\n"
    assert "7 entries" in turnout("audit", "verify").stdout
    registry.faults = [{"subject": "acme/legal@1", "sequence": 3, "what": "it has rotted"}]
    for group in ("adapters", "audit"):
        assert "it has rotted" in turnout(group, "verify", code=1).stdout
        assert in_json(group, "verify", code=1)["faults"] == registry.faults


def test_gc(registry: Registry, folder: Path) -> None:
    pushed(folder, "f1=0.5")
    assert turnout("adapters", "gc", "--dry-run", "--older-than", "7d").stdout.endswith("would free 27 B in 2 files\n")
    assert registry.bodies[-1] == {"dry_run": True, "older_than": "7d"} and registry.blobs
    assert turnout("adapters", "gc").stdout.endswith("freed 27 B in 2 files\n")
    assert registry.bodies[-1] == {"dry_run": False}


def test_a_new_key_alone_is_on_stdout(registry: Registry) -> None:
    patterns = ("--adapters", "legal,support-*")
    made = turnout("keys", "create", "--tenant", "acme", "--scope", "infer,push", *patterns, "--expires", "90d")
    assert re.fullmatch(r"tk_[0-9a-f]{12}_[0-9a-f]{64}\n", made.stdout)
    assert "abababababab of acme for infer, push, until 2026-12-03 07:00:00Z" in made.stderr
    assert made.stdout.strip() not in made.stderr
    rights = {"scopes": ["infer", "push"], "adapters": ["legal", "support-*"], "expires": "90d"}
    assert registry.bodies[-1] == {"tenant": "acme", **rights}
    listed = turnout("keys", "list").stdout
    assert "support-*" in listed and made.stdout.strip() not in listed
    assert turnout("keys", "revoke", "ab" * 6).stdout == "revoked abababababab\n"


def test_tenants(registry: Registry) -> None:
    assert turnout("tenants", "create", "acme").stdout == "created acme\n"
    assert "(tenant_exists)" in turnout("tenants", "create", "acme", code=1).stderr
    signed = turnout("tenants", "require-signed", "acme", "production,staging", "canary")
    assert signed.stdout == "acme: only signed versions as production, staging, canary\n"
    assert turnout("tenants", "list").stdout.splitlines()[1].split()[:2] == ["acme", "production,"]
    assert turnout("tenants", "require-signed", "acme", "--none").stdout == "acme: unsigned versions everywhere\n"
    assert registry.tenants["acme"]["signed_aliases"] == []


def test_what_others_wrote_does_nothing_to_the_terminal(registry: Registry) -> None:
    shown = turnout("audit", "show").stdout
    assert "\\u001b[31mred" in shown and "\x1b" not in shown
    assert turnout("audit", "show", "--limit", "1").stderr == "There may be more: turnout audit show --after 7\n"


def test_lineage(registry: Registry, tmp_path: Path) -> None:
    registry.lineage = [{"request_id": "req/1", "adapter": "legal", "number": 4, "timings": {"decode": 12.5}}]
    shown = turnout("lineage", "show", "req/1").stdout
    assert re.search(r"number +4\n", shown) and re.search(r"timings +decode=12.5\n", shown)
    assert in_json("lineage", "show", "req/1") == {"data": registry.lineage}
    assert "nothing is known" in turnout("lineage", "show", "req/2", code=1).stdout
    file = tmp_path / "lineage.jsonl"
    assert turnout("lineage", "export", file, "--since", "2026-12-01T00:00:00Z").stdout == f"wrote 21 B to {file}\n"
    assert file.read_bytes() == b'{"request_id":"one"}\n'
    assert registry.requests[-1] == "GET /admin/v1/lineage?format=jsonl&since=2026-12-01T00%3A00%3A00Z"


def test_every_command_speaks_json(registry: Registry, folder: Path, tmp_path: Path) -> None:
    commands = [
        ("adapters", "push", folder, "--name", "legal"),
        ("adapters", "list"),
        ("adapters", "show", "legal"),
        ("adapters", "show", "legal@1"),
        ("adapters", "promote", "legal@1", "production"),
        ("adapters", "alias", "legal@1", "staging"),
        ("adapters", "history", "legal"),
        ("adapters", "diff", "legal@1", "legal@1"),
        ("adapters", "unalias", "legal@staging"),
        ("adapters", "share", "legal", "--public"),
        ("adapters", "export", "legal@1", tmp_path / "a.tar"),
        ("adapters", "import", tmp_path / "a.tar"),
        ("adapters", "verify"),
        ("adapters", "gc", "--dry-run"),
        ("adapters", "unalias", "legal@production"),
        ("adapters", "delete", "legal@1"),
        ("adapters", "delete", "legal"),
        ("keys", "create", "--scope", "infer"),
        ("keys", "list"),
        ("keys", "revoke", "ab" * 6),
        ("tenants", "create", "acme"),
        ("tenants", "list"),
        ("tenants", "require-signed", "acme", "production"),
        ("audit", "show"),
        ("audit", "verify"),
        ("lineage", "export", tmp_path / "lineage.jsonl"),
    ]
    for command in commands:
        assert isinstance(in_json(*command), dict), command


def test_help_loads_nothing_heavy_and_a_command_in_a_pipe_is_plain(registry: Registry, folder: Path) -> None:
    code = (
        "import sys; from turnout.cli import app; "
        "heavy = {'torch', 'numpy', 'httpx', 'fastapi', 'sqlalchemy', 'obstore'} & set(sys.modules); "
        "assert not heavy, heavy; app()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "adapters", "--help"], capture_output=True, text=True, check=True
    )
    assert "promote" in done.stdout
    push = [sys.executable, "-m", "turnout", "adapters", "push", str(folder), "--name", "legal"]
    done = subprocess.run(push, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.startswith("pushed legal@1") and "\x1b" not in done.stdout + done.stderr
