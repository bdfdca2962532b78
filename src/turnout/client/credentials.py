"""Which server, and with which key."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from turnout.artifacts.home import ADMIN_TOKEN_FILE, data_home
from turnout.core.errors import SettingsError
from turnout.core.settings import is_loopback

DEFAULT_URL = "http://127.0.0.1:8000"


def find_url(url: str | None) -> str:
    """`url`, else `TURNOUT_URL`, else DEFAULT_URL, without a slash at the end. Raises SettingsError."""
    found = (url or os.environ.get("TURNOUT_URL") or DEFAULT_URL).rstrip("/")
    if "@" in found:
        # Not repeated: what is before the @ is a secret.
        raise SettingsError("the server's URL must not hold a name or password; give the key in TURNOUT_API_KEY")
    wrong = SettingsError(f"{found!r} is no server's URL; write it as {DEFAULT_URL} or https://turnout.example.org")
    try:
        parts = urlsplit(found)
        port = parts.port
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise wrong
    return found


def is_local(url: str) -> bool:
    """Whether the server is on this machine."""
    return is_loopback(urlsplit(url).hostname or "")


def find_key(key: str | None, url: str) -> str:
    """`key`, else `TURNOUT_API_KEY`, else the local server's operator key. Raises SettingsError.

    The last is sent to this machine alone, so that no URL can fetch it.
    """
    file = data_home() / ADMIN_TOKEN_FILE if is_local(url) else None
    found = key or os.environ.get("TURNOUT_API_KEY") or (_local_key(file) if file else None)
    if not found:
        local = f", or start a server here, which writes one to {file}" if file else ""
        raise SettingsError(f"there is no key for {url}: set TURNOUT_API_KEY{local}")
    if re.fullmatch("[!-~]+", found) is None:
        # Anything else cannot be sent in a header. What may be nearly the key is not repeated.
        raise SettingsError("the key must be printable ASCII without spaces")
    return found


def _local_key(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SettingsError(f"the key in {file} cannot be read: {error}; set TURNOUT_API_KEY instead") from error
