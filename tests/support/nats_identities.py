"""Identities for servers of tests: certificates of an authority of our own, keys, and a chain of JWTs."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_BEGIN, _END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC) + timedelta(36500)
_UNLIMITED = ("subs", "data", "payload")
_ACCOUNT_LIMITS = (
    *_UNLIMITED,
    *("imports", "exports", "conn", "leaf", "mem_storage", "disk_storage", "streams", "consumer"),
)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files; the server's certificate is for 127.0.0.1."""

    ca: str
    server_cert: str
    server_key: str
    client_cert: str
    client_key: str
    other_ca: str


def certificates(directory: Path) -> Certificates:
    """An authority with a server and a client, and another authority."""
    key = _authority(directory, "ca")
    _authority(directory, "other_ca")
    for name in ("server", "client"):
        _leaf(directory, name, key)
    names = ("ca", "server_cert", "server_key", "client_cert", "client_key", "other_ca")
    return Certificates(*(str(directory / f"{name}.pem") for name in names))


class Identity:
    """A key pair of NATS: O operator, A account, U user."""

    def __init__(self, kind: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), kind).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public = self._pair.public_key.decode()

    def token(self, subject: str, claims: dict[str, Any]) -> str:
        """A JWT about a subject, signed by this identity."""
        body = {"iss": self.public, "sub": subject, "name": subject[:6], "iat": 1_600_000_000}
        body["nats"] = {**claims, "version": 2}
        body["jti"] = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        head = _encoded({"typ": "JWT", "alg": "ed25519-nkey"})
        text = f"{head}.{_encoded(body)}"
        return f"{text}.{_base64(self._pair.sign(text.encode()))}"


def operator() -> Identity:
    return Identity(nkeys.PREFIX_BYTE_OPERATOR)


def account() -> Identity:
    return Identity(nkeys.PREFIX_BYTE_ACCOUNT)


def user() -> Identity:
    return Identity(nkeys.PREFIX_BYTE_USER)


def account_token(signer: Identity, holder: Identity, *, has_jetstream: bool) -> str:
    limits = dict.fromkeys(_ACCOUNT_LIMITS if has_jetstream else _ACCOUNT_LIMITS[:7], -1)
    return signer.token(holder.public, {"type": "account", "limits": {**limits, "wildcards": True}})


def user_token(signer: Identity, holder: Identity, *, is_bearer: bool = False) -> str:
    claims = {"type": "user", **dict.fromkeys(_UNLIMITED, -1), "bearer_token": is_bearer}
    return signer.token(holder.public, claims)


def credentials(token: str, seed: str) -> str:
    """The content of a credentials file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _encoded(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _authority(directory: Path, name: str) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    rights = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(rights, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(directory / f"{name}.pem", made.public_bytes(serialization.Encoding.PEM))
    return key


def _leaf(directory: Path, name: str, signer: ec.EllipticCurvePrivateKey) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        _builder(name, "ca", key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    _write(directory / f"{name}_cert.pem", made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(directory / f"{name}_key.pem", pem)


def _builder(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
    )


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
