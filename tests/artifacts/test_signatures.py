"""Signatures: they hold for exactly the files that were signed, by exactly the key that signed them."""

import copy
import socket
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from model_signing import verifying

from turnout.artifacts.signatures import check, sign
from turnout.core.errors import InvalidRequest, SignatureInvalid

FILES = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}
PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def write_key(folder: Path, curve: ec.EllipticCurve | None = None) -> Path:
    file = folder / "private.pem"
    private = ec.generate_private_key(curve or ec.SECP256R1())
    file.write_bytes(private.private_bytes(PEM, PKCS8, serialization.NoEncryption()))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "legal"
    folder.mkdir()
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    (folder / "optimizer.pt").write_bytes(b"not signed")
    return folder


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_what_is_signed_is_found_right_without_a_network(folder, tmp_path, curve, monkeypatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    signature = sign(folder, FILES, write_key(tmp_path, curve))
    check(folder, FILES, signature)


def test_the_tool_that_the_format_is_from_finds_it_right(folder: Path, tmp_path: Path) -> None:
    import json

    signature = sign(folder, FILES, write_key(tmp_path))
    (folder / "optimizer.pt").unlink()
    (tmp_path / "bundle").write_text(json.dumps(signature["bundle"]))
    (tmp_path / "public.pem").write_text(signature["public_key"])
    verifier = verifying.Config().use_elliptic_key_verifier(public_key=tmp_path / "public.pem")
    verifier.verify(folder, tmp_path / "bundle")


def test_other_files_are_noticed(folder: Path, tmp_path: Path) -> None:
    signature = sign(folder, FILES, write_key(tmp_path))
    for others in ([*FILES, "optimizer.pt"], ["adapter_config.json"]):
        with pytest.raises(SignatureInvalid):
            check(folder, others, signature)
    (folder / "adapter_model.safetensors").write_bytes(b"Weights")
    with pytest.raises(SignatureInvalid):
        check(folder, FILES, signature)


def test_another_key_and_rubbish_are_noticed(folder: Path, tmp_path: Path) -> None:
    signature = sign(folder, FILES, write_key(tmp_path))
    other = sign(folder, FILES, write_key(tmp_path))
    changed = copy.deepcopy(signature)
    changed["bundle"]["dsseEnvelope"]["payload"] = "e30="
    for wrong in (
        {**signature, "public_key": other["public_key"]},
        {**signature, "public_key": "rubbish"},
        {**signature, "bundle": {}},
        {**signature, "bundle": None},
        {**signature, "format": "another"},
        {"format": signature["format"]},
        {},
        changed,
    ):
        with pytest.raises(SignatureInvalid):
            check(folder, FILES, wrong)


def test_what_is_no_key_to_sign_with_is_refused(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "private.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    encrypted = private.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"password"))
    edwards = ed25519.Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, serialization.NoEncryption())
    public = private.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for data in (b"rubbish", encrypted, edwards, public):
        key.write_bytes(data)
        with pytest.raises(InvalidRequest, match="no key to sign with"):
            sign(folder, FILES, key)
    with pytest.raises(InvalidRequest, match="no key to sign with"):
        sign(folder, FILES, tmp_path / "nowhere.pem")
