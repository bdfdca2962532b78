"""`turnout serve` as a process: what a user sees at start, in use and at the end."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.adapters import marker_adapter, random_adapter
from tests.support.bases import write_alphabet_base
from turnout.kernels import native


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "turnout", *map(str, arguments)]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="turnout-home-") as home:
        env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TURNOUT_HOME": home, **environment}
        return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, env=env, check=False)


@contextmanager
def server(*arguments: str, **environment: str):
    """A running server; yields its URL and the process, whose log goes on on stderr. It has a home of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="turnout-home-") as home,
        _server(*arguments, **{"TURNOUT_HOME": home, **environment}) as running,
    ):
        yield running


@contextmanager
def _server(*arguments: str, **environment: str):
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment}
    process = subprocess.Popen(command("serve", "--port", "0", *arguments), stderr=subprocess.PIPE, text=True, env=env)
    log = ""
    try:
        for line in process.stderr:
            log += line
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                break
        else:
            pytest.fail(log)
        process.log = log
        yield found[1], process
    finally:
        process.kill()
        process.communicate()


def ask(url: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return write_alphabet_base(tmp_path_factory.mktemp("models") / "alphabet")


@pytest.fixture(scope="module")
def adapters(base, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("adapters")
    marker_adapter(root / "always-A", 65)
    marker_adapter(root / "always-B", 66)
    (root / "notes.txt").write_text("not an adapter")
    (root / "empty-folder").mkdir()
    return root


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_and_stop(base, adapters, tmp_path, dtype, number) -> None:
    more = marker_adapter(tmp_path / "c", ord("C"))
    arguments = ["--base", base, "--adapters", adapters, "--adapter", f"org/always-C={more}", "--dtype", dtype]
    with server(*arguments) as (url, process):
        for model, text in (("alphabet", "BCD"), ("always-A", "AAA"), ("always-B", "BBB"), ("org/always-C", "CCC")):
            got = ask(url, {"model": model, "prompt": "A", "max_tokens": 3, "temperature": 0})
            assert got["choices"][0]["text"] == text
        assert "always-A@1" in process.log and "adapts 1 modules, leaves 13 alone" in process.log
        assert "only this machine can reach the server" in process.log
        process.send_signal(number)
        _, rest = process.communicate(timeout=30)
        assert process.returncode == 0, rest
        assert "Traceback" not in rest


def test_a_stream_that_runs_is_finished_before_the_end(base) -> None:
    with server("--base", base) as (url, process):
        body = {"prompt": "A", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            first = response.readline()
            process.send_signal(signal.SIGTERM)
            rest = response.read()
        assert first.startswith(b"data: ") and rest.rstrip().endswith(b"data: [DONE]")
        assert process.wait(30) == 0


@pytest.mark.skipif(not native.instruction_sets(), reason="needs the native kernels")
def test_int8_weights_serve_base_and_adapters(base, adapters) -> None:
    with server("--base", base, "--adapters", adapters, "--dtype", "bfloat16", "--weights", "int8") as (url, process):
        for model, text in (("alphabet", "BCD"), ("always-A", "AAA"), ("always-B", "BBB")):
            got = ask(url, {"model": model, "prompt": "A", "max_tokens": 3, "temperature": 0})
            assert got["choices"][0]["text"] == text
        assert "native-int8" in process.log


def refusal(*arguments: str, **environment: str) -> str:
    done = run("serve", "--port", "0", *arguments, **environment)
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_cannot_be_served_is_explained_at_once(base, adapters, tmp_path) -> None:
    assert "there is no base model at" in refusal("--base", str(tmp_path / "nothing.gguf"))
    assert "there is no folder" in refusal("--base", base, "--adapters", tmp_path / "nothing")
    assert "holds an adapter_config.json" in refusal("--base", base, "--adapters", tmp_path)
    assert "NAME=PATH" in refusal("--base", base, "--adapter", "oops")
    assert "float32, bfloat16, not 'int3'" in refusal("--base", base, "--dtype", "int3")
    assert "auto, int8, not 'int4'" in refusal("--base", base, "--weights", "int4")
    assert "names no native kernels that can run here" in refusal("--base", base, TURNOUT_CPU="sse9")
    assert "they compute in bfloat16 only" in refusal("--base", base, "--dtype", "float32", "--weights", "int8")
    assert "is not a size" in refusal("--base", base, "--kv-memory", "lots")
    assert "less than one block" in refusal("--base", base, "--kv-memory", "10")
    assert "--max-batch-tokens" in refusal("--base", base, "--max-batch-tokens", "1")
    wrong = random_adapter(tmp_path / "wrong", base, targets=("q_proj",), seed=1)
    config = json.loads((wrong / "adapter_config.json").read_text())
    (wrong / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    assert "use_dora" in refusal("--base", base, "--adapter", f"w={wrong}")


def test_beyond_this_machine_a_key_is_needed(base) -> None:
    assert "TURNOUT_API_KEY" in refusal("--base", base, "--host", "0.0.0.0")
    with server("--base", base, "--host", "0.0.0.0", TURNOUT_API_KEY="secret-key") as (url, process):
        port = url.rpartition(":")[2]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"http://127.0.0.1:{port}", {"prompt": "A"})
        assert "secret-key" not in process.log


def test_a_port_that_is_taken_is_said_before_the_model_is_loaded(base) -> None:
    with server("--base", base) as (url, _):
        port = url.rpartition(":")[2]
        done = run("serve", "--base", str(base), "--port", port)
        assert done.returncode == 2 and "choose another --port" in done.stderr
        assert "loading" not in done.stderr


def test_help_needs_no_torch() -> None:
    """The command answers fast: heavy libraries are loaded by what needs them."""
    code = "import sys, turnout.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    done = run("serve", "--help")
    assert done.returncode == 0 and "--max-batch-tokens" in done.stdout
