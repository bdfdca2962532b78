import stat

import pytest

from turnout.artifacts.home import home
from turnout.core.errors import SettingsError


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("TURNOUT_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def test_the_folder_is_made_for_the_owner_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("TURNOUT_HOME", str(tmp_path / "a" / "b"))
    assert home() == tmp_path / "a" / "b"
    assert stat.S_IMODE(home().stat().st_mode) == 0o700


def test_the_order_of_places(monkeypatch, tmp_path):
    assert home() == tmp_path / "user" / ".cache" / "turnout"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert home() == tmp_path / "user" / ".cache" / "turnout"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home() == tmp_path / "cache" / "turnout"
    monkeypatch.setenv("TURNOUT_HOME", "~/mine")
    assert home() == tmp_path / "user" / "mine"


def test_a_place_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TURNOUT_HOME", str(tmp_path / "file"))
    with pytest.raises(SettingsError, match=r"file cannot be made .* set TURNOUT_HOME"):
        home()
