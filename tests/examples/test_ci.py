"""The evaluation that a release from CI runs, against a real server, and the workflow around it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import typer
import yaml

from tests.support.adapters import marker_adapter
from tests.support.bases import write_alphabet_base
from tests.support.servers import serving
from turnout.cli import app

CI = Path(__file__).parents[2] / "examples" / "ci"


def test_evaluate_writes_metrics_as_push_reads_them(tmp_path: Path) -> None:
    base = write_alphabet_base(tmp_path / "base")
    adapter = marker_adapter(tmp_path / "always-A", ord("A"))
    cases = [{"prompt": "x", "answer": "A" * 64}, {"prompt": "y", "answer": "B"}]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    with serving(base, {"always-A": adapter}) as served:
        environment = {**os.environ, "TURNOUT_URL": served.url, "TURNOUT_API_KEY": "none"}
        command = [sys.executable, CI / "evaluate.py", "always-A", tmp_path / "cases.jsonl", tmp_path / "metrics.txt"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (tmp_path / "metrics.txt").read_text() == "exact=0.5000\ncases=2\n"
    assert done.stdout == "always-A: 1 of 2 answers are exact\n"


def test_the_workflow_uses_commands_and_options_that_there_are() -> None:
    workflow = yaml.safe_load((CI / "adapter-release.yml").read_text())
    lines = " ".join(step.get("run", "") for step in workflow["jobs"]["release"]["steps"])
    groups = typer.main.get_command(app).commands
    used = re.findall(r"turnout (adapters) (\w+)([^|]*?)(?=turnout|\||$)", lines)
    assert [name for _, name, _ in used] == ["push", "push", "promote"]
    for group, name, rest in used:
        known = {option for param in groups[group].commands[name].params for option in param.opts}
        assert set(re.findall(r"(?<!\w)--[a-z-]+", rest)) <= known
