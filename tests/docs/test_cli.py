"""docs/cli.md against the commands as they are."""

import re
import subprocess
import sys
from pathlib import Path

import click
import typer

from tests.client.conftest import folder, registry, running_registry
from turnout.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
GROUPS = ("adapters", "keys", "tenants", "audit", "lineage")

__all__ = ["folder", "registry", "running_registry"]


def commands() -> dict[str, click.Command]:
    """`adapters push` and the like, by how they are called."""
    groups = typer.main.get_command(app).commands
    return {f"{group} {name}": command for group in GROUPS for name, command in groups[group].commands.items()}


def synopses() -> dict[str, str]:
    """What the page shows of each command, by how it is called."""
    block = re.search(r"^```\n(turnout adapters.*?)^```$", PAGE, re.M | re.S)[1]
    shown = re.split(r"(?:^|\n|\s{2,})turnout (?=[a-z]+ [a-z-]+)", block)
    return {" ".join(text.split()[:2]): text for text in shown if text.strip()}


def test_every_command_is_shown_with_its_options_and_no_others() -> None:
    common = {"--url", "--tenant", "--json", "--help"}
    shown = synopses()
    assert set(shown) == set(commands())
    for name, command in commands().items():
        options = {option for param in command.params for option in param.opts if option.startswith("--")} - common
        assert set(re.findall(r"--[a-z-]+", shown[name])) - common == options, name


def test_the_python_lines(registry, folder) -> None:
    code = re.search(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[1]
    subprocess.run([sys.executable, "-c", code], cwd=folder.parent, check=True)
    assert registry.adapters["legal"]["aliases"] == {"production": 1}
