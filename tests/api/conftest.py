"""Servers that tests of a module share; a test that changes what is served starts its own."""

import pytest

from tests.support.adapters import marker_adapter, random_adapter
from tests.support.bases import write_alphabet_base, write_random_base, write_scripted_base
from tests.support.servers import serving

SMILE = {0x78: 0xF0, 0xF0: 0x9F, 0x9F: 0x98, 0x98: 0x80, 0x80: 257}
"""After `x` the four bytes of U+1F600, then the end."""


@pytest.fixture(scope="session")
def alphabet_base(tmp_path_factory):
    return write_alphabet_base(tmp_path_factory.mktemp("alphabet"))


@pytest.fixture(scope="session")
def random_base(tmp_path_factory):
    return write_random_base(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def markers(tmp_path_factory):
    """Adapters of the alphabet base: `always-A`, `always-B`, `always-end`."""
    root = tmp_path_factory.mktemp("markers")
    tokens = {"always-A": 65, "always-B": 66, "always-end": 257}
    return {name: marker_adapter(root / name, token) for name, token in tokens.items()}


@pytest.fixture(scope="module")
def alphabet(alphabet_base, markers):
    with serving(alphabet_base, markers) as served:
        yield served


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    root = tmp_path_factory.mktemp("scripted")
    base = write_scripted_base(root / "base", SMILE)
    nothing = {name: marker_adapter(root / name, 65, scale=0.0) for name in ("one", "two")}
    with serving(base, nothing) as served:
        yield served


@pytest.fixture(scope="module")
def tiny(random_base, tmp_path_factory):
    """The random base, with one random adapter `x`."""
    x = random_adapter(tmp_path_factory.mktemp("x") / "x", random_base, seed=5)
    with serving(random_base, {"x": x}) as served:
        yield served
