"""Settings: sizes, limits, keys."""

from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import SettingsError
from turnout.core.settings import Settings, check_reach, is_loopback, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("4GiB", 4 << 30),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        ("1e9", 10**9),
        ("1.5e9", 15 * 10**8),
        ("2GB", 2 * 10**9),
        ("2g", 2 * 10**9),
        ("2Gi", 2 << 30),
        ("1.5KiB", 1536),
        ("0.3KiB", 307),
        ("7B", 7),
        (" 1TiB ", 1 << 40),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GiB",
        "-1",
        "+1",
        "1e",
        "1e999",
        "1.",
        ".5",
        "1x",
        "1ib",
        "1 G iB",
        "nan",
        "inf",
        "0x10",
        "1_000",
        "٣",
        "1,5g",
    ],
)
def test_what_is_no_size_is_an_error_that_repeats_it(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a size") as caught:
        parse_bytes(text)
    assert f"'{text}'" in caught.value.message


@given(st.integers(0, 2**62), st.sampled_from(["", "b", "k", "kB", "KiB", "Mi", "MiB", "GB", "GiB", "t", "TiB"]))
def test_whole_numbers_are_exact_in_every_unit(number: int, unit: str) -> None:
    base = 1024 if "i" in unit else 1000
    power = " kmgt".index(unit[:1].lower()) if unit and unit != "b" else 0
    assert parse_bytes(f"{number}{unit}") == parse_bytes(f"{number} {unit.upper()}") == number * base**power


@given(st.text(max_size=10))
def test_any_text_is_a_size_or_a_settings_error(text: str) -> None:
    with suppress(SettingsError):
        assert parse_bytes(text) >= 0


def test_the_defaults_are_safe() -> None:
    settings = Settings(base="folder")
    assert is_loopback(settings.host)
    assert settings.admin_key is None
    assert settings.roots == ()


def test_settings_never_change_and_know_no_other_keys() -> None:
    settings = Settings(base="folder")
    with pytest.raises(FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError, match="max_token"):
        Settings(base="folder", max_token=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 0) for name in ("max_batch_tokens", "max_sequences", "max_waiting", "max_lora_rank", "threads")),
        ("kv_memory", 0),
        ("adapter_memory", -1),
        ("port", -1),
        ("port", 65536),
        ("dtype", "int8"),
        ("base", ""),
        ("served_model_name", ""),
        ("max_batch_tokens", 63),
    ],
)
def test_a_value_out_of_bounds_is_an_error_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match="--" + name.replace("_", "-")):
        Settings(**{"base": "folder", "max_sequences": 64, name: value})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "example.org", "localhost.example.org"])
def test_a_server_that_others_can_reach_needs_a_key(host: str) -> None:
    with pytest.raises(SettingsError, match="TURNOUT_API_KEY"):
        check_reach(host, guarded=False)
    check_reach(host, guarded=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    check_reach(host, guarded=False)


@pytest.mark.parametrize("name", ["api_key", "admin_key"])
@pytest.mark.parametrize("key", ["", " ", "two words", "line\n", "schlüssel", "\x00"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(name: str, key: str) -> None:
    with pytest.raises(SettingsError, match=name.upper()) as caught:
        Settings(base="folder", **{name: key})
    assert not key.strip() or key not in caught.value.message


def test_keys_never_show() -> None:
    settings = Settings(base="folder", api_key="hush-1", admin_key="hush-2")
    assert "hush" not in repr(settings)
    assert "hush" not in f"{settings}"
    assert {f.name for f in fields(Settings) if not f.repr} == {"api_key", "admin_key", "registry"}


def test_adapters_may_be_loaded_from_all_folders_named_at_start() -> None:
    settings = Settings(
        base="folder",
        adapters=Path("shelf"),
        named_adapters=(("a", Path("one")), ("b", Path("two"))),
        adapter_roots=(Path("root"),),
    )
    assert settings.roots == (Path("shelf"), Path("one"), Path("two"), Path("root"))
