"""One server for each module, emptied for each test."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tests.client.server import TOKEN, Registry, running
from turnout import Client


@pytest.fixture(scope="session")
def running_registry() -> Iterator[Registry]:
    with running() as registry:
        yield registry


@pytest.fixture
def registry(running_registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    """An empty server, which the environment names, and a home without any keys."""
    empty = Registry(running_registry.url)
    for each in fields(Registry):
        setattr(running_registry, each.name, getattr(empty, each.name))
    monkeypatch.setenv("TURNOUT_URL", running_registry.url)
    monkeypatch.setenv("TURNOUT_API_KEY", TOKEN)
    monkeypatch.setenv("TURNOUT_HOME", str(tmp_path / "home"))
    return running_registry


@pytest.fixture
def client(registry: Registry) -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter's files, of which only the names matter here."""
    return write_folder(tmp_path / "legal", b"weights")


def write_folder(folder: Path, weights: bytes) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder
