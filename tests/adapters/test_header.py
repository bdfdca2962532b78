"""The safetensors header: damaged files are refused at once, good ones read as the format's own library reads them."""

import contextlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from tests.adapters.folders import adapter, load
from turnout.adapters.header import TensorEntry, parse_header, read_header
from turnout.adapters.tensors import read_bytes
from turnout.core.errors import AdapterFileError, AdapterTensorError, TurnoutError

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def packed(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(*offsets: int, dtype: str = "F32", shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def read(path: Path, content: bytes) -> tuple[TensorEntry, ...]:
    path.write_bytes(content)
    with path.open("rb") as file:
        return read_header(file, "file")


def test_damaged_files(tmp_path: Path) -> None:
    good = (adapter(tmp_path) / "adapter_model.safetensors").read_bytes()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    assert int.from_bytes(pointer[:8], "little") == 2336927755350992246
    cases = {
        "looks like a Git LFS pointer": pointer,
        "cut short": good[:-100],
        "bytes after its last tensor": good + bytes(16),
        "is empty": b"",
        "too short": good[:7],
        "announces a header of 1099511627776 bytes": (1 << 40).to_bytes(8, "little") + bytes(1016),
        "announces a header of 18446744073709551615 bytes": b"\xff" * 8 + bytes(1016),
        "announces a header": good[:100],
        "not valid JSON": packed(b"PK\x03\x04"),
        "has 104 in all": (97).to_bytes(8, "little") + bytes(96),
    }
    for message, content in cases.items():
        (tmp_path / "adapter_model.safetensors").write_bytes(content)
        with pytest.raises(AdapterFileError, match=message) as caught:
            load(tmp_path)
        assert "adapter_model.safetensors" in caught.value.message
    (tmp_path / "adapter_model.safetensors").write_bytes(good)
    assert load(tmp_path).adapted == 4


def test_nothing_large_is_allocated_for_a_huge_length(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write((1 << 40).to_bytes(8, "little"))
        file.truncate(1 << 41)
    tracemalloc.start()
    with path.open("rb") as file, pytest.raises(AdapterFileError, match="announces"):
        read_header(file, "file")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ({"a": entry(0, 8), "b": entry(4, 12)}, 12),
        ({"a": entry(0, 8), "b": entry(0, 8)}, 8),
        ({"a": entry(0, 8), "b": entry(12, 20)}, 20),
        ({"a": entry(4, 12)}, 12),
        ({"a": entry(0, 8)}, 9),
        ({"a": entry(0, 8)}, 7),
        ({"a": entry(8, 0)}, 8),
        ({"a": entry(0, 4)}, 4),
        ({"a": entry(0, 8, shape=(2, 2))}, 8),
        ({"a": entry(0, 8, dtype="F16")}, 8),
        ({"a": entry(-8, 0)}, 8),
        ({"a": entry(0, 8, shape=(-2,))}, 8),
        ({"a": entry(0, 8, shape=(-1, -2))}, 8),
        ({"a": entry(0, 8.0)}, 8),
        ({"a": entry(0, 8, shape=(True, 2))}, 8),
        ({"a": entry(0, 8, 8)}, 8),
        ({"a": entry(0)}, 8),
        ({"a": entry(0, 0, shape=(1 << 40, 1 << 40))}, 0),
        ({"a": entry(0, 10**400, shape=(10**400,))}, 8),
        ({"a": entry(0, 0, shape=(0,) * 9)}, 0),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8),
        ({"a": {**entry(0, 8), "strides": [1]}}, 8),
        ({"a": [0, 8]}, 8),
        ({"a": {**entry(0, 8), "shape": "2"}}, 8),
        ({"__metadata__": {"format": 1}}, 0),
        ({"__metadata__": []}, 0),
        ([], 0),
        (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "a": {}}', 8),
        (b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', 8),
        (b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}}', 8),
        (b"\xff\xfe{}", 0),
        (b"", 0),
    ],
)
def test_headers_that_contradict_themselves(tmp_path: Path, header: Any, body: int) -> None:
    with pytest.raises(AdapterFileError):
        read(tmp_path / "file", packed(header, bytes(body)))


@pytest.mark.parametrize("dtype", ["F64", "I64", "I8", "BOOL", "F8_E4M3", "f32", "", "X" * 10_000])
def test_dtypes_that_are_not_read(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(AdapterTensorError, match=r"'weight' has dtype '.*', expected F32, F16, BF16") as caught:
        read(tmp_path / "file", packed({"weight": entry(0, 8, dtype=dtype)}, bytes(8)))
    assert len(caught.value.message) < 300


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(packed({"a": entry(0, 4 << 20, shape=(1 << 20,))}, bytes(4 << 20)))
    with path.open("rb") as file:
        (tensor,) = read_header(file, "file")
        path.write_bytes(b"")
        with pytest.raises(AdapterFileError, match="became shorter"):
            read_bytes(file, tensor, "file")


shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
tensors = st.dictionaries(
    st.text(max_size=12).filter(lambda name: name != "__metadata__"),
    st.tuples(shapes, st.sampled_from(list(DTYPES.values()))),
    max_size=5,
)


def saved(described: dict[str, tuple[tuple[int, ...], torch.dtype]]) -> bytes:
    content = {
        name: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
        for name, (shape, dtype) in described.items()
    }
    return save(content, metadata={"format": "pt"})


def check_against_library(path: Path, content: bytes) -> None:
    """Read the content as we do, and hold every name, shape, dtype and byte to the library's."""
    path.write_bytes(content)
    with path.open("rb") as file:
        ours = {
            tensor.name: (tensor.dtype, list(tensor.shape), read_bytes(file, tensor, "file").tobytes())
            for tensor in read_header(file, "file")
        }
    theirs = {
        name: (view["dtype"], view["shape"], bytes(view["data"])) for name, view in safetensors.deserialize(content)
    }
    assert ours == theirs


fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)


@fuzz
@given(described=tensors)
def test_good_files_read_as_the_library_reads_them(
    tmp_path: Path, described: dict[str, tuple[tuple[int, ...], torch.dtype]]
) -> None:
    check_against_library(tmp_path / "file", saved(described))


@fuzz
@given(described=tensors, data=st.data())
def test_damaged_files_are_refused_or_read_as_the_library_reads_them(
    tmp_path: Path, described: dict[str, tuple[tuple[int, ...], torch.dtype]], data: st.DataObject
) -> None:
    content = bytearray(saved(described))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        match data.draw(st.sampled_from(["change", "insert", "delete"])):
            case "change" if at < len(content):
                content[at] = data.draw(st.one_of(st.sampled_from(b'0123456789-.eE[]{}",: FB'), st.integers(0, 255)))
            case "insert":
                content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
            case _:
                del content[at : at + data.draw(st.integers(1, 8))]
    with contextlib.suppress(TurnoutError):
        check_against_library(tmp_path / "file", bytes(content))


@fuzz
@given(text=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)), body=st.integers(0, 64))
def test_random_headers(text: bytes, body: int) -> None:
    with contextlib.suppress(TurnoutError):
        parse_header(text, body, "file")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
json_entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16"]) | json_values,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(-1, 64), min_size=2, max_size=2) | json_values,
    }
)


@fuzz
@given(
    header=st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), json_entries | json_values, max_size=3),
    body=st.integers(0, 64),
)
def test_random_json_headers(header: dict[str, Any], body: int) -> None:
    text = json.dumps(header).encode()
    try:
        entries = parse_header(text, body, "file")
    except TurnoutError:
        return
    assert sum(tensor.nbytes for tensor in entries) == body
