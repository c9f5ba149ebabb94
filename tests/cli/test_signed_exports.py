"""`signing_key`: each exported file of the run history gets a signature that OpenSSL verifies."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.support.sandboxes import ORDERS, Commands, commands, lines


def pem(key: object, encryption: KeySerializationEncryption | None = None) -> bytes:
    """A private key as a file has it."""
    chosen = NoEncryption() if encryption is None else encryption
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, chosen)  # type: ignore[attr-defined]


@pytest.fixture
def command(tmp_path: Path) -> Commands:
    """Commands on a warehouse with one run, of which `key.pem` signs exports."""
    made = commands(tmp_path / "w", {**ORDERS, "max_msgs": 2})
    file = made.folder / "retention.yaml"
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(values | {"signing_key": "key.pem"}), encoding="utf-8")
    made.json("publish", "ORDERS", stdin="\n".join(lines(3)))
    made.json("apply", "--yes")
    return made


@pytest.mark.parametrize("kind", ["html", "csv", "json", "parquet"])
def test_a_file_is_signed_and_any_change_shows(command: Commands, kind: str) -> None:
    key = Ed25519PrivateKey.generate()
    (command.folder / "key.pem").write_bytes(pem(key))
    file = command.folder / f"history.{kind}"
    for _ in range(2):
        done = command.run("history", "export", "--format", kind, "-o", file)
        assert done.exit_code == 0, done.output
    fingerprint = done.stderr.split("by the key ")[1].strip()
    content, signature = file.read_bytes(), Path(f"{file}.sig").read_bytes()
    assert (fingerprint.encode() in content) == (kind == "html")
    key.public_key().verify(signature, content)
    with pytest.raises(InvalidSignature):
        key.public_key().verify(signature, content + b" ")
    openssl = shutil.which("openssl")
    if openssl is not None and kind == "html":
        assert verified_by(openssl, key.public_key(), file)
        file.write_bytes(content.replace(b"ORDERS", b"0RDERS", 1))
        assert not verified_by(openssl, key.public_key(), file)


def verified_by(openssl: str, public: Ed25519PublicKey, file: Path) -> bool:
    """Whether OpenSSL accepts the signature of a file."""
    place = file.with_name("public.pem")
    place.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    words = ("pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", place, "-in", file)
    done = subprocess.run(
        [openssl, *words, "-sigfile", f"{file}.sig"], check=False, capture_output=True
    )
    return done.returncode == 0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no readable file"),
        (b"ssh-ed25519 AAAA", "is not a private key in PEM without a password"),
        (
            pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"x")),
            "is not a private key in PEM without a password",
        ),
        (pem(generate_private_key(SECP256R1())), "is a key of another kind"),
    ],
    ids=["absent", "public", "password", "other"],
)
def test_an_unusable_key_is_refused_before_a_file_is_written(
    command: Commands, content: bytes | None, why: str
) -> None:
    if content is not None:
        (command.folder / "key.pem").write_bytes(content)
    file = command.folder / "history.html"
    done = command.run("history", "export", "--format", "html", "-o", file)
    assert (done.exit_code, file.exists()) == (2, False)
    assert f"key.pem: {why}; nothing was exported; make one with" in done.stderr
    # Without a file there is nothing to sign.
    assert command.run("history", "export", "--format", "html").exit_code == 0


def test_another_file_at_the_place_of_the_signature_is_kept(command: Commands) -> None:
    (command.folder / "key.pem").write_bytes(pem(Ed25519PrivateKey.generate()))
    file = command.folder / "history.csv"
    Path(f"{file}.sig").write_bytes(b"mine")
    done = command.run("history", "export", "--format", "csv", "-o", file)
    assert (done.exit_code, file.exists()) == (2, False)
    assert Path(f"{file}.sig").read_bytes() == b"mine"
