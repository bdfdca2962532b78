"""Signatures of adapters' files, in the format of OpenSSF model signing, by elliptic keys and without a network.

`{"format": FORMAT, "bundle": …, "public_key": …}`: a Sigstore bundle whose statement lists the files and their SHA-256,
and the key in PEM. That it fits says that the files are those which the holder of that key signed; who that is, the key
must be known for.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.core.errors import InvalidRequest, SettingsError, SignatureInvalid

FORMAT = "openssf-model-signing-1"

_NEEDS = "signatures need model-signing: pip install 'turnout[signing]'"


def sign(folder: Path, files: Iterable[str], private_key: Path) -> dict[str, Any]:
    """The signature of these files in `folder`, by a key of P-256, P-384 or P-521 in an unencrypted PEM file.

    Raises InvalidRequest for any other key, and SettingsError where model-signing is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from model_signing import signing  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(_NEEDS) from error
    try:
        key = serialization.load_pem_private_key(private_key.read_bytes(), None)
        signer = signing.Config().use_elliptic_key_signer(private_key=private_key)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        # The words of whoever reads keys may show what is in them.
        raise InvalidRequest(
            f"{str(private_key)!r} is no key to sign with; make one by: "
            "openssl ecparam -name prime256v1 -genkey -noout -out private.pem",
            param="signature",
        ) from error
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with _alone(folder, files) as (signed, beside):
        signer.sign(signed, beside / "bundle")
        bundle = json.loads((beside / "bundle").read_text(encoding="utf-8"))
    return {"format": FORMAT, "bundle": bundle, "public_key": public.decode()}


def check(folder: Path, files: Iterable[str], signature: Mapping[str, Any]) -> None:
    """Raise SignatureInvalid unless `signature` is one of exactly these files in `folder`, by the key it names.

    Raises SettingsError where model-signing is not installed.
    """
    try:
        from model_signing import verifying  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(_NEEDS) from error
    if signature.get("format") != FORMAT or not isinstance(signature.get("public_key"), str):
        raise SignatureInvalid(
            f"a signature has the format {FORMAT!r}, a bundle and a public_key in PEM", param="signature"
        )
    with _alone(folder, files) as (signed, beside):
        (beside / "bundle").write_text(json.dumps(signature.get("bundle")), encoding="utf-8")
        (beside / "public.pem").write_text(signature["public_key"], encoding="utf-8")
        try:
            verifier = verifying.Config().use_elliptic_key_verifier(public_key=beside / "public.pem")
            verifier.verify(signed, beside / "bundle")
        except Exception as error:
            # Whatever a library for signatures raises over what others sent, it is no proof.
            raise SignatureInvalid(
                "the signature is not one of these files by its key; sign the folder again, or push it without",
                param="signature",
            ) from error


@contextmanager
def _alone(folder: Path, files: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """A folder with these files and no others, for all that is in it counts; and an empty one beside it."""
    with tempfile.TemporaryDirectory(prefix="turnout-") as temporary:
        alone, beside = Path(temporary) / "adapter", Path(temporary) / "beside"
        alone.mkdir()
        beside.mkdir()
        for name in files:
            try:
                os.link((folder / name).resolve(), alone / name)
            except OSError:  # another file system, or one without links
                shutil.copyfile(folder / name, alone / name)
        yield alone, beside
