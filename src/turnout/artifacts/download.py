"""Fetching a file over HTTPS whose digest is known beforehand."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from turnout.artifacts.verify import verified
from turnout.core.errors import AdapterError, AdapterPathNotFound, AdapterTooLarge, ArtifactDigestMismatch
from turnout.core.identity import Digest
from turnout.core.settings import is_loopback

_TIMEOUT = 60.0
_CHUNK = 1 << 20


def download(url: str, digest: Digest, to: Path, *, max_bytes: int) -> None:
    """Write what `url` answers to a new file at `to`, checked against `digest` on the way.

    Only https is spoken, on every step of a redirect; http to this machine alone. Raises AdapterError for any other
    URL, AdapterPathNotFound when there is no answer, AdapterTooLarge for more than `max_bytes`, and
    ArtifactDigestMismatch. Messages leave out a URL's query, in which signatures are.
    """
    _check(url, local=True)
    shown = _shown(url)
    mismatch = ArtifactDigestMismatch(f"what {shown} answers does not have the digest {digest}; check both")
    # What is not encrypted stays on this machine: it goes through no proxy either.
    proxies = [urllib.request.ProxyHandler({})] if urlsplit(url).scheme == "http" else []
    opener = urllib.request.build_opener(_CheckedRedirects, *proxies)
    try:
        with opener.open(url, timeout=_TIMEOUT) as answer, to.open("xb") as file:
            for chunk in verified(_limited(answer, max_bytes, shown), digest, mismatch):
                file.write(chunk)
    except urllib.error.HTTPError as error:
        error.close()
        raise AdapterPathNotFound(f"{shown} answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AdapterPathNotFound(f"{shown} cannot be fetched: {error}") from error


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        _check(newurl, local=req.type == "http")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _check(url: str, *, local: bool) -> None:
    """Raise AdapterError unless `url` may be asked: https, or with `local` also http to this machine."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise AdapterError("a URL with a name or password in it is not fetched; use a signed URL instead")
    if parts.scheme == "https" or (local and parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise AdapterError(f"{_shown(url)} is not fetched, nor followed to: only https is, and http to this machine alone")


def _limited(answer: IO[bytes], max_bytes: int, shown: str) -> Iterator[bytes]:
    left = max_bytes
    while chunk := answer.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            raise AdapterTooLarge(f"{shown} is larger than {max_bytes} bytes")
        yield chunk


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
