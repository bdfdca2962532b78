"""Object stores by URL: S3 and what speaks like it, Google's and Azure's."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from obstore.exceptions import BaseError
from obstore.store import from_url

from turnout.core.errors import ArtifactStoreFailure, SettingsError
from turnout.core.settings import is_loopback

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

SCHEMES = ("s3", "gs", "az")

_RETRIES: "RetryConfig" = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


def is_remote(reference: str) -> bool:
    """Whether `reference` is a URL rather than a path."""
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", reference) is not None


def remote_store(url: str) -> "ObjectStore":
    """The object store that `url` names, `s3://bucket/prefix` for example; nothing is asked of it yet.

    Credentials, region and endpoint come from the environment, by the names each provider's own tools use.
    Raises SettingsError, saying what is wrong with the URL or missing from the environment.
    """
    _check(urlsplit(url))
    try:
        return from_url(url, client_options=_client(), retry_config=_RETRIES)
    except (BaseError, ValueError) as error:
        raise SettingsError(f"the store {url} cannot be used: {said(error)}") from error


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise what an object store or a file system says as ArtifactStoreFailure, naming the store."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise ArtifactStoreFailure(f"the artefact store {where} failed: {said(error)}") from error


def said(error: Exception) -> str:
    """The first line of an error, without the query of a URL in it, where signatures are."""
    return re.sub(r"\?\S+", "", str(error).partition("\n")[0])


def _check(parts: SplitResult) -> None:
    # The message shows no more than the scheme and host: what is around them may be a secret.
    shown = f"{parts.scheme}://{parts.hostname or ''}"
    if parts.scheme not in SCHEMES:
        raise SettingsError(
            f"{shown}… is no artefact store: expected a folder's path, or a URL of one of {', '.join(SCHEMES)} "
            "such as s3://bucket/prefix"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise SettingsError(
            f"the store {shown}… must be named by bucket and prefix alone; give credentials, region and endpoint in "
            "the environment, as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL"
        )
    if not parts.hostname:
        raise SettingsError(f"the store {parts.scheme}://{parts.path} names no bucket; write {parts.scheme}://bucket")


def _client() -> "ClientConfig":
    # The library's own limit of 30 s is for a whole transfer, bodies included; what matters is that bytes still come.
    limits: ClientConfig = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "6h"}
    # Given options replace those of the environment, so this one is read here.
    host = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1") or is_loopback(host):
        limits["allow_http"] = True
    return limits
