"""The two folders of Turnout's own: one for what it can make again, one for what nothing can bring back."""

import os
import sys
from pathlib import Path

from turnout.core.errors import SettingsError

ADMIN_TOKEN_FILE = "admin-token"  # noqa: S105 (a file's name)
"""In `data_home`: the key of this machine's operator, which the first start of a server writes."""


def home() -> Path:
    """The folder for what can be made again, such as converted weights; made for the owner alone if missing.

    `$TURNOUT_HOME`, else `turnout` in `$XDG_CACHE_HOME` or `~/.cache`. Raises SettingsError when it cannot be made.
    """
    return _made(_chosen() or _xdg("XDG_CACHE_HOME", ".cache") / "turnout")


def data_home() -> Path:
    """The folder for the registry and its artefacts, which no one may empty to save space; made as `home` is.

    `$TURNOUT_HOME`, else `turnout` in `$XDG_DATA_HOME` or `~/.local/share`, and on macOS in
    `~/Library/Application Support`. Raises SettingsError when it cannot be made.
    """
    default = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return _made(_chosen() or _xdg("XDG_DATA_HOME", default) / "turnout")


def _chosen() -> Path | None:
    named = os.environ.get("TURNOUT_HOME")
    return Path(named).expanduser() if named else None


def _xdg(variable: str, default: str) -> Path:
    """The XDG base directory rule: a relative path in the variable is to be ignored."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"the folder {folder} cannot be made ({error}); set TURNOUT_HOME to one that can"
        ) from error
    return folder
