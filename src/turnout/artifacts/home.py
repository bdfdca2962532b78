"""The folder in which Turnout keeps what it can make again, such as converted weights."""

import os
from pathlib import Path

from turnout.core.errors import SettingsError


def home() -> Path:
    """`$TURNOUT_HOME`, else `turnout` in `$XDG_CACHE_HOME` or `~/.cache`; made for the owner alone if missing.

    Raises SettingsError when it cannot be made.
    """
    chosen = os.environ.get("TURNOUT_HOME")
    folder = Path(chosen).expanduser() if chosen else _cache_home() / "turnout"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"the folder {folder} cannot be made ({error}); set TURNOUT_HOME to one that can"
        ) from error
    return folder


def _cache_home() -> Path:
    """The XDG base directory rule: a relative path in the variable is to be ignored."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".cache"
