"""From a GGUF file to a cached Hugging Face folder."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from safetensors.numpy import save_file

from turnout.core.errors import BaseModelError
from turnout.models.gguf.config import model_config
from turnout.models.gguf.tensors import read_tensors
from turnout.models.gguf.tokenizer import generation_config, tokenizer, tokenizer_config

CONVERTER_REVISION = 1
"""Part of the cached folder's name. Raise it whenever the same GGUF file would be converted differently."""


def convert(gguf_file: Path, cache_root: Path) -> Path:
    """The Hugging Face folder of a GGUF file, made on the first call and found under its content's name later.

    Weights are dequantized to float32. Raises BaseModelError for a file that is no GGUF file or of a kind that is
    not supported.
    """
    folder = cache_root / f"gguf-{_file_sha256(gguf_file)}-{CONVERTER_REVISION}"
    if folder.is_dir():
        return folder
    reader = _open(gguf_file)
    try:
        cache_root.mkdir(parents=True, exist_ok=True)
        # A crash leaves at most a temporary folder, and of two processes the slower one finds the folder made.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=cache_root) as temporary:
            unfinished = Path(temporary) / folder.name
            unfinished.mkdir()
            _write(reader, unfinished)
            _publish(unfinished, folder)
    except OSError as error:
        raise BaseModelError(f"the converted model cannot be written to {cache_root}: {error}") from error
    return folder


def _file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BaseModelError(f"{path} cannot be read: {error.strerror}") from error


def _open(path: Path) -> GGUFReader:
    try:
        return GGUFReader(path)
    except (ValueError, KeyError, IndexError) as error:
        raise BaseModelError(f"{path} is not a whole GGUF file: {error}") from error


def _write(reader: GGUFReader, folder: Path) -> None:
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    config = model_config(metadata, {tensor.name: tuple(tensor.shape.tolist()) for tensor in reader.tensors})
    _write_json(folder / "config.json", config)
    _write_json(folder / "tokenizer.json", tokenizer(metadata))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(metadata))
    _write_json(folder / "generation_config.json", generation_config(metadata))
    save_file(read_tensors(reader.tensors, config), folder / "model.safetensors", metadata={"format": "pt"})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _publish(unfinished: Path, folder: Path) -> None:
    """Give a finished folder its name, its files being safe on disk before."""
    for path in unfinished.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
