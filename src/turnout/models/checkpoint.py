"""The tensors of a Hugging Face folder: one `model.safetensors` or shards with an index, opened but not yet read."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from turnout.core.errors import BaseModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Open weight files by tensor name; usable within `open_checkpoint` only."""

    folder: Path
    files: Mapping[str, Any]

    def check(self, shapes: Mapping[str, tuple[int, ...]], ignored: frozenset[str]) -> None:
        """Raise BaseModelError unless the tensors are exactly those of `shapes`, in shape and as floats.

        Tensors of `ignored` may be there, and rotary frequencies: old files have them, the config says the same.
        """
        missing = [name for name in shapes if name not in self.files]
        if missing:
            raise self._error(f"{_some(missing)} missing; the config asks for it")
        unexpected = [name for name in self.files if not (name in shapes or name in ignored or _is_rotary(name))]
        if unexpected:
            raise self._error(f"{_some(unexpected)} unexpected: a model of this config has no such tensor")
        for name, shape in shapes.items():
            found = self.files[name].get_slice(name)
            if tuple(found.get_shape()) != shape:
                raise self._error(f"{name} has shape {found.get_shape()}, the config asks for {list(shape)}")
            if found.get_dtype() not in _FLOATS:
                raise self._error(f"{name} is stored as {found.get_dtype()}; supported: {', '.join(_FLOATS)}")

    def read(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor in memory of its own: files are mapped, and what happens to them later must not matter."""
        tensor: Tensor = self.files[name].get_tensor(name)
        return tensor.to(device, dtype, copy=True)

    def _error(self, problem: str) -> BaseModelError:
        return BaseModelError(f"{self.folder}: {problem}")


@contextmanager
def open_checkpoint(folder: Path) -> Iterator[Checkpoint]:
    """Open all weight files. Raises BaseModelError for one that is missing, damaged or repeats a tensor."""
    files: dict[str, Any] = {}
    with ExitStack() as stack:
        for path in weight_files(folder):
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise BaseModelError(f"{path} cannot be read as safetensors: {error}") from error
            for name in file.keys():  # noqa: SIM118 - the file's handle is no mapping
                if name in files:
                    raise BaseModelError(f"{path}: tensor {name} is in another shard as well")
                files[name] = file
        yield Checkpoint(folder, files)


def weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files, as transformers chooses them. Raises BaseModelError when there are none."""
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    index = folder / INDEX
    if not index.exists():
        raise BaseModelError(
            f"{folder} has neither {SINGLE} nor {INDEX}; "
            "weights in other formats, such as pickle, are not read: convert them to safetensors"
        )
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BaseModelError(f"{index} is not an index of shards: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise BaseModelError(f"{index} names the shard {name!r}, which is no file of this folder")
    return [folder / name for name in names]


def _is_rotary(name: str) -> bool:
    return name.endswith("rotary_emb.inv_freq")


def _some(names: list[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
