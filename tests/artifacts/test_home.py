import stat
import sys

import pytest

from turnout.artifacts.home import data_home, home
from turnout.core.errors import SettingsError


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("TURNOUT_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


@pytest.mark.parametrize("made", [home, data_home])
def test_the_folder_is_made_for_the_owner_alone(monkeypatch, tmp_path, made):
    assert stat.S_IMODE(made().stat().st_mode) == 0o700
    monkeypatch.setenv("TURNOUT_HOME", str(tmp_path / "a" / "b"))
    assert made() == tmp_path / "a" / "b"
    assert stat.S_IMODE(made().stat().st_mode) == 0o700


def test_the_order_of_places(monkeypatch, tmp_path):
    assert home() == tmp_path / "user" / ".cache" / "turnout"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert home() == tmp_path / "user" / ".cache" / "turnout"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home() == tmp_path / "cache" / "turnout"
    monkeypatch.setenv("TURNOUT_HOME", "~/mine")
    assert home() == tmp_path / "user" / "mine"


def test_what_cannot_be_made_again_is_kept_out_of_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_home() == tmp_path / "user" / ".local" / "share" / "turnout"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_home() == tmp_path / "user" / "Library" / "Application Support" / "turnout"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_home() == tmp_path / "user" / "Library" / "Application Support" / "turnout"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert data_home() == tmp_path / "data" / "turnout"
    monkeypatch.setenv("TURNOUT_HOME", "~/mine")
    assert data_home() == tmp_path / "user" / "mine"


@pytest.mark.parametrize("made", [home, data_home])
def test_a_place_that_cannot_be_made_is_named(monkeypatch, tmp_path, made):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TURNOUT_HOME", str(tmp_path / "file"))
    with pytest.raises(SettingsError, match=r"file cannot be made .* set TURNOUT_HOME"):
        made()
