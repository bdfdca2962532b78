"""`turnout demo`: the whole thing once, with a real model and real adapters."""

import json
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnout.core.errors import SettingsError

BASE = "smollm2-135m"
BASE_QUESTION = "What is gravity? Answer in one sentence."
QUESTIONS = "demo.json"
"""Beside the adapters' folders: adapter names and what to ask them."""

START_SECONDS = 300
ANSWER_SECONDS = 120
STOP_SECONDS = 60
MAX_TOKENS = 96
PHASES = ("resolve", "queue", "adapter_load", "cache_lookup", "prefill", "first_token", "decode", "total")

console = Console()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and the route that its headers name."""

    prompt: str
    route: str
    text: str
    timings: dict[str, float]


def demo(
    adapters: Annotated[
        Path, typer.Option(help="Folder with the demo adapters; the default is there in a clone.")
    ] = Path("examples/adapters"),
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
) -> None:
    """Serve a small model with four adapters, ask them all at once, show the answers, and stop."""
    try:
        questions = {BASE: BASE_QUESTION, **_questions(adapters)}
        command = ["turnout", "serve", "--base", BASE, "--adapters", str(adapters), "--port", str(port)]
        console.print(f"[bold]$ {shlex.join(command)}[/]")
        with _server(command[1:], port) as url:
            console.print(f"Ready. Asking the base and {len(questions) - 1} adapters at the same time…\n")
            with ThreadPoolExecutor(len(questions)) as askers:
                answers = list(askers.map(lambda entry: _ask(url, *entry), questions.items()))
    except SettingsError as error:
        console.print(f"[bold red]error:[/] {error.message}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    _show(answers)
    model, prompt = list(questions.items())[-1]
    console.print("The server has stopped. To go on, start it with the command above, then for example:\n")
    console.print(_curl(port, model, prompt), highlight=False, markup=False, soft_wrap=True)


def _questions(adapters: Path) -> dict[str, str]:
    file = adapters / QUESTIONS
    if not file.is_file():
        raise SettingsError(f"there is no {file}; run the demo in a clone of Turnout, or name its folder by --adapters")
    questions: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return questions


@contextmanager
def _server(arguments: list[str], port: int) -> Iterator[str]:
    """`turnout serve` in a process of its own, stopped by the signal an operator would send."""
    url = f"http://127.0.0.1:{port}"
    # A demonstration leaves nothing in the user's own registry.
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory(prefix="turnout-demo-") as folder:
        kept = ["--registry", f"{folder}/registry.db", "--artifacts", f"{folder}/artifacts"]
        process = subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, "-m", "turnout", *arguments, *kept], stdout=log, stderr=log
        )
        try:
            with console.status("Loading the model (the first time it is converted, which takes a little longer)…"):
                _wait_until_ready(process, url, log)
            yield url
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):  # noqa: S310 (our own server)
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    log.seek(0)
    raise SettingsError(f"the server did not start:\n{log.read().decode(errors='replace')}")


def _body(model: str, prompt: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
    return json.dumps({**body, "max_tokens": MAX_TOKENS, "include_timings": True})


def _ask(url: str, model: str, prompt: str) -> Answer:
    request = urllib.request.Request(  # noqa: S310 (our own server)
        f"{url}/v1/chat/completions", _body(model, prompt).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:  # noqa: S310
        answer = json.load(response)
        route = response.headers["X-Turnout-Adapter"]
    return Answer(prompt, route, answer["choices"][0]["message"]["content"], answer["timings"])


def _show(answers: list[Answer]) -> None:
    texts = Table("served by", "prompt", "answer", show_lines=True, title="Five requests, one batch")
    for answer in answers:
        texts.add_row(answer.route, escape(answer.prompt), escape(answer.text.strip()))
    phases = Table("ms", *(answer.route for answer in answers), title="Where the time went")
    for phase in PHASES:
        phases.add_row(phase, *(f"{answer.timings[f'{phase}_ms']:.1f}" for answer in answers))
    console.print(texts)
    console.print(phases)


def _curl(port: int, model: str, prompt: str) -> str:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return f"curl -i {url} -H 'Content-Type: application/json' -d {shlex.quote(_body(model, prompt))}"
