"""Settings of a connection as the client library takes them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from retention.errors import UsageError
from retention.nats.settings import ConnectionSettings


def client_options(settings: ConnectionSettings, timeout_s: float) -> dict[str, Any]:
    """Arguments of the library's `connect`.

    Raises:
        UsageError: A file that the settings name cannot be read.
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
    if settings.creds:
        options["user_credentials"] = _readable(settings.creds, "creds")
    elif settings.nkey:
        options["nkeys_seed"] = _readable(settings.nkey, "nkey")
    if settings.needs_tls:
        options["tls"] = _tls(settings)
    return options


def _tls(settings: ConnectionSettings) -> ssl.SSLContext:
    authority = _readable(settings.tls_ca, "ca") if settings.tls_ca else None
    try:
        context = ssl.create_default_context(cafile=authority)
        if settings.tls_cert:
            key = _readable(settings.tls_key, "key") if settings.tls_key else None
            context.load_cert_chain(_readable(settings.tls_cert, "cert"), key)
    except ssl.SSLError as error:
        raise UsageError(
            f"TLS files of {settings.hosts}: ca {settings.tls_ca}, cert {settings.tls_cert}, key {settings.tls_key}: "
            f"{error.reason or error}; give PEM files, and the key that belongs to the certificate"
        ) from error
    return context


def _readable(path: str, setting: str) -> str:
    try:
        with Path(path).open("rb"):
            return path
    except OSError as error:
        raise UsageError(
            f"{setting} {path}: {error.strerror}; name a file that this user can read"
        ) from error
