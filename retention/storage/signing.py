"""Signatures of exported files by a key of the operator's (Ed25519, RFC 8032), which OpenSSL verifies as well."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention.errors import StorageError, UsageError
from retention.storage import files
from retention.storage.outputs import OutputKind, check_output, write_output

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ENDING = ".sig"
"""The ending of a signature's file, after the whole name of the signed file."""
_BYTES = 64
SIGNATURE = OutputKind("a signature", lambda source: len(source.read(_BYTES + 1)) == _BYTES)
_REMEDY = "make one with `openssl genpkey -algorithm ed25519 -out FILE`"


@dataclass(frozen=True)
class Signer:
    """A private key that signs exported files."""

    location: str
    key: Ed25519PrivateKey

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the public key in DER (SubjectPublicKeyInfo), as `SHA256:<base64 without padding>`."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = self.key.public_key()
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return f"SHA256:{base64.b64encode(hashlib.sha256(der).digest()).decode().rstrip('=')}"

    def check(self, location: str) -> None:
        """Refuse a file that is to be signed if another file has the place of its signature.

        Raises:
            UsageError: something other than a signature lies there.
        """
        check_output(location + ENDING, SIGNATURE)

    def sign(self, location: str) -> None:
        """Write the signature of a file next to it: 64 bytes over its whole content.

        Raises:
            UsageError: something other than a signature lies there.
            StorageError: the file cannot be read, or the signature not be written.
        """
        with files.open_input(location) as source:
            content = source.read()
        write_output(location + ENDING, SIGNATURE, self.key.sign(content))


def signer_of(location: str) -> Signer:
    """The signer with a private key in PEM (PKCS #8, without a password).

    Raises:
        UsageError: the file cannot be read, or is no such key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        with files.open_input(location) as source:
            content = source.read()
    except (FileNotFoundError, StorageError) as error:
        raise UsageError(
            f"signing_key: {location}: there is no readable file; nothing was exported; {_REMEDY}"
        ) from error
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"signing_key: {location}: is not a private key in PEM without a password; nothing was exported; {_REMEDY}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(
            f"signing_key: {location}: is a key of another kind; nothing was exported; {_REMEDY}"
        )
    return Signer(location, key)
