"""Tokenizer folders, written once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.tokenizers import write_tokenizer
from tests.text.folders import write_fallback, write_metaspace, write_smollm2
from turnout.text.tokenizer import Tokenizer, load_tokenizer

WRITERS: dict[str, Callable[[Path], None]] = {
    "bytes": write_tokenizer,
    "smollm2": write_smollm2,
    "fallback": write_fallback,
    "fallback-unstripped": partial(write_fallback, strip=False),
    "metaspace": write_metaspace,
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder for each of WRITERS."""
    made = {}
    for name, write in WRITERS.items():
        made[name] = tmp_path_factory.mktemp(name)
        write(made[name])
    return made


@pytest.fixture(scope="session")
def loaded(folders: dict[str, Path]) -> dict[str, Tokenizer]:
    """The tokenizer of each folder."""
    return {name: load_tokenizer(folder) for name, folder in folders.items()}
