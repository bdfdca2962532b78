"""The README's commands, run as they stand but for the port."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_serve import run, server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


@pytest.fixture(scope="module")
def url():
    """The server that the README's command starts."""
    command = next(block for block in blocks("sh") if block.startswith("turnout serve"))
    arguments = shlex.split(command)[2:]
    with server(*arguments) as (url, _):
        yield url


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^make (\w+)", README, re.M)
    assert targets == ["demo", "test"]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_the_curl_line(url) -> None:
    command = next(block for block in blocks("sh") if block.startswith("curl")).replace("http://127.0.0.1:8000", url)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=True)
    assert "x-turnout-adapter: sentiment@1" in done.stdout.lower()
    assert '"content":"positive"' in done.stdout


def test_the_python_lines(url) -> None:
    code = blocks("python")[0].replace("http://127.0.0.1:8000", url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    shown = [line.split(" ", 1)[0] for line in done.stdout.splitlines()]
    assert {"smollm2-135m", "json-extract", "sql-helper", "support-tone", "sentiment"} <= set(shown)


def test_the_demo() -> None:
    done = run("demo", "--port", "18731")
    assert done.returncode == 0, done.stdout + done.stderr
    for route in ("smollm2-135m@0", "json-extract@1", "sql-helper@1", "support-tone@1", "sentiment@1"):
        assert route in done.stdout
    assert "first_token" in done.stdout and "curl -i http://127.0.0.1:18731/v1/chat/completions" in done.stdout


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
