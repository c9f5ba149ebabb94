"""Settings of a connection as the client library takes them."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import nkeys

from retention.errors import UsageError
from retention.nats.settings import ConnectionSettings

_JWT, _SEED = b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED"


def client_options(settings: ConnectionSettings, timeout_s: float) -> dict[str, Any]:
    """Arguments of the library's `connect`.

    Raises:
        UsageError: A file that the settings name cannot be read, or holds something else.
    """
    options: dict[str, Any] = {
        "servers": list(settings.servers),
        "name": "lake-retention",
        "connect_timeout": timeout_s,
        "dont_randomize": True,
        "user": settings.user,
        "password": settings.password,
        "token": settings.token,
        "inbox_prefix": settings.inbox_prefix or "_INBOX",
        "tls_handshake_first": settings.tls_first,
    }
    options |= _signing(settings)
    if settings.needs_tls:
        options["tls"] = _tls(settings)
    return options


def _signing(settings: ConnectionSettings) -> dict[str, Any]:
    """The options of an identity that signs: a credentials file, an nkey, a JWT."""
    if settings.creds:
        content = _content(settings.creds, "creds")
        if _JWT not in content or _SEED not in content:
            raise UsageError(
                f"creds {settings.creds} is no credentials file: it lacks the JWT or the seed; write it with `nsc "
                "generate creds`"
            )
        return {"user_credentials": settings.creds}
    if settings.nkey:
        seed = _content(settings.nkey, "nkey").decode(errors="replace").strip()
        _check_seed(seed, f"nkey {settings.nkey}")
        return {"nkeys_seed_str": seed}
    if settings.user_jwt:
        jwt, signing = settings.user_jwt.encode(), settings.user_seed
        if signing:
            _check_seed(signing, "the seed (NATS_SEED)")
        return {"user_jwt_cb": lambda: jwt, "signature_cb": lambda nonce: _signed(signing, nonce)}
    return {}


def _check_seed(seed: str, what: str) -> None:
    try:
        nkeys.from_seed(bytearray(seed.encode())).wipe()
    except Exception:  # the package raises errors of several kinds, with parts of the seed
        raise UsageError(
            f"{what} holds no seed of a user; it is one line that begins with SU, as `nk -gen user` writes it"
        ) from None


def _signed(seed: str | None, nonce: str) -> bytes:
    """The signature of the server's nonce; without a seed it is empty, which a bearer token permits."""
    if not seed:
        return b""
    return base64.b64encode(nkeys.from_seed(bytearray(seed.encode())).sign(nonce.encode()))


def _tls(settings: ConnectionSettings) -> ssl.SSLContext:
    named = {"ca": settings.tls_ca, "cert": settings.tls_cert, "key": settings.tls_key}
    files = {name: path for name, path in named.items() if path}
    for name, path in files.items():
        _content(path, name)
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except ssl.SSLError as error:
        shown = ", ".join(f"{name} {path}" for name, path in files.items())
        raise UsageError(
            f"{shown}: {error.reason or error}; give PEM files, and the key that belongs to the certificate"
        ) from error
    return context


def _content(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{setting} {path}: {error.strerror}; name a file that this user can read"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{setting} {path!r} is no path of a file ({error}); name a file that this user can read"
        ) from error
