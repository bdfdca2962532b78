"""What is measured, and what every peer is given for it."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Literal

from benchmarks.load import Load, Report, zipf

BASE = "base"


@dataclass(frozen=True)
class Case:
    """One load. `models`: which adapters it draws. `measure` is what its row of the table compares."""

    name: str
    clients: int
    requests: int
    models: Literal["zipf", "one", "base"]
    prompt_tokens: int = 64
    output_tokens: int = 64
    weights: Literal["bfloat16", "int8"] = "bfloat16"
    measure: Literal["tokens", "ttft"] = "tokens"

    def load(self, vocab_size: int) -> Load:
        """The load for a vocabulary."""
        return Load(self.clients, self.requests, self.prompt_tokens, self.output_tokens, vocab_size)

    def drawn(self, names: list[str]) -> Iterator[str]:
        """Names of adapters, or BASE, one for each request."""
        if self.models == "zipf":
            return zipf(names, 1.0, random.Random(0))
        return repeat(names[1] if self.models == "one" else BASE)


@dataclass(frozen=True)
class Setup:
    """What all peers share: the base in both of its forms, adapters as PEFT folders, threads, a folder for files.

    `environments`: where peers keep their virtual environments, which outlive a run.
    """

    folder: Path
    gguf: Path
    config: Mapping[str, int]
    adapters: Mapping[str, Path]
    threads: int
    files: Path
    environments: Path


Figures = Mapping[str, Report | str]
"""By a case's name: what was measured, or why nothing was."""
