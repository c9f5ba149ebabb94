"""Settings of a connection to NATS: from URLs, the environment, and contexts of the NATS command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from retention.errors import UsageError
from retention.nats.contexts import read_context, selected_context
from retention.nats.urls import host_of, servers_in

DEFAULT_SERVER = "nats://127.0.0.1:4222"
_FROM_ENVIRONMENT = {
    "NATS_URL": "url",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CREDS": "creds",
    "NATS_NKEY": "nkey",
    "NATS_JWT": "user_jwt",
    "NATS_SEED": "user_seed",
    "NATS_CERT": "cert",
    "NATS_KEY": "key",
    "NATS_CA": "ca",
    "NATS_SOCKS_PROXY": "socks_proxy",
}
"""Variables that the NATS command line takes, and the keys of a context that they replace."""
_KINDS: Mapping[str, type[str] | type[bool]] = {
    **dict.fromkeys(_FROM_ENVIRONMENT.values(), str),
    **dict.fromkeys(("jetstream_domain", "jetstream_api_prefix", "inbox_prefix"), str),
    "tls_first": bool,
}
_TOKENS = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_REFUSED = {
    "nsc": "export the user's credentials with `nsc generate creds`, and name that file as creds",
    "socks_proxy": "connect without a proxy, such as through a tunnel (`ssh -L`)",
    "windows_cert_store": "name PEM files as cert and key",
    "windows_cert_match": "name PEM files as cert and key",
    "windows_cert_match_by": "name PEM files as cert and key",
}


@dataclass(frozen=True)
class ConnectionSettings:
    """The servers of one cluster and the identity for them; `repr` shows no secret."""

    servers: tuple[str, ...] = field(default=(DEFAULT_SERVER,), repr=False)
    """URLs; they may hold a user and a password, or a token."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    creds: str | None = None
    """Path of a file with a JWT and its seed."""
    nkey: str | None = None
    """Path of a file with a seed."""
    user_jwt: str | None = field(default=None, repr=False)
    user_seed: str | None = field(default=None, repr=False)
    """The seed that signs for `user_jwt`; without one the JWT is a bearer token."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    tls_first: bool = False
    """TLS before the server's first line (`handshake_first` at the server)."""
    domain: str | None = None
    api_prefix: str | None = None
    inbox_prefix: str | None = None

    @property
    def hosts(self) -> str:
        """The servers without credentials, for sentences."""
        return ", ".join(host_of(url) for url in self.servers)

    @property
    def api(self) -> str:
        """The prefix of the JetStream API, without a dot at its end."""
        if self.api_prefix:
            return self.api_prefix
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @property
    def needs_tls(self) -> bool:
        """Whether a server without TLS is refused."""
        named = self.tls_ca or self.tls_cert or self.tls_first
        return bool(named) or any(url.startswith("tls://") for url in self.servers)


def settings_of(
    server: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> ConnectionSettings:
    """The settings that a person means.

    Args:
        server: URLs with commas between them; with `context`, they replace its URLs.
        context: the name of a context of the NATS command line. Without both, `NATS_CONTEXT`, else the selected
            context, else a server on this machine.
        environment: `NATS_URL`, `NATS_USER` … replace what the context says, as they do for the NATS command line.

    Raises:
        UsageError: The context cannot be read, or asks for what this program cannot do.
    """
    for what, given in (("the server's URL", server), ("the context's name", context)):
        if given is not None and not given.strip():
            raise UsageError(
                f"{what} is empty, as if by an unset variable of a shell; give it, or leave the option out"
            )
    name = context or (None if server else environment.get("NATS_CONTEXT"))
    if name is None and not server:
        name = selected_context(environment)
    values = read_context(name, environment) if name else {}
    values |= {
        key: environment[variable]
        for variable, key in _FROM_ENVIRONMENT.items()
        if environment.get(variable)
    }
    if server:
        values["url"] = server
    where = f"context {name}" if name else "the environment"
    _refuse(values, where)
    return _settings(values, where)


def _refuse(values: Mapping[str, Any], where: str) -> None:
    for key, remedy in _REFUSED.items():
        if values.get(key):
            raise UsageError(f"{where} sets {key}, which is not supported; {remedy}")
    for key, kind in _KINDS.items():
        if not isinstance(values.get(key) or kind(), kind):
            shown = "true or false" if kind is bool else "a text"
            raise UsageError(f"{where} sets {key} to something else than {shown}; correct it there")


def _settings(values: Mapping[str, Any], where: str) -> ConnectionSettings:
    settings = ConnectionSettings(
        servers=servers_in(values.get("url") or DEFAULT_SERVER, where),
        tls_cert=_path(values, "cert"),
        tls_key=_path(values, "key"),
        tls_ca=_path(values, "ca"),
        tls_first=bool(values.get("tls_first")),
        domain=_subject(values, "jetstream_domain", where),
        api_prefix=_subject(values, "jetstream_api_prefix", where),
        inbox_prefix=_subject(values, "inbox_prefix", where),
    )
    return _with_identity(settings, values)


def _with_identity(settings: ConnectionSettings, values: Mapping[str, Any]) -> ConnectionSettings:
    """Take the first of the identities that are set, in the order of the NATS command line."""
    user, password = _text(values, "user"), _text(values, "password")
    if user and password is None:
        return replace(settings, token=user)
    if user:
        return replace(settings, user=user, password=password)
    if creds := _path(values, "creds"):
        return replace(settings, creds=creds)
    if nkey := _path(values, "nkey"):
        return replace(settings, nkey=nkey)
    if jwt := _text(values, "user_jwt"):
        return replace(settings, user_jwt=jwt, user_seed=_text(values, "user_seed"))
    return replace(settings, token=_text(values, "token"))


def _text(values: Mapping[str, Any], key: str) -> str | None:
    return str(values[key]) if values.get(key) else None


def _subject(values: Mapping[str, Any], key: str, where: str) -> str | None:
    """The beginning of subjects, without a dot at its end: a space in it would end the connection without a reason."""
    text = _text(values, key)
    if text is None:
        return None
    prefix = text.removesuffix(".")
    if not _TOKENS.fullmatch(prefix):
        raise UsageError(
            f"{where} sets {key} to {text!r}, which begins no subject: it has a blank, a wildcard or an empty token; "
            "correct it there"
        )
    return prefix


def _path(values: Mapping[str, Any], key: str) -> str | None:
    """A file's path, with the home directory and variables filled in, as the NATS command line does."""
    text = _text(values, key)
    return os.path.expanduser(os.path.expandvars(text)) if text else None  # noqa: PTH111
