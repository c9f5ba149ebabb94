"""The settings of a connection to an Iggy server: address, credentials and TLS, as Iggy's own tools take them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from retention.errors import UsageError

DEFAULT_ADDRESS = "127.0.0.1:8090"
USERNAME, PASSWORD, TOKEN = "IGGY_USERNAME", "IGGY_PASSWORD", "IGGY_TOKEN"
"""Environment variables with the credentials; the first two are those of Iggy's own command."""
_SCHEMES = ("iggy", "iggy+tcp")
_OPTIONS = ("tls", "tls_domain", "tls_ca_file")
_IGNORED = (
    "nodelay",
    "heartbeat_interval",
    "reconnection_retries",
    "reconnection_interval",
    "reestablish_after",
)
"""Options of a connection string that do not matter here: a sync reconnects by its own rule."""
_MOST_PORT = 65_535


@dataclass(frozen=True)
class IggySettings:
    """A server, and the credentials for it; the representation shows no secret."""

    address: str = DEFAULT_ADDRESS
    """`host:port` of the server's TCP listener."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """A personal access token."""
    tls: bool = False
    tls_domain: str = ""
    """The name in the server's certificate; empty: the host of the address."""
    tls_ca_file: str | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no output may contain."""
        return tuple(secret for secret in (self.password, self.token) if secret)


def iggy_settings(server: str | None, environment: Mapping[str, str] = os.environ) -> IggySettings:
    """The settings for a server.

    Args:
        server: `host:port`, or a connection string `iggy://USER:PASSWORD@HOST:PORT?tls=true` or `iggy://TOKEN@HOST:PORT`;
            None: Iggy's own default.
        environment: has the credentials that the server's text leaves out.

    Raises:
        UsageError: the text is neither, or there are no credentials.
    """
    scheme, _, rest = (server or DEFAULT_ADDRESS).rpartition("://")
    if scheme and scheme not in _SCHEMES:
        raise UsageError(
            f"--server {scheme}://…: only Iggy's TCP listener gives messages byte for byte; write "
            "iggy+tcp://HOST:PORT (port 8090 by default)"
        )
    credentials, _, place = rest.rpartition("@")
    address, _, options = place.partition("?")
    given = _of_credentials(credentials) if credentials else _of_environment(environment)
    settings = IggySettings(_checked_address(address), *given)
    return _with_tls(settings, options)


def without_secrets(server: str) -> str:
    """A server's text without its credentials, for messages and the configuration."""
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


_Credentials = tuple[str | None, str | None, str | None]
"""User, password and token."""


def _of_credentials(text: str) -> _Credentials:
    user, colon, password = text.partition(":")
    if not colon:
        return None, None, unquote(user)
    if not user or not password:
        raise UsageError(
            "--server: its credentials are incomplete; write iggy://USER:PASSWORD@HOST:PORT or iggy://TOKEN@HOST:PORT"
        )
    return unquote(user), unquote(password), None


def _of_environment(environment: Mapping[str, str]) -> _Credentials:
    if environment.get(TOKEN):
        return None, None, environment[TOKEN]
    if environment.get(USERNAME) and environment.get(PASSWORD):
        return environment[USERNAME], environment[PASSWORD], None
    raise UsageError(
        f"there are no credentials for the Iggy server; set {USERNAME} and {PASSWORD}, or {TOKEN} with a personal "
        "access token, or write them into --server, before the host and an @"
    )


def _checked_address(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, DEFAULT_ADDRESS.rpartition(":")[2]
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= _MOST_PORT):
        raise UsageError(
            f"--server {address!r} is not an address; write HOST:PORT, such as {DEFAULT_ADDRESS}"
        )
    return f"{host}:{port}"


def _with_tls(settings: IggySettings, options: str) -> IggySettings:
    given = dict(part.partition("=")[::2] for part in options.split("&") if part)
    unknown = [name for name in given if name not in (*_OPTIONS, *_IGNORED)]
    if unknown:
        raise UsageError(
            f"--server: {unknown[0]!r} is not an option of a connection string; write {', '.join(_OPTIONS)}"
        )
    return replace(
        settings,
        tls=given.get("tls") == "true",
        tls_domain=given.get("tls_domain", ""),
        tls_ca_file=given.get("tls_ca_file"),
    )
